package sync

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
)

// TestScheduleAfterAChangeOfTheSpec: a changed spec is pulled whole, once, also
// by an agent that did not see the change.
func TestScheduleAfterAChangeOfTheSpec(t *testing.T) {
	t.Parallel()
	a, _ := newAgent(t, nil)
	start(t, a.jobs.Run, a.repos.Run)
	now := time.Now()
	pulled := map[string]any{"sync": map[string]any{"state": "success", "finished": now.Add(-time.Second).UnixMilli()}}
	repository(t, a, "site", pulled)
	res, queue := a.client.Resource(api.Repositories).Namespace("default"), a.client.Resource(api.Jobs).Namespace("default")
	for generation := int64(1); generation <= 2; generation++ {
		table := newTimetable()
		a.scheduleOnce(t.Context(), now, table)
		job, err := queue.Get(t.Context(), "site-sync", metav1.GetOptions{})
		if err != nil {
			t.Fatalf("generation %d is not pulled: %v", generation, err)
		}
		if view, err := api.JobView(job); err != nil || view.Spec.Pull.Incremental {
			t.Errorf("generation %d is pulled by %+v %v", generation, view.Spec, err)
		}
		// The job has ended before the cache knows of anything.
		if err := queue.Delete(t.Context(), "site-sync", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, table := range []*timetable{table, newTimetable()} {
			a.scheduleOnce(t.Context(), now, table)
			if _, err := queue.Get(t.Context(), "site-sync", metav1.GetOptions{}); err == nil {
				t.Errorf("generation %d is pulled twice", generation)
			}
			eventually(t, "the agent sees that the spec was looked at", func() bool {
				u, _ := a.repos.Get("default", "site")
				seen, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
				return seen == generation && len(a.jobs.List()) == 0
			})
		}
		patch := fmt.Appendf(nil, `{"spec":{"git":{"path":"dir-%d"}}}`, generation)
		if _, err := res.Patch(t.Context(), "site", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the agent sees the change", func() bool {
			u, _ := a.repos.Get("default", "site")
			return u.GetGeneration() == generation+1
		})
	}
}
