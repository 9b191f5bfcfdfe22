package repos

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

// TestConditions: those of others stay, the time of the last transition stays while
// the status does, and what is said already is not said again.
func TestConditions(t *testing.T) {
	t.Parallel()
	const before, now = "2026-01-01T00:00:00Z", "2026-11-20T12:00:00Z"
	foreign := map[string]any{"type": "Other", "status": "True"}
	stored := map[string]any{"type": "Ready", "status": "True", "reason": "Available", "message": "Resource is available", "observedGeneration": int64(2), "lastTransitionTime": before}
	for _, c := range []struct {
		name       string
		generation int64
		want       api.Condition
		writes     bool
		since      string // "" = it is gone
	}{
		{"the same", 2, api.Condition{Type: "Ready", Status: "True", Reason: "Available", Message: "Resource is available"}, false, before},
		{"of another generation", 3, api.Condition{Type: "Ready", Status: "True", Reason: "Available", Message: "Resource is available"}, true, before},
		{"in other words", 2, api.Condition{Type: "Ready", Status: "True", Reason: "Available", Message: "x"}, true, before},
		{"another status", 2, api.Condition{Type: "Ready", Status: "False", Reason: "InvalidSpec", Message: "x"}, true, now},
		{"none", 2, api.Condition{Type: "Ready"}, true, ""},
		{"none of what there is none", 2, api.Condition{Type: "limpet/Webhook"}, false, before},
	} {
		obj := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{foreign, stored}}}}
		obj.SetGeneration(c.generation)
		w := &change{obj: obj, now: at}
		w.conditions(c.want)
		if (len(w.ops) > 0) != c.writes {
			t.Errorf("%s: %+v", c.name, w.ops)
			continue
		}
		if !c.writes {
			continue
		}
		list := w.ops[0].Value.([]any)
		if _, other := api.FindCondition(list, "Other"); len(w.ops) != 1 || other == nil {
			t.Errorf("%s: %+v", c.name, w.ops)
		}
		switch _, got := api.FindCondition(list, "Ready"); {
		case c.since == "" && got != nil:
			t.Errorf("%s: %v", c.name, got)
		case c.since != "" && (got["lastTransitionTime"] != c.since || got["observedGeneration"] != c.generation):
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
