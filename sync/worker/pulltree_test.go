package worker

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/jobs"
)

func TestClosest(t *testing.T) {
	t.Parallel()
	dirs := []string{"grafana", "grafana/dashboards", "grafana/alerts", "infra/dashboards", "docs"}
	for _, c := range []struct {
		name string
		want []string
	}{
		{"grafana/dashbords", []string{`"grafana/dashboards"`}},
		{"dashboards", []string{`"grafana/dashboards"`, `"infra/dashboards"`}},
		{"Grafana", []string{`"grafana"`}},
		{"doc", []string{`"docs"`}},
		{"something/else", nil},
	} {
		if got := closest(c.name, dirs); !slices.Equal(got, c.want) {
			t.Errorf("closest(%q) = %q, want %q", c.name, got, c.want)
		}
	}
}

// TestConditionOps: an entry of others is never touched, and what is said
// already is not said again.
func TestConditionOps(t *testing.T) {
	t.Parallel()
	if c := syncCondition(syncEnd{outcome: jobs.Outcome{State: api.StateWarning}, leftOut: 2}); c.Status != "False" || c.Reason != "SyncQuotaExceeded" || c.Message != "Resource quota exceeded: 2 creations left out" {
		t.Errorf("%+v", c)
	}
	if c := syncCondition(syncEnd{outcome: jobs.Outcome{State: api.StateWarning}}); c.Status != "True" || c.Reason != "SyncSuccessful" {
		t.Errorf("%+v", c)
	}
	good := syncCondition(syncEnd{outcome: jobs.Outcome{State: api.StateSuccess}})
	bad := syncCondition(syncEnd{outcome: jobs.Outcome{State: api.StateError, Message: "why"}})
	repo := func(conditions ...any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"resourceVersion": "7", "generation": int64(2)}, "status": map[string]any{}}}
		if conditions != nil {
			u.Object["status"].(map[string]any)["conditions"] = conditions
		}
		return u
	}
	ready := map[string]any{"type": "Ready", "status": "True"}
	is := map[string]any{"type": "SyncStatus", "status": "True", "reason": "SyncSuccessful", "message": "Sync completed successfully",
		"observedGeneration": int64(2), "lastTransitionTime": "2026-01-01T00:00:00Z"}
	for _, c := range []struct {
		name string
		repo *unstructured.Unstructured
		want api.Condition
		ops  []string
		time any // of the last transition; nil = now
	}{
		{"no list", repo(), good, []string{"test /metadata/resourceVersion", "add /status/conditions", "add /status/conditions/-"}, nil},
		{"list of others", repo(ready), good, []string{"add /status/conditions/-"}, nil},
		{"the same", repo(ready, is), good, nil, nil},
		{"another status", repo(ready, is), bad, []string{"test /status/conditions/1/type", "replace /status/conditions/1"}, nil},
		{"another reason", repo(is), api.Condition{Type: "SyncStatus", Status: "True", Reason: "Other", Message: ""}, []string{"test /status/conditions/0/type", "replace /status/conditions/0"}, "2026-01-01T00:00:00Z"},
	} {
		var got []string
		for _, o := range conditionOps(time.Now(), c.repo, c.want) {
			got = append(got, o.Op+" "+o.Path)
			value, ok := o.Value.(map[string]any)
			if !ok {
				continue
			}
			since := value["lastTransitionTime"]
			if c.time != nil && since != c.time || c.time == nil && since == "2026-01-01T00:00:00Z" {
				t.Errorf("%s: last transition at %v", c.name, since)
			}
		}
		if !slices.Equal(got, c.ops) {
			t.Errorf("%s: %q, want %q", c.name, got, c.ops)
		}
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	if stats(nil).after(tally(1, 0)) != nil {
		t.Error("unknown numbers have become known")
	}
	s := stats{"dashboards": 2}
	got := s.after(tally(3, 4))
	if got["dashboards"] != 1 || s["dashboards"] != 2 || got.total() != 1 {
		t.Errorf("%v after 3 created and 4 deleted: %v", s, got)
	}
	if wire := (stats{"folders": 0}).wire(); wire == nil || len(wire) != 0 {
		t.Errorf("no objects are written as %v", wire)
	}
}
