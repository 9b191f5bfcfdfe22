package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

// isProgress says that a write of an agent is about progress: the job was held
// before and is held after it.
func isProgress(e entry) bool {
	return e.Agent != "person" && e.Resource == "jobs" && e.Verb == "update" && !e.Lease &&
		e.before.GetLabels()[api.LabelClaimOwner] != "" && e.now.GetLabels()[api.LabelClaimOwner] != ""
}

// paused is a worker that says or records something every step.
func paused(steps int, step time.Duration, do func(ctx context.Context, p *Progress, i int)) *script {
	return worker(func(ctx context.Context, t *Task) error {
		for i := range steps {
			do(ctx, t.Progress, i)
			select {
			case <-time.After(step):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
}

func TestProgressIsThrottled(t *testing.T) {
	message := func(ctx context.Context, p *Progress, i int) { p.SetMessage(ctx, fmt.Sprint("step ", i)) }
	record := func(ctx context.Context, p *Progress, i int) { p.Record(ctx, dashboard(Created, nil, nil)) }
	cases := []struct {
		name  string
		w     *script
		after time.Duration
		want  int // progress writes so far
		last  string
	}{
		{"one message in the first half second", paused(1, time.Minute, message), 499 * time.Millisecond, 0, "job started"},
		{"one message after it", paused(1, time.Minute, message), 501 * time.Millisecond, 1, "step 0"},
		{"a hundred messages in ten seconds", paused(1000, 100*time.Millisecond, message), 10*time.Second + 50*time.Millisecond, 20, ""},
		{"the last of a burst arrives", worker(func(ctx context.Context, t *Task) error {
			for i := range 50 {
				message(ctx, t.Progress, i)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}), time.Second, 1, "step 49"},
		{"records every five seconds", paused(10000, 10*time.Millisecond, record), 21 * time.Second, 4, ""},
		{"nothing to say", paused(1, time.Minute, func(context.Context, *Progress, int) {}), 30 * time.Second, 0, "job started"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				r.start("a", Options{}, c.w)
				settle()
				r.job("r1", "r1-sync")
				pass(c.after)
				if got := r.model.writes(isProgress); got != c.want {
					t.Errorf("%d progress writes after %s, want %d", got, c.after, c.want)
				}
				job := r.model.get("jobs", "default", "r1-sync")
				view, err := api.JobView(job)
				if err != nil {
					t.Fatal(err)
				}
				if c.last != "" && view.Status.Message != c.last {
					t.Errorf("message %q, want %q", view.Status.Message, c.last)
				}
				if want := int64(c.want) + 1; view.Status.ProgressUpdates != want || view.Status.State != "working" || view.Status.Started == 0 {
					t.Errorf("status %+v, want %d updates", view.Status, want)
				}
				if c.name == "records every five seconds" && view.Status.Summary[0].Create < 1900 {
					t.Errorf("the write carries %+v", view.Status.Summary)
				}
			})
		})
	}
}

// TestProgressOfAnotherJobIsLeftAlone: Grafana's driver adopts whatever has the
// name after a conflict.
func TestProgressOfAnotherJobIsLeftAlone(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		// The watch is silent, so the agent hears of it by the conflict alone.
		started := make(chan struct{})
		w := worker(func(ctx context.Context, task *Task) error {
			<-started
			task.Progress.SetMessage(ctx, "hello")
			<-ctx.Done()
			return context.Cause(ctx)
		})
		a := r.start("a", Options{}, w)
		settle()
		r.job("r1", "r1-sync")
		pass(3 * time.Second)
		r.model.set(func() { clear(r.model.watchers) })
		r.model.remove("jobs", "default", "r1-sync")
		r.job("r1", "r1-sync", claimOf("stranger", r.model.now()))
		before := r.model.get("jobs", "default", "r1-sync")
		close(started)
		settle()
		if a.count(EventLost) != 1 {
			t.Error("the loss was not noticed at once")
		}
		pass(time.Minute)
		if now := r.model.get("jobs", "default", "r1-sync"); !equal(before, now) {
			t.Errorf("the stranger's job was changed: %v", now.Object)
		}
	})
}

