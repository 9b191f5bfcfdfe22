package workers

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

// syncCondition is how a pull ended. Type, reasons and texts are Grafana's.
func syncCondition(e syncEnd) api.Condition {
	if e.outcome.State == api.StateError {
		return api.Condition{Type: "SyncStatus", Status: "False", Reason: "SyncFailed", Message: e.outcome.Message}
	}
	return api.Condition{Type: "SyncStatus", Status: "True", Reason: "SyncSuccessful", Message: "Sync completed successfully"}
}

// conditionOps sets conditions in a list that others write as well. An entry is
// replaced only where it still is the one that was seen, one that says the same
// already is left alone, and a list is made only when nothing else has changed.
func conditionOps(repo *unstructured.Unstructured, wanted ...api.Condition) []op {
	list, listed, _ := unstructured.NestedSlice(repo.Object, "status", "conditions")
	var ops []op
	if !listed {
		ops = append(ops, op{"test", "/metadata/resourceVersion", repo.GetResourceVersion()}, op{"add", "/status/conditions", []any{}})
	}
	for _, want := range wanted {
		at, old := api.FindCondition(list, want.Type)
		switch value := want.Wire(repo.GetGeneration(), old); {
		case at < 0:
			ops = append(ops, op{"add", "/status/conditions/-", value})
		case !api.SameCondition(old, value):
			path := fmt.Sprintf("/status/conditions/%d", at)
			ops = append(ops, op{"test", path + "/type", want.Type}, op{"replace", path, value})
		}
	}
	return ops
}
