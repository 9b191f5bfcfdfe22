package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/jobs/lease"
)

func isRenewal(e entry) bool { return e.Resource == "jobs" && e.Verb == "update" && e.Lease }

func TestLeaseIsRenewed(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		a := r.start("a", Options{}, work(95*time.Second))
		r.job("r1", "r1-sync")
		last := int64(0)
		for range 9 {
			pass(10 * time.Second)
			ms, err := strconv.ParseInt(r.model.get("jobs", "default", "r1-sync").GetLabels()[api.LabelClaim], 10, 64)
			if err != nil || ms < last {
				t.Fatalf("claim time %d after %d, %v", ms, last, err)
			}
			if age := r.model.now().Sub(time.UnixMilli(ms)); age > 11*time.Second {
				t.Errorf("a held claim is %s old", age)
			}
			last = ms
		}
		if live := a.Snapshot().Running; len(live) != 1 || !live[0].LeaseUntil.After(time.Now().Add(49*time.Second)) || live[0].RenewAt.Before(time.Now()) {
			t.Errorf("live %+v", live)
		}
		pass(10 * time.Second)
		r.done("success", "")
		if got := a.count(EventRenewed); got != 9 {
			t.Errorf("%d renewals", got)
		}
	})
}

// TestLeaseOutlastsFaults: none of these takes the job away or runs it twice.
func TestLeaseOutlastsFaults(t *testing.T) {
	cases := map[string]func(r *rig, c call) fault{
		"every request takes 5 s":      func(*rig, call) fault { return fault{delay: 5 * time.Second} },
		"every second request fails":   alternate(fault{status: 500}),
		"every second request is lost": alternate(fault{lose: true}),
		"every second answer is lost":  alternate(fault{loseAnswer: true}),
		"busy, come back in 8 s":       alternate(fault{status: 429, after: 8}),
		"somebody writes the job before each of our writes": func(r *rig, c call) fault {
			if c.Resource == "jobs" && c.Verb == "update" && c.body.GetLabels()[api.LabelClaimOwner] != "" && time.Now().UnixMilli()%3 != 0 {
				if r.model.get("jobs", "default", c.Name) != nil {
					r.model.edit("jobs", "default", c.Name, func(u *unstructured.Unstructured) { api.SetAnnotation(u, "noise", fmt.Sprint(u.GetResourceVersion())) })
				}
			}
			return fault{}
		},
	}
	for name, fn := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				w := worker(func(ctx context.Context, task *Task) error {
					for i := range 200 {
						task.Progress.SetMessage(ctx, fmt.Sprint("step ", i))
						select {
						case <-time.After(777 * time.Millisecond):
						case <-ctx.Done():
							return context.Cause(ctx)
						}
					}
					return nil
				})
				r.start("a", Options{}, w)
				r.startOn(r.open("other.db"), "b", Options{Cleanup: CleanupRequeue}, w)
				settle()
				r.model.inject(func(c call) fault { return fn(r, c) })
				r.job("r1", "r1-sync")
				pass(150 * time.Second)
				r.model.inject(nil)
				pass(4 * time.Minute)
				if got := w.seen(); len(got) != 1 {
					t.Errorf("runs %q", got)
				}
				if n := len(r.model.all("historicjobs")); n != 1 || len(r.model.all("jobs")) != 0 {
					t.Errorf("%d HistoricJobs", n)
				}
			})
		})
	}
}

func alternate(f fault) func(*rig, call) fault {
	n := 0
	return func(_ *rig, c call) fault {
		if c.Verb == "watch" || c.Agent != "a" {
			return fault{}
		}
		if n++; n%2 == 0 {
			return f
		}
		return fault{}
	}
}

