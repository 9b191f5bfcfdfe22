package webhook

import "testing"

func TestListed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		most int
		push Event
		want bool
	}{
		{name: "no deletions", push: Event{Changes: 3}, want: true},
		{name: "a file", push: Event{Deleted: []string{"a/x.json"}, Changes: 1}, want: true},
		{name: "the marker of a directory", push: Event{Deleted: []string{"a/.keep"}, Changes: 1}},
		{name: "the metadata of a directory", push: Event{Deleted: []string{"a/_folder.json"}, Changes: 1}},
		{name: "the marker with a file beside it", push: Event{Deleted: []string{"a/.keep", "a/x.json"}, Changes: 2}, want: true},
		{name: "the marker with a file below it", push: Event{Deleted: []string{"a/.keep", "a/b/x.json"}, Changes: 2}},
		{name: "one of two markers stands alone", push: Event{Deleted: []string{"a/.keep", "a/x.json", "b/.keep"}, Changes: 3}},
		{name: "the marker of the root", push: Event{Deleted: []string{".keep"}, Changes: 1}},
		{name: "as many as allowed", most: 3, push: Event{Changes: 3}, want: true},
		{name: "too many", most: 3, push: Event{Changes: 4}},
		{name: "not all is told", push: Event{Changes: 1, Partial: true}},
	}
	for _, tt := range tests {
		if got := (Listed{tt.most}).Incremental(tt.push); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
		if !(Comparing{}).Incremental(tt.push) {
			t.Errorf("%s: not incremental", tt.name)
		}
	}
}
