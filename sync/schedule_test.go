package sync

import (
	"context"
	"fmt"
	stdsync "sync"
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

func TestScheduleOnTheEmbeddedAPI(t *testing.T) {
	t.Parallel()
	a, log := newAgent(t, nil)
	start(t, a.jobs.Run, a.repos.Run)
	now := time.Now()
	repository(t, a, "fresh", nil)
	repository(t, a, "due", map[string]any{"observedGeneration": int64(1), "sync": map[string]any{"state": "success", "finished": now.Add(-2 * time.Minute).UnixMilli()}})
	repository(t, a, "early", map[string]any{"observedGeneration": int64(1), "sync": map[string]any{"state": "success", "finished": now.Add(-time.Second).UnixMilli()}})
	table := newTimetable()
	for range 2 { // a pull that waits is not asked for again
		a.scheduleOnce(t.Context(), now, table)
		eventually(t, "the agent sees the jobs", func() bool { return len(a.jobs.List()) == 2 })
	}
	for name, incremental := range map[string]bool{"fresh-sync": false, "due-sync": true} {
		u, ok := a.jobs.Get("default", name)
		if !ok {
			t.Errorf("no job %s", name)
			continue
		}
		job, err := api.JobView(u)
		if err != nil || job.Spec.Action != "pull" || job.Spec.Pull == nil || job.Spec.Pull.Incremental != incremental {
			t.Errorf("%s: %+v %v", name, job.Spec, err)
		}
	}
	events, _ := a.board.recent(now)
	if len(events) != 2 || len(table.refused) != 0 || log.count("cannot ask") != 0 {
		t.Errorf("events %+v, refused %v", events, table.refused)
	}
}

// TestScheduleLetsARefusalRest: what cannot be queued is not asked for, and not
// complained about, every second.
func TestScheduleLetsARefusalRest(t *testing.T) {
	t.Parallel()
	a, log := newAgent(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var g stdsync.WaitGroup
	g.Go(func() { _ = a.jobs.Run(ctx) })
	g.Go(func() { _ = a.repos.Run(ctx) })
	repository(t, a, "gone", nil)
	cancel()
	g.Wait()
	// The cache still has it, the API no longer.
	if err := a.client.Resource(api.Repositories).Namespace("default").Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	now, table := time.Now(), newTimetable()
	for i := range 3 {
		a.scheduleOnce(t.Context(), now.Add(time.Duration(i)*time.Second), table)
	}
	if n := log.count("cannot ask for a pull"); n != 1 {
		t.Errorf("%d complaints in three seconds, want 1", n)
	}
	a.scheduleOnce(t.Context(), now.Add(a.cfg.Resync), table)
	if n := log.count("cannot ask for a pull"); n != 2 {
		t.Errorf("%d complaints after the resync interval, want 2", n)
	}
}

// TestScheduleForgetsWhatIsGone: what it remembers does not outgrow the repositories.
func TestScheduleForgetsWhatIsGone(t *testing.T) {
	t.Parallel()
	a, _ := newAgent(t, nil)
	start(t, a.jobs.Run, a.repos.Run)
	table := newTimetable()
	repository(t, a, "stays", nil)
	res := a.client.Resource(api.Repositories).Namespace("default")
	for i := range 5 {
		name := fmt.Sprint("gone-", i)
		repository(t, a, name, nil)
		table.refused[types.UID(fmt.Sprint(i))] = time.Now()
		a.scheduleOnce(t.Context(), time.Now(), table)
		if err := res.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the agent sees that it is gone", func() bool { return len(a.repos.Sights()) == 1 })
	}
	a.scheduleOnce(t.Context(), time.Now(), table)
	if len(table.refused) != 0 || len(table.looked) != 1 || len(table.whole) != 1 {
		t.Errorf("refused %v, looked %v, whole %v", table.refused, table.looked, table.whole)
	}
}

// TestWhatWakesTheSchedule: a new repository and a changed spec do, a status
// does not.
func TestWhatWakesTheSchedule(t *testing.T) {
	t.Parallel()
	a, _ := newAgent(t, nil)
	a.listen()
	start(t, a.jobs.Run, a.repos.Run)
	woken := func() bool {
		select {
		case <-a.wanted:
			return true
		default:
			return false
		}
	}
	repository(t, a, "r", nil)
	eventually(t, "a new repository wakes it", woken)
	res := a.client.Resource(api.Repositories).Namespace("default")
	u, err := res.Get(t.Context(), "r", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	u.Object["status"] = map[string]any{"observedGeneration": int64(1)}
	if u, err = res.UpdateStatus(t.Context(), u, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the status is seen", func() bool {
		seen, _ := a.repos.Get("default", "r")
		return seen.GetResourceVersion() == u.GetResourceVersion()
	})
	if woken() {
		t.Error("a status woke it")
	}
	u.Object["spec"].(map[string]any)["title"] = "other"
	if _, err = res.Update(t.Context(), u, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a changed spec wakes it", woken)
}

// TestScheduleAfterALoss: what was pulled before the state file was rebuilt is
// pulled whole, once.
func TestScheduleAfterALoss(t *testing.T) {
	t.Parallel()
	a, _ := newAgent(t, nil)
	start(t, a.jobs.Run, a.repos.Run)
	now := time.Now()
	repository(t, a, "site", map[string]any{"observedGeneration": int64(1), "sync": map[string]any{"state": "success", "finished": now.Add(-time.Second).UnixMilli()}})
	table, queue := newTimetable(), a.client.Resource(api.Jobs).Namespace("default")
	a.scheduleOnce(t.Context(), now, table)
	if _, err := queue.Get(t.Context(), "site-sync", metav1.GetOptions{}); err == nil {
		t.Error("a pull is asked for although nothing was lost")
	}
	table.made = now
	a.scheduleOnce(t.Context(), now, table)
	job, err := queue.Get(t.Context(), "site-sync", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if view, err := api.JobView(job); err != nil || view.Spec.Pull.Incremental {
		t.Errorf("pulled by %+v %v", view.Spec, err)
	}
	if err := queue.Delete(t.Context(), "site-sync", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	a.scheduleOnce(t.Context(), now, table)
	if _, err := queue.Get(t.Context(), "site-sync", metav1.GetOptions{}); err == nil {
		t.Error("pulled twice")
	}
}
