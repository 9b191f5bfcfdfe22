package status

import (
	"testing"

	"limpet/sync/api"
	"limpet/sync/jobs"
)

// TestSyncCondition: the condition agrees with the state.
func TestSyncCondition(t *testing.T) {
	t.Parallel()
	if c := condition(End{Outcome: jobs.Outcome{State: api.StateWarning}, LeftOut: 2}); c.Status != "False" ||
		c.Reason != "SyncQuotaExceeded" || c.Message != "Resource quota exceeded: 2 creations left out" {
		t.Errorf("%+v", c)
	}
	if c := condition(End{Outcome: jobs.Outcome{State: api.StateWarning}}); c.Status != "False" || c.Reason != "SyncWarning" {
		t.Errorf("%+v", c)
	}
}