func TestProgressSurvivesConflicts(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		r.start("a", Options{}, paused(1, time.Minute, func(ctx context.Context, p *Progress, _ int) { p.SetMessage(ctx, "here") }))
		settle()
		n := 0
		r.model.inject(func(c call) fault {
			if c.Verb == "update" && c.Resource == "jobs" && !c.Lease && c.body.GetResourceVersion() != "" {
				if msg, _, _ := unstructured.NestedString(c.body.Object, "status", "message"); msg == "here" && n < 2 {
					n++
					r.model.edit("jobs", "default", c.Name, func(u *unstructured.Unstructured) { api.SetAnnotation(u, "noise", fmt.Sprint(n)) })
				}
			}
			return fault{}
		})
		r.job("r1", "r1-sync")
		pass(time.Second)
		job := r.model.get("jobs", "default", "r1-sync")
		if msg, _, _ := unstructured.NestedString(job.Object, "status", "message"); msg != "here" || job.GetAnnotations()["noise"] != "2" {
			t.Errorf("after two conflicts: %v", job.Object)
		}
	})
}

func TestLive(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		w := worker(func(ctx context.Context, task *Task) error {
			task.Progress.SetRefs("main", "aaa", "bbb")
			task.Progress.SetTotal(ctx, 4)
			task.Progress.SetMessage(ctx, "halfway")
			task.Progress.Record(ctx, dashboard(Created, nil, nil))
			task.Progress.Record(ctx, dashboard(Created, errors.New("bad"), nil))
			for i := range 500 {
				task.Log.With("part", 1).WithGroup("g").Info("line", "i", i)
			}
			task.Log.Debug("detail")
			<-ctx.Done()
			return context.Cause(ctx)
		})
		a := r.start("a", Options{}, w)
		if len(a.Snapshot().Running) != 0 {
			t.Error("something runs before the start")
		}
		r.job("r1", "r1-sync")
		pass(time.Second)
		live := a.Snapshot().Running
		if len(live) != 1 {
			t.Fatalf("%d jobs live", len(live))
		}
		l := live[0]
		if l.Done != 2 || l.Total != 4 || l.Progress != 50 || l.Branch != "main" || l.RefTo != "bbb" || l.Message != "halfway" ||
			l.ErrorCount != 1 || len(l.Errors) != 1 || len(l.Summary) != 1 || l.Attempt != 1 || l.MaxAttempts != 3 || l.State != "working" {
			t.Errorf("%+v", l)
		}
		if len(l.Lines) != maxLines || l.Lines[maxLines-2].Text != "line part=1 g.i=499" {
			t.Errorf("%d lines, the last %q", len(l.Lines), l.Lines[len(l.Lines)-2:])
		}
		if a.waiting() != 1 || a.Ready() != nil {
			t.Errorf("waiting %d, ready %v", a.waiting(), a.Ready())
		}
		a.stop()
		if len(a.Snapshot().Running) != 0 {
			t.Error("something is live after the stop")
		}
	})
}

// TestLastLookAtAJob: who observes the end of a job gets the whole of it, also
// when nobody has looked while it ran.
func TestLastLookAtAJob(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		a := r.start("a", Options{}, worker(func(ctx context.Context, task *Task) error {
			task.Progress.SetRefs("main", "", "bbb")
			task.Log.Info("a line of the worker")
			return nil
		}))
		r.job("r1", "r1-sync")
		pass(time.Second)
		var last *Running
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, e := range a.events {
			if e.Type == EventCompleted {
				last = e.Last
			} else if e.Last != nil {
				t.Errorf("%s carries a last look", e.Type)
			}
		}
		if last == nil || last.Job.GetName() != "r1-sync" || last.RefTo != "bbb" {
			t.Fatalf("%+v", last)
		}
		var texts []string
		for _, l := range last.Lines {
			texts = append(texts, l.Text)
		}
		if !slices.Contains(texts, "a line of the worker") || texts[0] != "job claimed" {
			t.Errorf("lines %q", texts)
		}
	})
}
