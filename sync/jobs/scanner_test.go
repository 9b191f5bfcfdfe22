package jobs

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

// stopped is a clock of the server.
type stopped int64

func (c stopped) Now() (time.Time, time.Duration, bool) { return time.UnixMilli(int64(c)), 0, true }
func (c stopped) Millis(time.Duration) (int64, error)   { return int64(c), nil }

type jobOption = func(u *unstructured.Unstructured)

func with(annotation, value string) jobOption {
	return func(u *unstructured.Unstructured) { api.SetAnnotation(u, annotation, value) }
}

// waitingJob is a job that was made so many seconds after the epoch.
func waitingJob(name, repository string, created int64, o ...jobOption) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": "ns", "name": name, "uid": "uid-" + name,
			"creationTimestamp": time.Unix(created, 0).UTC().Format(time.RFC3339)},
		"spec": map[string]any{"action": "pull", "repository": repository},
	}}
	for _, change := range o {
		change(u)
	}
	return u
}

// TestScanPicksFairly: the first of each repository come first, the best and the oldest before
// others, and none that this agent cannot run now.
func TestScanPicksFairly(t *testing.T) {
	t.Parallel()
	crowd, repos := newCache(), newCache()
	for _, u := range []*unstructured.Unstructured{
		waitingJob("a3", "a", 3), waitingJob("a1", "a", 1), waitingJob("a2", "a", 2), waitingJob("b5", "b", 5),
		waitingJob("a9", "a", 9, with(api.AnnoPriority, "9")), waitingJob("c0", "c", 0, with(api.AnnoNotBefore, "1000001")),
		waitingJob("b6", "b", 6, with(api.AnnoNotBefore, "1000000")),
		waitingJob("d0", "d", 0, func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, "migrate", "spec", "action")
		}),
	} {
		crowd.objects[keyOf(u)] = u
	}
	o := Options{Agent: "agent"}
	c := newController(&env{o: o.withDefaults(), clock: clock{server: stopped(1_000_000)}}, &crowd, &repos)
	c.admission.workers["pull"] = quick()
	var names []string
	for _, x := range c.scanner.pick(crowd.Objects()) {
		names = append(names, x.Key.Name)
	}
	if got := fmt.Sprint(names); got != "[a9 b5 a1 b6 a2 a3]" {
		t.Fatal(got)
	}
}

func labelled(site string) func(u *unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"site": site}) }
}

// TestSelectorIsEvaluatedAgain: what the labels of a repository say holds at the next claim, both
// ways, without a restart, at once; a running job goes on.
func TestSelectorIsEvaluatedAgain(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1", labelled("south"))
		north, south := work(10*time.Second), work(10*time.Second)
		r.startOn(r.open("a.db"), "a", Options{Selector: selector("site=north"), Drivers: 1}, north)
		b := r.startOn(r.open("b.db"), "b", Options{Selector: selector("site=south"), Drivers: 1}, south)
		settle()
		r.job("r1", "first")
		r.job("r1", "second")
		pass(5 * time.Second)
		if len(south.seen()) != 1 || len(north.seen()) != 0 {
			t.Fatalf("north ran %q, south %q", north.seen(), south.seen())
		}
		r.model.edit("repositories", "default", "r1", labelled("north"))
		pass(6 * time.Second) // the first has ended, the second belongs to the other agent
		if len(south.seen()) != 1 || len(north.seen()) != 1 || b.count(EventCompleted) != 1 {
			t.Fatalf("north ran %q, south %q", north.seen(), south.seen())
		}
		pass(10 * time.Second)
		r.model.edit("repositories", "default", "r1", func(u *unstructured.Unstructured) { u.SetLabels(nil) })
		pass(time.Second)
		r.job("r1", "third")
		pass(time.Minute)
		if len(south.seen()) != 1 || len(north.seen()) != 1 {
			t.Fatalf("a repository that no agent selects: north ran %q, south %q", north.seen(), south.seen())
		}
		r.model.edit("repositories", "default", "r1", labelled("south"))
		pass(time.Second)
		if len(south.seen()) != 2 {
			t.Fatalf("not taken within a second of the label: %q", south.seen())
		}
		pass(10 * time.Second)
	})
}

// TestRepositoryIsCreatedLater than its job: the job is taken when it comes.
func TestRepositoryIsCreatedLater(t *testing.T) {
	for _, after := range []time.Duration{time.Second, 20 * time.Second} {
		t.Run(fmt.Sprint("after ", after), func(t *testing.T) {
			bubble(t, func(r *rig) {
				w := quick()
				a := r.start("a", Options{Selector: selector("site=north")}, w)
				settle()
				r.job("r1", "r1-sync")
				pass(after)
				if len(w.seen()) != 0 || a.count(EventSkipped) != 0 {
					t.Fatalf("runs %q, says %q", w.seen(), a.texts(EventSkipped))
				}
				r.repository("r1", labelled("north"))
				pass(2 * time.Second)
				r.done("success", "")
			})
		})
	}
}

// TestPriorityOfJobsAndRepositories: the annotation of the job, else that of the repository; a
// change counts for jobs that wait; what is no number from 0 to 9 counts as none.
func TestPriorityOfJobsAndRepositories(t *testing.T) {
	bubble(t, func(r *rig) {
		order := []string{}
		w := worker(func(_ context.Context, task *Task) error {
			order = append(order, task.Name)
			<-time.After(time.Second)
			return nil
		})
		r.start("a", Options{Drivers: 1}, w)
		for _, name := range []string{"busy", "plain", "high", "low", "raised", "bad"} {
			r.repository(name)
		}
		r.model.edit("repositories", "default", "low", with(api.AnnoPriority, "1"))
		settle()
		r.job("busy", "busy")
		settle()
		r.job("plain", "plain")
		r.job("low", "low")
		r.job("low", "low-but-urgent", with(api.AnnoPriority, "9"))
		r.job("high", "high", with(api.AnnoPriority, "8"))
		r.job("raised", "raised", with(api.AnnoPriority, "0"))
		r.job("bad", "bad", with(api.AnnoPriority, "10"))
		r.model.edit("repositories", "default", "bad", with(api.AnnoPriority, "high"))
		pass(500 * time.Millisecond)
		r.model.edit("jobs", "default", "raised", with(api.AnnoPriority, "7"))
		pass(2 * time.Minute)
		if got, want := fmt.Sprint(order), "[busy low-but-urgent high raised plain bad low]"; got != want {
			t.Errorf("order %s, want %s", got, want)
		}
	})
}

// TestDirectoryIsChanged: a job that waits because of the directory of its repository is tried
// again when that is another.
func TestDirectoryIsChanged(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1", with(api.AnnoSinkDir, "/nowhere"))
		w := quick()
		w.ready = func(t Task) error {
			if dir := api.Annotation(t.Repo, api.AnnoSinkDir); dir != "/srv" {
				return errors.New(dir + " may not be written")
			}
			return nil
		}
		r.start("a", Options{}, w)
		settle()
		r.job("r1", "r1-sync")
		pass(5 * time.Second)
		r.model.edit("repositories", "default", "r1", with(api.AnnoSinkDir, "/srv"))
		pass(2 * time.Second)
		r.done("success", "")
	})
}
