package worker

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

// syncCondition is how a pull ended. Type and reasons are Grafana's. What was left out
// for the quota makes it False although the job ends in a warning: it comes only
// when there is room.
func syncCondition(e syncEnd) api.Condition {
	c := api.Condition{Type: api.ConditionSyncStatus, Status: "False"}
	switch {
	case e.outcome.State == api.StateError:
		c.Reason, c.Message = api.ReasonSyncFailed, e.outcome.Message
	case e.leftOut > 0:
		c.Reason, c.Message = api.ReasonSyncQuotaExceeded, fmt.Sprintf("Resource quota exceeded: %d creations left out", e.leftOut)
	default:
		c.Status, c.Reason, c.Message = "True", api.ReasonSyncSuccessful, "Sync completed successfully"
	}
	return c
}

// conditionOps sets conditions in a list that others write as well. An entry is
// replaced only where it still is the one that was seen, one that says the same
// already is left alone, and a list is made only when nothing else has changed. One
// without a status is taken away.
func conditionOps(now time.Time, repo *unstructured.Unstructured, wanted ...api.Condition) []op {
	list, listed, _ := unstructured.NestedSlice(repo.Object, "status", "conditions")
	var ops []op
	if !listed {
		ops = append(ops, op{"test", "/metadata/resourceVersion", repo.GetResourceVersion()}, op{"add", "/status/conditions", []any{}})
	}
	var gone []op
	for _, want := range wanted {
		at, old := api.FindCondition(list, want.Type)
		if want.Status == "" {
			if at >= 0 {
				path := fmt.Sprintf("/status/conditions/%d", at)
				gone = append(gone, op{"test", path + "/type", want.Type}, op{Op: "remove", Path: path})
			}
			continue
		}
		switch value := want.Map(now, repo.GetGeneration(), old); {
		case at < 0:
			ops = append(ops, op{"add", "/status/conditions/-", value})
		case !api.SameCondition(old, value):
			path := fmt.Sprintf("/status/conditions/%d", at)
			ops = append(ops, op{"test", path + "/type", want.Type}, op{"replace", path, value})
		}
	}
	return append(ops, gone...) // last: it moves the others
}