// TestLeaseIsLost: what ends a lease, when the worker hears of it, and that
// nothing is written about the job afterwards.
func TestLeaseIsLost(t *testing.T) {
	noRenewals := func(c call) fault {
		if c.Verb == "update" && c.Lease {
			return fault{delay: time.Hour}
		}
		return fault{}
	}
	cases := []struct {
		name  string
		lose  func(r *rig, a *agent) // after 25 s, the last renewal was at 20 s
		cause error
		by    time.Duration // counted from lose
		after string        // how the job ends in the end: "again" by us from the mark, "theirs", "gone"
	}{
		{"the API is away", func(_ *rig, a *agent) { a.link.cut(true) }, ErrLost, 35 * time.Second, "again"},
		{"renewals alone stall", func(r *rig, _ *agent) { r.model.inject(noRenewals) }, ErrLost, 35 * time.Second, "again"},
		{"another owner", func(r *rig, _ *agent) {
			r.model.edit("jobs", "default", "r1-sync", claimOf("stranger", r.model.now()))
		}, ErrLost, 5 * time.Second, "theirs"},
		{"the claim was removed", func(r *rig, _ *agent) { r.model.edit("jobs", "default", "r1-sync", stripClaim) }, ErrLost, 5 * time.Second, "anew"},
		{"deleted", func(r *rig, _ *agent) { r.model.remove("jobs", "default", "r1-sync") }, ErrCancelled, 0, "gone"},
		{"deleted and the name used again", func(r *rig, _ *agent) {
			r.model.remove("jobs", "default", "r1-sync")
			r.job("r1", "r1-sync", claimOf("stranger", r.model.now()))
		}, ErrCancelled, 0, "theirs"},
		{"cancelled by annotation", func(r *rig, _ *agent) {
			r.model.edit("jobs", "default", "r1-sync", func(u *unstructured.Unstructured) { api.SetAnnotation(u, api.AnnoCancel, "enough") })
		}, ErrCancelled, 0, "cancelled"},
		{"cancelled by call", func(_ *rig, a *agent) {
			if err := a.Cancel(context.Background(), "default", "r1-sync"); err != nil {
				a.rig.t.Error(err)
			}
		}, ErrCancelled, 0, "cancelled"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				var cause error
				var ended time.Time
				runs := 0
				w := worker(func(ctx context.Context, task *Task) error {
					if runs++; runs > 1 {
						return nil
					}
					if err := task.Progress.Mark(ctx, "half"); err != nil {
						return err
					}
					<-ctx.Done()
					cause, ended = context.Cause(ctx), time.Now()
					if errors.Is(cause, ErrLost) {
						if err := task.Progress.Mark(ctx, "late"); !errors.Is(err, ErrLost) {
							t.Errorf("a mark after the loss: %v", err)
						}
					}
					task.Progress.SetMessage(ctx, "late")
					return cause
				})
				a := r.start("a", Options{Cleanup: CleanupOff}, w)
				r.job("r1", "r1-sync")
				pass(25 * time.Second)
				lost := time.Now()
				c.lose(r, a)
				pass(c.by)
				if !errors.Is(cause, c.cause) {
					t.Fatalf("after %s the worker was told %v, want %v", c.by, cause, c.cause)
				}
				if late := ended.Sub(lost); late > c.by {
					t.Errorf("told after %s", late)
				}
				pass(time.Second)
				mine := func(e entry) bool { return e.Agent == "a" && e.at.After(lost.Add(c.by)) }
				if n := r.model.writes(mine); n != 0 && c.after != "cancelled" {
					t.Errorf("%d writes after the loss", n)
				}
				a.link.cut(false)
				r.model.inject(nil)
				pass(2 * time.Minute)
				switch c.after {
				case "again":
					r.done("success", "")
					if got := fmt.Sprint(w.seen()); got != `[r1-sync 1  r1-sync 1 "half"]` {
						t.Errorf("runs %s", got)
					}
				case "anew":
					r.done("success", "")
					if got := fmt.Sprint(w.seen()); got != `[r1-sync 1  r1-sync 1 ]` {
						t.Errorf("runs %s", got)
					}
				case "theirs":
					if n := r.model.writes(mine); n != 0 {
						t.Errorf("%d writes to a job of somebody else", n)
					}
					if got := r.model.get("jobs", "default", "r1-sync").GetLabels()[api.LabelClaimOwner]; got != "stranger" || len(w.seen()) != 1 || len(r.claims()) != 0 {
						t.Errorf("owner %q, runs %q, claims %v", got, w.seen(), r.claims())
					}
				case "gone":
					rec := r.only()
					if rec.State != stateCancelled || rec.HistoricJob != archiveSkipped || len(r.model.all("historicjobs")) != 0 || len(r.claims()) != 0 {
						t.Errorf("record %+v", rec)
					}
				case "cancelled":
					r.done(stateCancelled, "cancelled")
					status, _, _ := unstructured.NestedString(r.model.all("historicjobs")[0].Object, "status", "state")
					if status != api.StateError {
						t.Errorf("on the wire it is %q", status)
					}
				}
				if c.cause == ErrLost && a.count(EventLost) != 1 {
					t.Errorf("lost is told %d times", a.count(EventLost))
				}
			})
		})
	}
}

