package workers

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

// condition is one of the conditions of a Repository that a pull owns. Types,
// reasons and texts are Grafana's.
type condition struct{ kind, status, reason, message string }

func syncCondition(e syncEnd) condition {
	c := condition{"SyncStatus", "True", "SyncSuccessful", "Sync completed successfully"}
	if e.outcome.State == api.StateError {
		c.status, c.reason, c.message = "False", "SyncFailed", e.outcome.Message
	}
	return c
}

func quotaCondition(have stats, limit int64) condition {
	total := have.total()
	c := condition{"ResourceQuota", "True", "WithinQuota", fmt.Sprintf("Within quota: %d/%d resources", total, limit)}
	switch {
	case limit == 0:
		c.reason, c.message = "QuotaUnlimited", "No quota limits configured"
	case total > limit:
		c.status, c.reason, c.message = "False", "QuotaExceeded", fmt.Sprintf("Resource quota exceeded: %d/%d resources", total, limit)
	case total == limit:
		c.reason, c.message = "QuotaReached", fmt.Sprintf("Resource quota reached: %d/%d resources", total, limit)
	}
	return c
}

// conditionOps sets conditions in a list that others write as well. An entry is
// replaced only where it still is the one that was seen, one that says the same
// already is left alone, and a list is made only when nothing else has changed.
func conditionOps(repo *unstructured.Unstructured, wanted ...condition) []op {
	list, listed, _ := unstructured.NestedSlice(repo.Object, "status", "conditions")
	var ops []op
	if !listed {
		ops = append(ops, op{"test", "/metadata/resourceVersion", repo.GetResourceVersion()}, op{"add", "/status/conditions", []any{}})
	}
	for _, want := range wanted {
		at, old := find(list, want.kind)
		switch value := want.wire(repo.GetGeneration(), old); {
		case at < 0:
			ops = append(ops, op{"add", "/status/conditions/-", value})
		case !same(old, value):
			path := fmt.Sprintf("/status/conditions/%d", at)
			ops = append(ops, op{"test", path + "/type", want.kind}, op{"replace", path, value})
		}
	}
	return ops
}

func find(list []any, kind string) (int, map[string]any) {
	for i, entry := range list {
		if c, ok := entry.(map[string]any); ok && c["type"] == kind {
			return i, c
		}
	}
	return -1, nil
}

// wire is the condition as it is stored. The time of the last transition stays
// while the status does.
func (c condition) wire(generation int64, old map[string]any) map[string]any {
	since := any(time.Now().UTC().Format(time.RFC3339))
	if old["status"] == c.status && old["lastTransitionTime"] != nil {
		since = old["lastTransitionTime"]
	}
	return map[string]any{"type": c.kind, "status": c.status, "reason": c.reason, "message": c.message,
		"observedGeneration": generation, "lastTransitionTime": since}
}

func same(a, b map[string]any) bool {
	for _, key := range []string{"status", "reason", "message", "observedGeneration"} {
		if a[key] != b[key] {
			return false
		}
	}
	return true
}
