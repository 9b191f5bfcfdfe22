package jobs

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
)

// dead is a job of a stranger who has died some time ago.
func (r *rig) dead(name string, age time.Duration, change ...func(*unstructured.Unstructured)) {
	r.job("r1", name, append([]func(*unstructured.Unstructured){claimOf("stranger", r.model.now().Add(-age))}, change...)...)
}

func attempts(n int) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { api.SetAnnotation(u, api.AnnoAttempt, strconv.Itoa(n)) }
}

func rawClaim(value string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		u.SetLabels(map[string]string{api.LabelClaim: value, api.LabelClaimOwner: "stranger"})
	}
}

func TestCleanup(t *testing.T) {
	cases := []struct {
		name    string
		cleanup string
		make    func(r *rig)
		during  func(r *rig) // every ten seconds
		// by when the job is no longer claimed by the stranger; 0 = never
		by, notBefore time.Duration
		state         string // how it ends; "" = it runs and succeeds
		text          string
		attempt       int // of the run
	}{
		{name: "dead for an hour", make: func(r *rig) { r.dead("j", time.Hour) }, notBefore: 59 * time.Second, by: 70 * time.Second, attempt: 2},
		{name: "dies now", make: func(r *rig) { r.dead("j", 0) }, notBefore: 2 * time.Minute, by: 7 * time.Minute, attempt: 2},
		{name: "alive", make: func(r *rig) { r.dead("j", 0) }, during: func(r *rig) {
			r.model.edit("jobs", "default", "j", claimOf("stranger", r.model.now()))
		}},
		{name: "alive, its clock is two minutes slow", make: func(r *rig) { r.dead("j", 2*time.Minute) }, during: func(r *rig) {
			r.model.edit("jobs", "default", "j", claimOf("stranger", r.model.now().Add(-2*time.Minute)))
		}},
		{name: "alive, its clock is an hour fast", make: func(r *rig) { r.dead("j", -time.Hour) }, during: func(r *rig) {
			r.model.edit("jobs", "default", "j", claimOf("stranger", r.model.now().Add(time.Hour)))
		}},
		{name: "dead, its clock was a year fast", make: func(r *rig) { r.dead("j", -365*24*time.Hour) }, notBefore: 59 * time.Second, by: 5 * time.Minute, attempt: 2},
		{name: "a claim that is no number", make: func(r *rig) { r.job("r1", "j", rawClaim("yesterday")) }, notBefore: 59 * time.Second, by: 5 * time.Minute, attempt: 2},
		{name: "an owner without a time", make: func(r *rig) {
			r.job("r1", "j", func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{api.LabelClaimOwner: "x"}) })
		}, notBefore: 59 * time.Second, by: 5 * time.Minute, attempt: 2},
		{name: "second attempt died", make: func(r *rig) { r.dead("j", time.Hour, attempts(1)) }, notBefore: 59 * time.Second, by: 70 * time.Second, attempt: 3},
		{name: "third attempt died", make: func(r *rig) { r.dead("j", time.Hour, attempts(2)) }, notBefore: 59 * time.Second, by: 70 * time.Second, state: "dead", text: expiredMessage + " (3 attempts)"},
		{name: "fail", cleanup: CleanupFail, make: func(r *rig) { r.dead("j", time.Hour) }, notBefore: 59 * time.Second, by: 70 * time.Second, state: "error", text: expiredMessage},
		{name: "off", cleanup: CleanupOff, make: func(r *rig) { r.dead("j", time.Hour) }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				c.make(r)
				w := quick()
				r.start("a", Options{Cleanup: c.cleanup}, w)
				freed := time.Duration(0)
				stranger := func() bool {
					job := r.model.get("jobs", "default", "j")
					return job != nil && (job.GetLabels()[api.LabelClaimOwner] == "stranger" || job.GetLabels()[api.LabelClaimOwner] == "x")
				}
				for passed := time.Duration(0); passed < 10*time.Minute; passed += time.Second {
					if c.during != nil && passed%(10*time.Second) == 0 {
						c.during(r)
					}
					pass(time.Second)
					if freed == 0 && !stranger() {
						freed = passed + time.Second
					}
				}
				if freed < c.notBefore || freed > c.by {
					t.Errorf("freed after %s, want between %s and %s", freed, c.notBefore, c.by)
				}
				if c.by == 0 {
					if len(w.seen()) != 0 || len(r.history()) != 0 {
						t.Errorf("runs %q", w.seen())
					}
					return
				}
				want, runs := "success", 1
				if c.state != "" {
					want, runs = c.state, 0
				}
				rec := r.done(want, c.text)
				if len(w.seen()) != runs {
					t.Errorf("runs %q", w.seen())
				}
				if last := rec.Attempts[len(rec.Attempts)-1]; runs == 1 && last.N != c.attempt {
					t.Errorf("attempt %d, want %d", last.N, c.attempt)
				}
				if c.cleanup == CleanupFail && rec.Message != expiredMessage {
					t.Errorf("message %q is not that of Grafana", rec.Message)
				}
			})
		})
	}
}

// TestCleanupRests: the second attempt rests for 5 s, the third for 20 s.
func TestCleanupRests(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		r.dead("j", time.Hour, attempts(1))
		w := quick()
		a := r.start("a", Options{}, w)
		for a.count(EventRequeued) == 0 {
			pass(time.Second)
		}
		job := r.model.get("jobs", "default", "j")
		if rest := notBefore(job) - r.model.now().UnixMilli(); attemptsOf(job) != 2 || rest < 18_000 || rest > 21_000 {
			t.Errorf("annotations %v", job.GetAnnotations())
		}
		pass(17 * time.Second)
		if len(w.seen()) != 0 {
			t.Error("the job did not rest")
		}
		// An agent that comes later keeps the rest too.
		r.startOn(r.open("other.db"), "b", Options{}, w)
		settle()
		if len(w.seen()) != 0 {
			t.Error("the job did not rest for another agent")
		}
		pass(5 * time.Second)
		if len(w.seen()) != 1 {
			t.Error("the job was not taken after its rest")
		}
	})
}

