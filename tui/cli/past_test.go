package cli

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/view"
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
	c := chronicle{store}
	var seen []string
	for q := (view.PastQuery{Limit: 2, Words: []string{"BAD"}, Ref: "a"}); ; {
		page, err := c.Past(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Rows {
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
	if page, err := c.Past(t.Context(), view.PastQuery{Ref: "b", Limit: 2}); err != nil || len(page.Rows) != 0 || page.Next != "" {
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
