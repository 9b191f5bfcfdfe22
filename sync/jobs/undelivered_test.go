package jobs

import (
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

// TestResultWaitsAcrossARestart: the work is done, the API is away, and the
// process ends, in order or not. The next one knows the result, waits for the API
// and sends it if and only if the job is still ours.
func TestResultWaitsAcrossARestart(t *testing.T) {
	cases := []struct {
		name      string
		meanwhile func(r *rig)
		historic  string
		left      int
		runs      int // of the second process
	}{
		{"still ours", func(*rig) {}, archivePosted, 0, 0},
		{"taken by somebody", func(r *rig) {
			r.model.edit("jobs", "default", "r1-sync", claimOf("stranger", r.model.now()))
		}, archiveSkipped, 1, 0},
		{"our token, another job", func(r *rig) {
			labels := r.model.get("jobs", "default", "r1-sync").GetLabels()
			r.model.remove("jobs", "default", "r1-sync")
			r.job("r1", "r1-sync", func(u *unstructured.Unstructured) { u.SetLabels(labels) })
		}, archiveSkipped, 1, 0},
		{"reaped", func(r *rig) { r.model.remove("jobs", "default", "r1-sync") }, archiveSkipped, 0, 0},
		{"requeued", func(r *rig) {
			r.model.edit("jobs", "default", "r1-sync", func(u *unstructured.Unstructured) {
				stripClaim(u)
				api.SetAnnotation(u, api.AnnoAttempt, "1")
			})
		}, archivePosted, 0, 1},
	}
	for _, c := range cases {
		for _, orderly := range []bool{true, false} {
			t.Run(c.name+map[bool]string{true: ", SIGTERM", false: ", power cut"}[orderly], func(t *testing.T) {
				bubble(t, func(r *rig) {
					r.repository("r1")
					a := r.start("a", Options{Cleanup: CleanupOff}, work(10*time.Second))
					settle()
					created := r.job("r1", "r1-sync")
					pass(5 * time.Second)
					a.link.cut(true)
					pass(15 * time.Second)
					if u := a.Snapshot().Undelivered; len(u) != 1 || u[0].UID != string(created.GetUID()) || u[0].State != "success" || u[0].Repository != "r1" {
						t.Fatalf("unsent %+v", u)
					}
					if orderly {
						a.stop()
					} else {
						a.crash()
					}
					settle()
					w := quick()
					b := r.start("a", Options{Cleanup: CleanupOff}, w)
					b.link.cut(true)
					c.meanwhile(r)
					pass(time.Hour)
					if u := b.Snapshot().Undelivered; len(u) != 1 || u[0].State != "success" || time.Since(u[0].Since) < time.Hour || time.Since(u[0].Since) > time.Hour+time.Minute {
						t.Errorf("unsent after the restart: %+v", u)
					}
					if rec := r.only(); rec.State != "success" || rec.HistoricJob != "" || len(w.seen()) != 0 {
						t.Errorf("record while the API is away: %+v, runs %q", rec, w.seen())
					}
					before := r.model.writes(func(entry) bool { return true })
					b.link.cut(false)
					pass(2 * time.Minute)
					if rec := r.only(); rec.HistoricJob != c.historic || rec.State != "success" {
						t.Errorf("record %+v", rec)
					}
					if len(b.Snapshot().Undelivered) != 0 || len(r.claims()) != 0 || len(r.model.all("jobs")) != c.left || len(w.seen()) != c.runs {
						t.Errorf("unsent %v, claims %v, %d jobs, runs %q", b.Snapshot().Undelivered, r.claims(), len(r.model.all("jobs")), w.seen())
					}
					if n := r.model.writes(func(entry) bool { return true }) - before; c.historic == archiveSkipped && n != 0 {
						t.Errorf("%d writes about a job that is not ours", n)
					}
				})
			})
		}
	}
}

// TestWorkGoesOnWithoutTheAPI: until the local deadline, two thirds of the expiry
// after the last renewal was sent, and not longer; what is done by then counts.
func TestWorkGoesOnWithoutTheAPI(t *testing.T) {
	const renewed = 10 * time.Second // the last renewal before the cut
	for name, c := range map[string]struct {
		works time.Duration
		done  bool
	}{
		"done just before the deadline": {renewed + 39*time.Second, true},
		"not done at the deadline":      {renewed + 41*time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				w := work(c.works)
				a := r.start("a", Options{Cleanup: CleanupOff}, w)
				settle()
				r.job("r1", "r1-sync")
				pass(15 * time.Second)
				a.link.cut(true)
				pass(5 * time.Minute)
				if got := len(r.history()) == 1; got != c.done || len(a.Snapshot().Undelivered) != len(r.history()) {
					t.Errorf("%d records, unsent %v", len(r.history()), a.Snapshot().Undelivered)
				}
				if len(r.claims()) != 1 || len(w.seen()) != 1 {
					t.Errorf("claims %v, runs %q", r.claims(), w.seen())
				}
				a.link.cut(false)
				pass(2 * time.Minute)
				r.done("success", "")
				if got := len(w.seen()) == 1; got != c.done {
					t.Errorf("runs %q", w.seen())
				}
			})
		})
	}
}

// TestResultThatIsSentAtOnceIsNotUnsent: nobody is alarmed for nothing.
func TestResultThatIsSentAtOnceIsNotUnsent(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		var a *agent
		seen := 0
		a = r.start("a", Options{Observe: nil, hook: func(string, jobRef) {
			if a != nil {
				seen += len(a.Snapshot().Undelivered)
			}
		}}, quick())
		settle()
		r.job("r1", "r1-sync")
		settle()
		r.done("success", "")
		if seen != 0 {
			t.Errorf("unsent %d times", seen)
		}
	})
}

// TestAnUnsentResultIsCountedOnce: also at the moment when its driver lets go of
// the job, which is when the claim is written back.
func TestAnUnsentResultIsCountedOnce(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		a := r.start("a", Options{}, work(10*time.Second))
		r.job("r1", "r1-sync")
		pass(5 * time.Second)
		a.link.cut(true)
		var looks, most atomic.Int64
		a.ledger.failing(func(op string) error {
			if op == "claim" {
				looks.Add(1)
				most.Store(max(most.Load(), int64(len(a.Snapshot().Undelivered)), int64(a.Backlog().Undelivered)))
			}
			return nil
		})
		pass(2 * time.Minute)
		if looks.Load() == 0 || most.Load() != 1 {
			t.Errorf("%d looks, %d unsent", looks.Load(), most.Load())
		}
		a.ledger.failing(nil)
		a.link.cut(false)
		pass(2 * time.Minute)
		r.done("success", "")
	})
}
