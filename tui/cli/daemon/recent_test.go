package daemon

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"limpet/state"
)

// TestLately: the jobs of one repository of a real state file are listed and summed
// up over pages; those of others and of other days are not.
func TestLately(t *testing.T) {
	t.Parallel()
	store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(t.TempDir(), "limpet.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	now := time.Now()
	put := func(uid, repository, how string, at time.Time) {
		t.Helper()
		r := state.Record{UID: uid, Namespace: "default", Name: uid, Repository: repository, Action: "pull", State: how, Started: at.Add(-2 * time.Second), Finished: at,
			Status: []byte(`{"summary":[{"kind":"Dashboard","create":1,"update":2},{"kind":"Folder","delete":3}]}`)}
		if err := store.PutRecord(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	const n = recentPage + 10
	for i := range n {
		put(fmt.Sprint("u", i), "dash", "success", now.Add(-time.Duration(i)*time.Second))
	}
	put("warned", "dash", "warning", now.Add(-time.Hour))
	put("dead", "dash", "dead", now.Add(-2*time.Hour))
	put("old", "dash", "error", now.Add(-25*time.Hour))
	put("other", "lab", "error", now)
	got, err := recordHistory{store}.RecentRuns(t.Context(), "default", "dash")
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != recentRows || got.Rows[0].UID != "u0" {
		t.Errorf("%d rows, the first %s", len(got.Rows), got.Rows[0].UID)
	}
	d := got.Day
	if d.Good != n || d.Warned != 1 || d.Failed != 1 || d.Created != n+2 || d.Updated != 2*(n+2) || d.Deleted != 3*(n+2) || d.Median != 2*time.Second || !d.Since.IsZero() {
		t.Errorf("%+v", d)
	}
}