// TestLeaseIsLostAgainAndAgain: a long job outlives many losses of its lease, and
// none of them has to wait for longer because of those before: in the end another
// agent would take the job, and count an attempt.
func TestLeaseIsLostAgainAndAgain(t *testing.T) {
	jump := func(r *rig) func() {
		r.model.set(func() { r.model.skew += time.Hour })
		return func() {}
	}
	stall := func(r *rig) func() {
		r.model.inject(func(c call) fault {
			if c.Verb == "update" && c.Lease {
				return fault{delay: time.Hour}
			}
			return fault{}
		})
		return func() { r.model.inject(nil) }
	}
	for name, lose := range map[string]func(*rig) (mend func()){"the clock of the server jumps": jump, "renewals stall": stall} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				w := work(time.Hour)
				a := r.start("a", Options{}, w)
				r.job("r1", "r1-sync")
				pass(5 * time.Second)
				for n := 1; n <= 10; n++ {
					mend := lose(r)
					for a.count(EventLost) < n {
						pass(10 * time.Millisecond)
					}
					lost := time.Now()
					mend()
					for a.count(EventResumed) < n && time.Since(lost) < time.Minute {
						pass(10 * time.Millisecond)
					}
					if took := time.Since(lost); took > time.Second {
						t.Errorf("loss %d: taken up again after %s", n, took)
					}
					pass(15 * time.Second)
				}
				if got := len(w.seen()); got != 11 {
					t.Errorf("%d runs", got)
				}
			})
		})
	}
}

// TestCancelForOthers: the wish is written into the job, its owner obeys.
func TestCancelForOthers(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		r.start("a", Options{}, work(time.Hour))
		r.job("r1", "r1-sync")
		settle()
		b := r.startOn(r.open("other.db"), "b", Options{Selector: selector("nobody=1")}, quick())
		settle()
		if err := b.Cancel(context.Background(), "default", "r1-sync"); err != nil {
			t.Fatal(err)
		}
		settle()
		if m := r.done(stateCancelled, "").Message; m != "cancelled: a person asked for it" {
			t.Errorf("message %q", m)
		}
		if err := b.Cancel(context.Background(), "default", "r1-sync"); err == nil {
			t.Error("a job that does not exist was cancelled")
		}
	})
}

