package control

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/snapshot"
)

// TestHistoryOfAFile reads a state file as a dashboard does: page by page, and one record whole.
func TestHistoryOfAFile(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for i := range 5 {
		r := state.Record{UID: fmt.Sprint("u", i), Namespace: "default", Name: fmt.Sprint("dash-pr-", i), Repository: "dash", Action: "pr",
			State: "error", Message: "401 bad credentials",
			Started: at, Finished: at.Add(time.Duration(i) * time.Minute), RefTo: "abc",
			Attempts: []state.Attempt{{N: 1, Agent: "edge", State: "error", Message: "no"}},
			Spec:     []byte(`{"action":"pr","repository":"dash"}`),
			Status:   []byte(`{"errors":["401"],"summary":[{"kind":"Dashboard","create":3}]}`)}
		if err := store.PutRecord(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	c := NewLocal(nil, store)
	var seen []string
	for q := (snapshot.HistoryQuery{Limit: 2, Words: []string{"BAD"}, Ref: "a"}); ; {
		page, err := c.HistoryPage(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Rows {
			if want := (state.Totals{Errors: 1, Only: "401", Create: 3, Counted: true}); *r.Tally != want {
				t.Errorf("%s came to %+v, want %+v", r.UID, *r.Tally, want)
			}
			seen = append(seen, r.UID)
		}
		if page.All != 5 {
			t.Errorf("%d jobs in all", page.All)
		}
		if q.Before = page.Next; q.Before == "" {
			break
		}
	}
	if fmt.Sprint(seen) != "[u4 u3 u2 u1 u0]" {
		t.Errorf("pages: %v", seen)
	}
	if page, err := c.HistoryPage(t.Context(), snapshot.HistoryQuery{Ref: "b", Limit: 2}); err != nil || len(page.Rows) != 0 ||
		page.Next != "" {
		t.Errorf("another ref: %+v, %v", page, err)
	}
	j, err := c.PastJob(t.Context(), "u3")
	if err != nil || j.Detail != "#3" || len(j.Errors) != 1 || len(j.Summary) != 1 || j.Summary[0].Create != 3 || len(j.Log) != 1 ||
		j.Finished.IsZero() {
		t.Errorf("job: %+v, %v", j, err)
	}
	if _, err := c.PastJob(t.Context(), "none"); err == nil {
		t.Error("a job that is not there was found")
	}
}

// TestWithoutAgent: a source without an agent reads the file and refuses the rest.
func TestWithoutAgent(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	if err := store.PutRecord(t.Context(), state.Record{UID: "u", Namespace: "default", Name: "a-sync", State: "error",
		Message: "GET https://bot:hunter2secret@git.lab/x.git: 401"}); err != nil {
		t.Fatal(err)
	}
	l := NewLocal(nil, store)
	text, err := l.Manifest(t.Context(), snapshot.Subject{Kind: snapshot.SubjectJob, Namespace: "default", Name: "a-sync", UID: "u"})
	if err != nil || !strings.Contains(text, "uid: u\n") || strings.Contains(text, "hunter2secret") {
		t.Errorf("%v: %s", err, text)
	}
	if report, err := l.Diagnostics(t.Context()); err != nil || report.Store.History != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	_, compareErr := l.Compare(t.Context(), snapshot.CompareQuery{})
	_, testErr := l.Test(t.Context(), snapshot.Subject{Kind: snapshot.SubjectRepository})
	for _, err := range []error{compareErr, testErr, l.Act(t.Context(), snapshot.Action{Verb: snapshot.Hurry})} {
		if !errors.Is(err, errNoAgent) {
			t.Errorf("%v", err)
		}
	}
}

// TestPages: all selected records in pages, at most as many as the query says.
func TestPages(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	for i := range 7 {
		if err := store.PutRecord(t.Context(), state.Record{UID: fmt.Sprint("u", i), Name: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		limit, page int
		want        []int
	}{{0, 3, []int{3, 3, 1}}, {0, 7, []int{7, 0}}, {5, 3, []int{3, 2}}, {6, 3, []int{3, 3}}, {2, 3, []int{2}}, {9, 4, []int{4, 3}}} {
		var got []int
		for page, err := range Pages(t.Context(), store, state.Query{Limit: tt.limit}, tt.page) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, len(page))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("limit %d: %v, want %v", tt.limit, got, tt.want)
		}
	}
}
