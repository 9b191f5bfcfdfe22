package agent

import (
	"testing"
	"time"

	"limpet/sync/api"
	"limpet/sync/snapshot"
)

// TestSinceOfAnUnmetCondition: how long something is not as it should be is taken from
// its condition, also in another zone, and left out where it cannot be read.
func TestSinceOfAnUnmetCondition(t *testing.T) {
	t.Parallel()
	var repo api.Repository
	for _, at := range []string{"2026-11-20T11:00:00Z", "2026-11-20T12:00:00+01:00", "yesterday", ""} {
		repo.Status.Conditions = append(repo.Status.Conditions, api.Condition{Type: "Ready", Status: "False", Message: "why", LastTransitionTime: at})
	}
	var row snapshot.Repo
	paintStatus(&row, &object{}, repo)
	want := time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC)
	for i, since := range []time.Time{want, want, {}, {}} {
		if got := row.Conditions[i]; got.Since != since || got.Message != "why" {
			t.Errorf("condition %d: %+v, want %s", i, got, since)
		}
	}
}