// TestWakeFromSleep: the host was suspended for longer than the lease lasts, of
// which the monotonic clock knows nothing. The first write is a look.
func TestWakeFromSleep(t *testing.T) {
	for _, stolen := range []bool{false, true} {
		t.Run(fmt.Sprint("stolen ", stolen), func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				wake := make(chan struct{})
				a := r.start("a", Options{}, worker(func(ctx context.Context, task *Task) error {
					<-wake
					task.Progress.SetMessage(ctx, "awake")
					<-time.After(time.Second)
					return context.Cause(ctx)
				}))
				r.job("r1", "r1-sync")
				pass(5 * time.Second)
				h := a.env.claims.get(string(r.model.get("jobs", "default", "r1-sync").GetUID()))
				h.sleep()
				if stolen {
					r.model.set(func() { clear(r.model.watchers) })
					r.model.edit("jobs", "default", "r1-sync", claimOf("stranger", r.model.now()))
				}
				close(wake)
				settle()
				if n := r.model.writes(isRenewal); (n == 1) == stolen {
					t.Errorf("%d looks before the first write", n)
				}
				pass(2 * time.Second)
				if stolen {
					if len(r.claims()) != 0 || len(r.history()) != 0 || a.count(EventLost) != 1 {
						t.Errorf("claims %v, history %v", r.claims(), r.history())
					}
					return
				}
				r.done("success", "")
			})
		})
	}
}

// TestLateRenewalIsNoPermission: the host fell asleep while it waited for the answer
// to a renewal. That answer is about a lease that has ended when it is read, so the
// write that waited for it is not sent.
func TestLateRenewalIsNoPermission(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		wake := make(chan struct{})
		a := r.start("a", Options{}, worker(func(ctx context.Context, task *Task) error {
			<-wake
			task.Progress.SetMessage(ctx, "awake")
			<-ctx.Done()
			return context.Cause(ctx)
		}))
		r.job("r1", "r1-sync")
		pass(5 * time.Second)
		h := a.env.claims.get(string(r.model.get("jobs", "default", "r1-sync").GetUID()))
		h.sleep() // so that the write looks first
		var renewed time.Time
		r.model.inject(func(c call) fault {
			switch {
			case c.Lease && renewed.IsZero():
				renewed = time.Now()
				h.mu.Lock()
				h.watchdog.Stop() // as every timer of a host that sleeps
				h.mu.Unlock()
				return fault{lateAnswer: 50 * time.Second}
			case c.Verb == "update" && c.Resource == "jobs" && !c.Lease && time.Since(renewed) > DefaultExpiry*2/3 && c.Name == "r1-sync":
				t.Errorf("a write %s after the last renewal was sent", time.Since(renewed))
			}
			return fault{}
		})
		close(wake)
		pass(50 * time.Second)
		r.model.inject(nil)
		if renewed.IsZero() || a.count(EventLost)+a.count(EventWaiting) == 0 {
			t.Errorf("renewed at %s, told %q", renewed, a.texts(EventWaiting))
		}
		pass(time.Minute)
	})
}

// TestWakeAfterTheEnd: the host was suspended for longer than the lease lasts, and
// the first that it hears is that the job is gone. Another agent may have done it,
// so this one does not call it deleted.
func TestWakeAfterTheEnd(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		a := r.start("a", Options{}, worker(func(ctx context.Context, _ *Task) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}))
		r.job("r1", "r1-sync")
		pass(5 * time.Second)
		h := a.env.claims.get(string(r.model.get("jobs", "default", "r1-sync").GetUID()))
		h.sleep()
		r.model.remove("jobs", "default", "r1-sync")
		pass(time.Second)
		if len(r.claims()) != 0 || len(r.history()) != 0 || a.count(EventLost) != 1 || a.count(EventCancelled) != 0 {
			t.Errorf("claims %v, history %+v, told %q", r.claims(), r.history(), a.texts(EventLost))
		}
	})
}

// sleep makes the wall clock say that the host was suspended for an hour.
func (h *heldJob) sleep() {
	h.change(func() {
		terms := h.lease.Terms
		confirmed := h.lease.Deadline().Add(-terms.GiveUp())
		h.lease = lease.New(terms, lease.Moment{Time: confirmed, Wall: confirmed.Round(0).Add(-time.Hour)})
	})
}