// TestCleanupByManyAgents: all of them see the same dead claims.
func TestCleanupByManyAgents(t *testing.T) {
	for _, mode := range []string{CleanupRequeue, CleanupFail} {
		t.Run(mode, func(t *testing.T) {
			bubble(t, func(r *rig) {
				const n = 110 // two pages
				r.repository("r1")
				for i := range n {
					r.dead(fmt.Sprintf("j%03d", i), time.Hour)
				}
				total := 0
				var agents []*agent
				for i := range 3 {
					agents = append(agents, r.startOn(r.open(fmt.Sprint(i, ".db")), string(rune('a'+i)), Options{Cleanup: mode, Drivers: 8}, quick()))
				}
				pass(10 * time.Minute)
				if left := len(r.model.all("jobs")); left != 0 || len(r.model.all("historicjobs")) != n {
					t.Errorf("%d jobs left, %d HistoricJobs", left, len(r.model.all("historicjobs")))
				}
				for _, a := range agents {
					records, err := a.ledger.History(context.Background(), state.Query{})
					if err != nil {
						t.Fatal(err)
					}
					total += len(records)
				}
				if total != n {
					t.Errorf("%d records, want %d", total, n)
				}
			})
		})
	}
}

// TestCleanupNeverTakesOwnClaims: not even when this agent itself could not
// renew for a long time.
func TestCleanupNeverTakesOwnClaims(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		r.model.inject(func(c call) fault {
			if c.Lease || c.Resource == "jobs" && c.Verb == "get" {
				return fault{status: 500}
			}
			return fault{}
		})
		w := work(3 * time.Minute)
		a := r.start("a", Options{}, w)
		settle()
		r.model.inject(nil)
		r.job("r1", "r1-sync")
		settle()
		r.model.inject(func(c call) fault {
			if c.Lease || c.Resource == "jobs" && c.Verb == "get" {
				return fault{status: 500}
			}
			return fault{}
		})
		pass(10 * time.Minute)
		if a.count(EventRequeued)+a.count(EventFailed) != 0 || len(r.claims()) != 1 || a.count(EventLost) != 1 {
			t.Errorf("requeued %d, claims %v, lost %d", a.count(EventRequeued), r.claims(), a.count(EventLost))
		}
		r.model.inject(nil)
		pass(5 * time.Minute)
		r.done("success", "")
	})
}

// TestRenewalWinsAgainstCleanup: it comes between the look and the write.
func TestRenewalWinsAgainstCleanup(t *testing.T) {
	for _, mode := range []string{CleanupRequeue, CleanupFail} {
		t.Run(mode, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				r.dead("j", time.Hour)
				woke := 0
				r.model.inject(func(c call) fault {
					if c.Verb == "update" && c.Resource == "jobs" && woke == 0 {
						woke++
						r.model.edit("jobs", "default", "j", claimOf("stranger", r.model.now()))
					}
					return fault{}
				})
				a := r.start("a", Options{Cleanup: mode}, quick())
				pass(90 * time.Second)
				if woke != 1 || r.model.get("jobs", "default", "j").GetLabels()[api.LabelClaimOwner] != "stranger" {
					t.Errorf("woke %d, job %v", woke, r.model.get("jobs", "default", "j"))
				}
				if len(r.claims()) != 0 || len(r.history()) != 0 || a.count(EventRequeued) != 0 {
					t.Errorf("claims %v, history %v", r.claims(), r.history())
				}
				pass(10 * time.Minute) // and now it is really dead
				if left := r.model.get("jobs", "default", "j"); left != nil {
					t.Errorf("left: %v", left.Object)
				}
			})
		})
	}
}

// TestCleanupTellsOnce: an API that forbids lists is no reason to fill the log.
func TestCleanupTellsOnce(t *testing.T) {
	bubble(t, func(r *rig) {
		a := r.start("a", Options{}, quick())
		settle()
		r.model.inject(func(c call) fault {
			if c.Verb == "list" {
				return fault{status: 403}
			}
			return fault{}
		})
		pass(time.Hour)
		if got := a.count(EventNote); got != 1 {
			t.Errorf("told %d times: %q", got, a.texts(EventNote))
		}
	})
}

// TestFailOutlivesACrash: a job that was taken over to be failed is failed by the
// next process too, and not run.
func TestFailOutlivesACrash(t *testing.T) {
	for _, stop := range []string{"intent", "claimed", "confirmed", "recorded"} {
		t.Run(stop, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				var a *agent
				crashed := make(chan struct{})
				a = r.start("a1", Options{Cleanup: CleanupFail, hook: func(name string, _ jobRef) {
					if name == stop {
						a.crash()
						close(crashed)
					}
				}}, quick())
				settle()
				r.dead("j", time.Hour)
				<-crashed
				settle()
				w := quick()
				r.start("a2", Options{Cleanup: CleanupFail}, w)
				pass(10 * time.Minute)
				rec := r.done("error", expiredMessage)
				if got := told(rec.Attempts); len(w.seen()) != 0 || len(got) != 1 || rec.Attempts[0].N != 1 || rec.DeadLetter != nil {
					t.Errorf("runs %q, attempts %q", w.seen(), got)
				}
			})
		})
	}
}
