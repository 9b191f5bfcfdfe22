package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/resources"
)

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
		if live := a.Snapshot().Running; len(live) != 1 || !live[0].LeaseUntil.After(time.Now().Add(49*time.Second)) ||
			live[0].RenewAt.Before(time.Now()) {
			t.Errorf("live %+v", live)
		}
		pass(10 * time.Second)
		r.done("success", "")
		if got := a.count(EventRenewed); got != 9 {
			t.Errorf("%d renewals", got)
		}
	})
}

// TestLeaseIsLost: what ends a lease, when the worker hears of it, and that nothing is written
// about the job afterwards.
func TestLeaseIsLost(t *testing.T) {
	noRenewals := func(r *rig) func(c call) fault {
		return func(c call) fault {
			if c.Verb == "update" && claimTime(c.body) != claimTime(r.model.get("jobs", "default", c.Name)) {
				return fault{delay: time.Hour}
			}
			return fault{}
		}
	}
	cases := []struct {
		name  string
		lose  func(r *rig, a *agent) // after 25 s, the last renewal was at 20 s
		cause error
		by    time.Duration // counted from lose
		after string        // how the job ends in the end: "again" by us from the mark, "theirs", "gone"
	}{
		{"the API is away", func(_ *rig, a *agent) { a.link.cut(true) }, ErrLost, 35 * time.Second, "again"},
		{"renewals alone stall", func(r *rig, _ *agent) { r.model.inject(noRenewals(r)) }, ErrLost, 35 * time.Second, "again"},
		{"another owner", func(r *rig, _ *agent) {
			r.model.edit("jobs", "default", "r1-sync", claimOf("stranger", r.model.now()))
		}, ErrLost, 5 * time.Second, "theirs"},
		{"the claim was removed", func(r *rig, _ *agent) { r.model.edit("jobs", "default", "r1-sync", stripClaim) }, ErrLost, 5 * time.Second,
			"anew"},
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
						t.Errorf("%d writes to a job of another agent", n)
					}
					if got := r.model.get("jobs", "default", "r1-sync").GetLabels()[api.LabelClaimOwner]; got != "stranger" || len(w.seen()) != 1 ||
						len(r.claims()) != 0 {
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
					a.mu.Lock()
					defer a.mu.Unlock()
					for _, e := range a.events {
						if e.Level == "error" || e.State == stateCancelled && e.Level != "warn" {
							t.Errorf("%s, level %s: %s", e.Type, e.Level, e.Text)
						}
					}
				}
				if c.cause == ErrLost && a.count(EventLost) != 1 {
					t.Errorf("lost is told %d times", a.count(EventLost))
				}
			})
		})
	}
}

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
			<-time.After(time.Second)
			return nil
		}), within: 2 * time.Second},
		{name: "worker fails while stopping", w: worker(func(ctx context.Context, _ *Task) error {
			<-ctx.Done()
			return errors.New("operation was canceled")
		}), within: time.Second, released: true},
		{name: "worker does not heed its context", w: worker(func(context.Context, *Task) error {
			<-time.After(5 * time.Minute)
			return nil
		}), within: 3 * time.Second, released: true},
		{name: "others write the job before each write", w: work(time.Hour), fault: func(r *rig, _ *agent) {
			r.noise(4, func(c call) bool { return c.Verb == "update" })
		}, within: time.Second, released: true},
		{name: "the API is away", w: work(time.Hour), fault: func(_ *rig, a *agent) { a.link.cut(true) }, within: 5 * time.Second, kept: true},
		{name: "the API does not answer", w: work(time.Hour), fault: func(r *rig, _ *agent) {
			r.model.inject(func(call) fault { return fault{delay: time.Hour} })
		}, within: 5 * time.Second, kept: true},
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

// TestCostOfAJob counts what one job costs: a job with nothing to do three requests and four durable
// writes, of which the last is waited for by no agent; a job that reports all the time one request
// a second more; a queue full of jobs of others nothing.
func TestCostOfAJob(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		w := worker(func(ctx context.Context, task *Task) error {
			for i := range 100 {
				if task.Name == "idle" {
					break
				}
				task.Progress.SetMessage(ctx, fmt.Sprint("file ", i))
				task.Progress.Record(ctx, dashboard(resources.Updated, nil, nil))
				<-time.After(100 * time.Millisecond)
			}
			return nil
		})
		a := r.start("a", Options{}, w)
		pass(time.Second)
		var writes atomic.Int64
		a.ledger.failing(func(string) error { writes.Add(1); return nil })
		// Ten seconds: progress every 500 ms is what Grafana's recorder allows, and people see. It is the
		// throttle, not the job, that decides.
		for name, most := range map[string]int{"idle": 3, "busy": 3 + 2*10 + 2} {
			writes.Store(0)
			r.model.set(func() { r.model.calls = nil })
			r.job("r1", name)
			pass(15 * time.Second)
			kinds := map[string]int{}
			total := r.model.arrived(func(c call) bool { kinds[c.Verb+" "+c.Resource]++; return true })
			if total > most || writes.Load() != 4 || kinds["create historicjobs"] != 1 || kinds["delete jobs"] != 1 {
				t.Errorf("%s: %v, %d writes", name, kinds, writes.Load())
			}
		}
		for i := range 50 {
			r.job("r1", fmt.Sprint("other-", i), action("push"))
		}
		pass(time.Minute)
		r.model.set(func() { r.model.calls = nil })
		pass(time.Hour)
		if n := r.model.arrived(func(call) bool { return true }); n > 120 {
			t.Errorf("%d requests in an idle hour", n)
		}
	})
}
