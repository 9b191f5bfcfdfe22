package kube

import (
	"slices"
	"testing"
	"time"
)

// What a watch does not deliver, the full list every 10 minutes finds.
func TestInformerComparesWithFullList(t *testing.T) {
	for _, page := range []int{0, 1} {
		bubble(t, func(s *shelf) { s.pageSize = page }, InformerOptions{}, func(t *testing.T, w *watched) {
			w.want(t, "default/a=1 other/b=1")
			pass(time.Minute)
			lists, _ := w.shelf.requests()
			w.shelf.set(func(s *shelf) { s.silent = true })
			w.shelf.put("default", "a", "2")
			w.shelf.put("default", "c", "1")
			w.shelf.drop("other", "b")
			w.want(t, "default/a=1 other/b=1")
			pass(relistEvery * 3 / 2)
			w.want(t, "default/a=2 default/c=1")
			if n := w.Corrections(); n != 1 {
				t.Errorf("%d corrections, want 1", n)
			}
			w.shelf.set(func(s *shelf) { s.silent = false })
			pass(2 * time.Hour)
			after, _ := w.shelf.requests()
			if n := len(after) - len(lists); n < 8 || n > 40 {
				t.Errorf("%d lists in two hours, want about 12", n)
			}
			if n := w.Corrections(); n != 1 {
				t.Errorf("%d corrections, want 1", n)
			}
		})
	}
}

func TestDiffering(t *testing.T) {
	type m = map[string]string
	for name, tc := range map[string]struct {
		before, listed, later m
		want                  []string
	}{
		"same":                    {m{"a": "1"}, m{"a": "1"}, m{"a": "1"}, nil},
		"missed update":           {m{"a": "1"}, m{"a": "2"}, m{"a": "1"}, []string{"a"}},
		"update arrived":          {m{"a": "1"}, m{"a": "2"}, m{"a": "2"}, nil},
		"overtaken":               {m{"a": "1"}, m{"a": "2"}, m{"a": "3"}, nil},
		"missed add":              {m{}, m{"a": "1"}, m{}, []string{"a"}},
		"add arrived":             {m{}, m{"a": "1"}, m{"a": "1"}, nil},
		"missed delete":           {m{"a": "1"}, m{}, m{"a": "1"}, []string{"a"}},
		"delete arrived":          {m{"a": "1"}, m{}, m{}, nil},
		"made anew":               {m{"a": "1"}, m{}, m{"a": "2"}, nil},
		"added since the list":    {m{}, m{}, m{"a": "1"}, nil},
		"changed since the list":  {m{"a": "1"}, m{"a": "1"}, m{"a": "2"}, nil},
		"deleted since the list":  {m{"a": "1"}, m{"a": "1"}, m{}, nil},
		"deleted after an update": {m{"a": "1"}, m{"a": "2"}, m{}, nil},
	} {
		if got := differing(tc.before, tc.listed, tc.later); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
