package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

// TestDrain: what runs goes on, what comes waits, and all of it is taken when
// the agent claims again.
func TestDrain(t *testing.T) {
	bubble(t, func(r *rig) {
		w := work(time.Minute)
		a := r.start("a", Options{}, w)
		r.repository("r1")
		r.job("r1", "running")
		pass(time.Second)
		if len(a.Snapshot().Running) != 1 || a.Ready() != nil {
			t.Fatalf("%d running, %v", len(a.Snapshot().Running), a.Ready())
		}
		a.Drain(true)
		a.Drain(true)
		for n := range 9 {
			r.repository(fmt.Sprint("q", n))
			r.job(fmt.Sprint("q", n), fmt.Sprint("waiting", n))
		}
		pass(30 * time.Second)
		if since, busy := a.drain.state(); since.IsZero() || busy != 1 || len(w.seen()) != 1 || a.Ready() == nil || a.Ready().Error() != "draining" {
			t.Errorf("since %s, %d busy, runs %q, ready %v", since, busy, w.seen(), a.Ready())
		}
		if a.count(EventDrain) != 1 {
			t.Errorf("told %q", a.texts(EventDrain))
		}
		pass(10 * time.Minute)
		if _, busy := a.drain.state(); busy != 0 || len(w.seen()) != 1 || len(r.history()) != 1 || a.waiting() < 9 {
			t.Errorf("%d busy, runs %q, %d records, %d waiting", busy, w.seen(), len(r.history()), a.waiting())
		}
		if told := a.texts(EventDrain); len(told) != 2 || told[1] != "drained: nothing of this agent runs any more, after 59s" {
			t.Errorf("told %q", told)
		}
		a.Drain(false)
		pass(10 * time.Minute)
		if since, _ := a.drain.state(); !since.IsZero() || len(r.history()) != 10 || a.Ready() != nil {
			t.Errorf("since %s, %d records, ready %v", since, len(r.history()), a.Ready())
		}
	})
}

// TestStartDrained: the claims of before are settled, nothing else is claimed.
func TestStartDrained(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		r.repository("r2")
		a := r.start("a1", Options{}, work(time.Hour))
		r.job("r1", "mine")
		pass(5 * time.Second)
		a.crash()
		settle()
		r.job("r2", "new")
		w := work(time.Minute)
		b := r.start("a2", Options{Drained: true}, w)
		pass(10 * time.Minute)
		if got := w.seen(); len(got) != 1 || got[0] != "mine 2 " {
			t.Errorf("runs %q", got)
		}
		if _, busy := b.drain.state(); busy != 0 || claimed(r.model.get("jobs", "default", "new")) {
			t.Errorf("%d busy", busy)
		}
		b.stop()
		r.start("a3", Options{}, w) // not kept over a restart
		pass(2 * time.Minute)
		if got := w.seen(); len(got) != 2 {
			t.Errorf("runs %q", got)
		}
	})
}

// TestDrainedCleanup: expired claims of others are made eligible, but not ended,
// because that would be a claim.
func TestDrainedCleanup(t *testing.T) {
	for _, cleanup := range []string{CleanupRequeue, CleanupFail} {
		t.Run(cleanup, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				r.dead("first", time.Hour)
				r.dead("last", time.Hour, attempts(2))
				a := r.start("a", Options{Drained: true, Cleanup: cleanup}, quick())
				pass(20 * time.Minute)
				first, last := r.model.get("jobs", "default", "first"), r.model.get("jobs", "default", "last")
				if last == nil || !claimed(last) || first == nil || claimed(first) != (cleanup == CleanupFail) || len(r.history()) != 0 {
					t.Errorf("first %v, last %v", first, last)
				}
				a.Drain(false)
				pass(20 * time.Minute)
				if left := r.model.all("jobs"); len(left) != 0 || len(r.history()) != 2 {
					t.Errorf("%d jobs left, %d records", len(left), len(r.history()))
				}
			})
		})
	}
}

// TestSetbackWhileDraining: the job is for another agent then, or for later.
func TestSetbackWhileDraining(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		w := worker(func(_ context.Context, task *Task) error {
			<-time.After(10 * time.Second)
			if task.Attempt == 1 {
				return errPassing
			}
			return nil
		})
		a := r.start("a", Options{}, w)
		r.job("r1", "r1-sync")
		pass(5 * time.Second)
		a.Drain(true)
		pass(5 * time.Minute)
		if _, busy := a.drain.state(); busy != 0 || len(w.seen()) != 1 || claimed(r.model.get("jobs", "default", "r1-sync")) {
			t.Errorf("%d busy, runs %q", busy, w.seen())
		}
		b := quick()
		r.startOn(r.open("b.db"), "b", Options{}, b)
		pass(time.Minute)
		if len(b.seen()) != 1 || len(r.model.all("jobs")) != 0 {
			t.Errorf("runs %q", b.seen())
		}
	})
}

// TestRestIsEndedByAPerson: the job is taken at once, by an agent that gave it
// back and by one that only watched.
func TestRestIsEndedByAPerson(t *testing.T) {
	for _, other := range []bool{false, true} {
		t.Run(fmt.Sprint("other ", other), func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				w := worker(func(_ context.Context, task *Task) error {
					if task.Attempt == 1 {
						return &TransientError{Err: errPassing, After: 4 * time.Minute}
					}
					return nil
				})
				a := r.start("a", Options{}, w)
				if other {
					r.startOn(r.open("b.db"), "b", Options{}, w)
				}
				r.job("r1", "r1-sync")
				pass(35 * time.Second)
				if len(w.seen()) != 1 {
					t.Fatalf("runs %q", w.seen())
				}
				if other {
					a.Drain(true)
				}
				r.model.edit("jobs", "default", "r1-sync", func(u *unstructured.Unstructured) { api.SetAnnotation(u, api.AnnoNotBefore, "") })
				pass(time.Second)
				if len(w.seen()) != 2 || len(r.model.all("jobs")) != 0 {
					t.Errorf("runs %q", w.seen())
				}
			})
		})
	}
}

// TestDrainWithAnOpenIntent: a request whose answer is lost, for a job that is
// left alone since, does not keep a draining agent busy.
func TestDrainWithAnOpenIntent(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		w := quick()
		var mu sync.Mutex // guards able
		able := true
		w.ready = func(Task) error {
			mu.Lock()
			defer mu.Unlock()
			if able {
				return nil
			}
			return errors.New("no credentials")
		}
		a := r.start("a", Options{}, w)
		settle()
		r.model.inject(func(c call) fault {
			if c.Resource == "jobs" && c.Verb == "update" {
				mu.Lock()
				defer mu.Unlock()
				able = false
				return fault{lose: true}
			}
			return fault{}
		})
		r.job("r1", "r1-sync")
		pass(20 * time.Second)
		a.Drain(true)
		r.model.inject(nil)
		pass(2 * time.Minute)
		if _, busy := a.drain.state(); busy != 0 || len(w.seen()) != 0 || len(r.claims()) != 0 || claimed(r.model.get("jobs", "default", "r1-sync")) {
			t.Errorf("%d busy, runs %q, claims %+v", busy, w.seen(), r.claims())
		}
		if told := a.texts(EventDrain); len(told) != 2 || !contains(told[1], "drained") {
			t.Errorf("told %q", told)
		}
	})
}
