package cli

import (
	"slices"
	"testing"
	"time"

	"limpet/sync/view"
)

// TestStatusTellsWhy: a Repository that is not healthy is told by what it suffers
// from, not by a pull that there never was.
func TestStatusTellsWhy(t *testing.T) {
	t.Parallel()
	s := &statusReport{Live: &view.Snapshot{API: view.API{Up: true}, Repos: []view.Repo{
		{Namespace: "default", Name: "well", Checked: time.Now(), Healthy: true, SyncState: "success"},
		{Namespace: "default", Name: "ill", Checked: time.Now(), Health: "spec.git.url: nothing listens there", SyncState: "error"},
		{Namespace: "default", Name: "unknown", SyncState: "error"},
		{Namespace: "default", Name: "empty", Checked: time.Now(), Healthy: true, SyncState: "error"},
	}}}
	s.judge(new(run))
	want := []string{
		"ill is not healthy: spec.git.url: nothing listens there: limpet repo show ill",
		"the last pull of unknown ended in error: limpet repo show unknown",
		"the last pull of empty ended in error: limpet repo show empty",
	}
	if !slices.Equal(s.Why, want) || s.OK {
		t.Errorf("%q", s.Why)
	}
}
