package daemon

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/snapshot"
)

// TestChronicle reads a real state file as the dashboard does: page by page, brief,
// and one record whole.
func TestChronicle(t *testing.T) {
	t.Parallel()
	store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(t.TempDir(), "limpet.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for i := range 5 {
		r := state.Record{UID: fmt.Sprint("u", i), Namespace: "default", Name: fmt.Sprint("dash-pr-", i), Repository: "dash", Action: "pr", State: "error", Message: "401 bad credentials",
			Started: at, Finished: at.Add(time.Duration(i) * time.Minute), RefTo: "abc", Attempts: []state.Attempt{{N: 1, Agent: "edge", State: "error", Message: "no"}},
			Spec: []byte(`{"action":"pr","repository":"dash"}`), Status: []byte(`{"errors":["401"],"summary":[{"kind":"Dashboard","create":3}]}`)}
		if err := store.PutRecord(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	c := recordHistory{store}
	var seen []string
	for q := (snapshot.HistoryQuery{Limit: 2, Words: []string{"BAD"}, Ref: "a"}); ; {
		page, err := c.HistoryPage(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Rows {
			if want := (snapshot.JobResult{Errors: 1, Only: "401", Created: 3, Counted: true}); r.Result != want {
				t.Errorf("%s came to %+v, want %+v", r.UID, r.Result, want)
			}
			seen = append(seen, r.UID)
		}
		if page.All != 5 {
			t.Errorf("%d jobs in all", page.All)
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	if fmt.Sprint(seen) != "[u4 u3 u2 u1 u0]" {
		t.Errorf("pages: %v", seen)
	}
	if page, err := c.HistoryPage(t.Context(), snapshot.HistoryQuery{Ref: "b", Limit: 2}); err != nil || len(page.Rows) != 0 || page.Next != "" {
		t.Errorf("another ref: %+v, %v", page, err)
	}
	j, err := c.PastJob(t.Context(), "u3")
	if err != nil || j.Detail != "#3" || len(j.Errors) != 1 || len(j.Summary) != 1 || j.Summary[0].Create != 3 || len(j.Log) != 1 || j.Finished.IsZero() {
		t.Errorf("job: %+v, %v", j, err)
	}
	if _, err := c.PastJob(t.Context(), "none"); err == nil {
		t.Error("a job that is not there was found")
	}
}

// TestRowsAreSelectedAsInTheFile: what a dashboard takes out of rows that it has is
// what the state file has for the query, and a query that covers another has all of its rows.
func TestRowsAreSelectedAsInTheFile(t *testing.T) {
	t.Parallel()
	store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(t.TempDir(), "limpet.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	r := rand.New(rand.NewPCG(5, 8))
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	moment := func() time.Time { return at.Add(time.Duration(r.IntN(200_000)) * 50 * time.Microsecond) }
	for i := range 150 {
		rec := state.Record{UID: fmt.Sprint("u", i), Namespace: pick("default", "Default"), Name: pick("lab-1", "LAB-17", "\u00c9tat", "a b", "\u212a\""), Repository: pick("lab", "lab-1", ""), Action: pick("pull", "push"),
			Commit: &state.Commit{Subject: pick("", "Tune \"panels\"", "LAB")}, State: pick("success", "error", "warning"), Message: pick("", "401 Bad", "two\nlines", "lab\x1b[0m"), Started: at, Finished: moment(), RefTo: pick("", "abc")}
		if r.IntN(50) == 0 {
			rec.Finished = time.Unix(-100, 0)
		}
		if err := store.PutRecord(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(q snapshot.HistoryQuery) []snapshot.HistoryRow {
		page, err := recordHistory{store}.HistoryPage(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return page.Rows
	}
	query := func() (q snapshot.HistoryQuery) {
		if r.IntN(3) == 0 {
			q.Repository, q.Action = pick("", "lab", "lab-1"), pick("", "pull")
		}
		if r.IntN(3) == 0 {
			q.Namespace = pick("default", "other")
		}
		for range r.IntN(3) {
			q.States = append(q.States, pick("success", "error"))
		}
		for range r.IntN(3) {
			q.Words = append(q.Words, pick("lab", "LAB-1", "1", "\u00e9", "\u00c9TAT", "k", "two\nlines", "pull", "err", "\x1b", "panels\"", "tune"))
		}
		if r.IntN(3) == 0 {
			q.Since = moment()
		}
		if r.IntN(3) == 0 {
			q.Until = moment()
		}
		return q
	}
	all, covered := ask(snapshot.HistoryQuery{}), 0
	for range 1500 {
		wide, narrow := query(), query()
		if more := query(); r.IntN(2) == 0 { // what a person has typed behind it
			narrow = wide
			narrow.Words = append(slices.Clone(wide.Words), more.Words...)
			narrow.Since, narrow.States = more.Since, more.States
		}
		rows := ask(wide)
		var want []snapshot.HistoryRow
		for _, row := range all {
			if wide.Selects(row) {
				want = append(want, row)
			}
		}
		if !slices.Equal(rows, want) {
			t.Fatalf("%+v: the file has %d rows, the dashboard selects %d", wide, len(rows), len(want))
		}
		wide.Ref, narrow.Ref = pick("", "a", "b"), pick("", "a", "b")
		if !wide.Covers(narrow) {
			continue
		}
		rows = ask(wide)
		covered++
		for _, row := range ask(narrow) {
			if !slices.Contains(rows, row) {
				t.Fatalf("%+v is said to cover %+v, and lacks %+v", wide, narrow, row)
			}
		}
	}
	if covered < 100 {
		t.Errorf("%d pairs are covered: too few to tell", covered)
	}
}
