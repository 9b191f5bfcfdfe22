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

func TestShutdown(t *testing.T) {
	cases := []struct {
		name  string
		w     *script
		fault func(r *rig, a *agent)
		// within is how long the stop may take.
		within   time.Duration
		released bool
		kept     bool // the claim stays in the state file
	}{
		{name: "nothing runs", within: 0},
		{name: "worker heeds its context", w: work(time.Hour), within: time.Second, released: true},
		{name: "worker finishes its work first", w: worker(func(ctx context.Context, _ *Task) error {
			<-ctx.Done()
			<-time.After(10 * time.Second)
			return nil
		}), within: 11 * time.Second},
		{name: "worker fails while stopping", w: worker(func(ctx context.Context, _ *Task) error {
			<-ctx.Done()
			return errors.New("operation was canceled")
		}), within: time.Second, released: true},
		{name: "worker does not heed its context", w: worker(func(context.Context, *Task) error {
			<-time.After(5 * time.Minute)
			return nil
		}), within: 21 * time.Second, released: true},
		{name: "somebody writes the job before each write", w: work(time.Hour), fault: func(r *rig, _ *agent) {
			n := 0
			r.model.inject(func(c call) fault {
				if c.Verb == "update" && n < 4 {
					n++
					r.model.edit("jobs", "default", c.Name, func(u *unstructured.Unstructured) { api.SetAnnotation(u, "noise", fmt.Sprint(n)) })
				}
				return fault{}
			})
		}, within: time.Second, released: true},
		{name: "the API is away", w: work(time.Hour), fault: func(_ *rig, a *agent) { a.link.cut(true) }, within: 11 * time.Second, kept: true},
		{name: "the API does not answer", w: work(time.Hour), fault: func(r *rig, _ *agent) {
			r.model.inject(func(call) fault { return fault{delay: time.Hour} })
		}, within: 41 * time.Second, kept: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				w := c.w
				if w == nil {
					w = quick()
				}
				r.repository("r1")
				a := r.start("a", Options{}, w)
				if c.w != nil {
					r.job("r1", "r1-sync")
				}
				pass(5 * time.Second)
				if c.fault != nil {
					c.fault(r, a)
				}
				begin := time.Now()
				a.stop()
				if took := time.Since(begin); took > c.within {
					t.Errorf("the stop took %s", took)
				}
				settle()
				r.model.inject(nil)
				job := r.model.get("jobs", "default", "r1-sync")
				switch {
				case c.released:
					status, _, _ := unstructured.NestedString(job.Object, "status", "state")
					if claimed(job) || status != api.StatePending || len(r.claims()) != 0 || attemptsOf(job) != 0 || a.count(EventReleased) != 1 {
						t.Errorf("not given back: %v, claims %v", job.Object, r.claims())
					}
				case c.kept:
					if !claimed(job) || len(r.claims()) != 1 {
						t.Errorf("job %v, claims %v", job.Object, r.claims())
					}
				default:
					if job != nil || len(r.claims()) != 0 {
						t.Errorf("job %v, claims %v", job, r.claims())
					}
				}
				if c.released || c.kept {
					token := ""
					if c.kept {
						token = r.claims()[0].Token
					}
					next := quick()
					r.start("a2", Options{}, next)
					pass(time.Minute)
					if rec := r.done("success", ""); rec.Attempts[0].N != 1 {
						t.Errorf("a stop counts as an attempt: %+v", rec.Attempts)
					}
					if len(next.seen()) != 1 {
						t.Errorf("runs of the next agent %q", next.seen())
					}
					if c.kept && r.model.writes(func(e entry) bool {
						return e.Agent == "a2" && e.now != nil && e.Resource == "jobs" && e.now.GetLabels()[api.LabelClaimOwner] != token
					}) != 0 {
						t.Error("the claim was not resumed under its token")
					}
				}
				pass(10 * time.Minute) // lets the stubborn worker go
			})
		})
	}
}

// TestReleasedJobRests: a job that was given back is not taken again for one
// interval, neither by who gave it back nor by an agent that watched.
func TestReleasedJobRests(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		a := r.start("a", Options{}, work(time.Hour))
		r.job("r1", "r1-sync")
		settle()
		w := quick()
		r.startOn(r.open("other.db"), "b", Options{}, w)
		settle()
		a.stop()
		pass(29 * time.Second)
		if len(w.seen()) != 0 {
			t.Error("taken within the interval")
		}
		pass(2 * time.Second)
		if len(w.seen()) != 1 {
			t.Error("not taken after the interval")
		}
	})
}
