package jobs

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/failpoint"
)

// Tests of what arrives late: requests, answers, deletions and second thoughts.

// once returns a fault for the first call that is picked, and none for others.
func once(picked func(c call) bool, f fault) func(c call) fault {
	var done atomic.Bool
	return func(c call) fault {
		if picked(c) && done.CompareAndSwap(false, true) {
			return f
		}
		return fault{}
	}
}

// TestALateClaimGivesWay: the request of a claim travels for seconds and its
// answer is lost. Meanwhile a neighbour has looked around and begun to work on
// the repository.
func TestALateClaimGivesWay(t *testing.T) {
	bubble(t, func(r *rig) {
		s := newSites()
		r.repository("r1")
		a, _ := r.two(s.worker("pull", steady(time.Second)), s.worker("push", steady(30*time.Second)))
		r.model.inject(once(func(c call) bool { return isClaim(c) && c.Agent == "a" }, fault{delay: 5 * time.Second, loseAnswer: true}))
		r.job("r1", "r1-sync")
		pass(time.Second)
		r.job("r1", "r1-push", action("push"))
		pass(10 * time.Second)
		if a.count(EventReleased) != 1 || s.look().at["r1"] != 1 {
			t.Errorf("gave way %d times, %d work", a.count(EventReleased), s.look().at["r1"])
		}
		pass(2 * time.Minute)
		if s.look().clashes > 0 || len(s.look().repeats) > 0 || len(r.model.all("jobs")) != 0 {
			t.Errorf("%d clashes, repeated %v, %d jobs left", s.look().clashes, s.look().repeats, len(r.model.all("jobs")))
		}
	})
}

// TestACrashBeforeTheLookAround: an agent dies between its claim and the look at
// those of others. When it is back in time it looks before it works.
func TestACrashBeforeTheLookAround(t *testing.T) {
	bubble(t, func(r *rig) {
		s := newSites()
		r.repository("r1")
		var a *agent
		a, _ = r.two(s.worker("pull", steady(time.Second)), s.worker("push", steady(40*time.Second)))
		a.env.o.hook = func(point string, _ jobRef) {
			if point == failpoint.Confirmed {
				a.crash()
			}
		}
		r.model.inject(func(c call) fault {
			if isClaim(c) {
				return fault{delay: map[string]time.Duration{"a": 60, "b": 50}[c.Agent] * time.Millisecond} // b is first
			}
			return fault{}
		})
		r.job("r1", "r1-sync")
		r.job("r1", "r1-push", action("push"))
		pass(5 * time.Second)
		a.stop()
		if s.look().at["r1"] != 1 || s.look().runs["r1-push"] != 1 {
			t.Fatalf("%d work", s.look().at["r1"])
		}
		r.startOn(a.ledger.Store, "a", Options{Actions: []string{"pull"}, Cleanup: CleanupOff}, s.worker("pull", steady(time.Second)))
		pass(3 * time.Minute)
		if s.look().clashes > 0 || len(r.model.all("jobs")) != 0 {
			t.Errorf("%d clashes, %d jobs left", s.look().clashes, len(r.model.all("jobs")))
		}
	})
}

// TestDrainSettlesAnOpenIntent: the request of a claim got no answer, and then
// the agent is told to drain. The job is left free for others, so that the
// request cannot come to pass later, and nothing is asked over and over.
func TestDrainSettlesAnOpenIntent(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		w := quick()
		a := r.start("a", Options{}, w)
		settle()
		lose := once(isClaim, fault{lose: true})
		r.model.inject(func(c call) fault {
			f := lose(c)
			if f.lose {
				a.Drain(true)
			}
			return f
		})
		r.job("r1", "r1-sync")
		pass(time.Minute)
		asked := r.model.arrived(func(c call) bool { return c.Verb == "get" && c.Name == "r1-sync" })
		if _, busy := a.drain.state(); busy != 0 || asked > 5 || len(r.claims()) != 0 || claimed(r.model.get("jobs", "default", "r1-sync")) || len(w.seen()) != 0 {
			t.Errorf("%d busy, asked %d times, claims %+v, runs %q", busy, asked, r.claims(), w.seen())
		}
		a.Drain(false)
		pass(time.Minute)
		r.done("success", "")
	})
}

// TestDrainLetsUrgencyGo: a name that was urgent for a claim which is settled by
// now waits like any other while the agent drains, and asks nobody meanwhile.
func TestDrainLetsUrgencyGo(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		w := quick()
		a := r.start("a", Options{}, w)
		settle()
		a.Drain(true)
		r.job("r1", "r1-sync")
		pass(time.Second)
		a.queue.add(key("default", "r1-sync"), repoKey("default", "r1"), true)
		pass(time.Minute)
		if asked := r.model.arrived(func(c call) bool { return c.Verb == "get" && c.Name == "r1-sync" }); asked > 3 {
			t.Errorf("asked %d times", asked)
		}
		a.Drain(false)
		pass(time.Minute)
		r.done("success", "")
	})
}

// TestDeletionAfterTheLoss: a job that was taken away and then ended by its new
// owner is no job that a person has deleted. Its end is not told here.
func TestDeletionAfterTheLoss(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		a := r.start("a", Options{}, worker(func(context.Context, *Task) error {
			<-time.After(time.Minute) // heeds nothing
			return nil
		}))
		r.job("r1", "r1-sync")
		pass(5 * time.Second)
		r.model.edit("jobs", "default", "r1-sync", claimOf("another", time.Now()))
		pass(20 * time.Second)
		r.model.remove("jobs", "default", "r1-sync")
		pass(2 * time.Minute)
		if n := len(r.history()); n != 0 || a.count(EventLost) != 1 || a.count(EventCompleted)+a.count(EventCancelled) != 0 {
			t.Errorf("%d records, lost %q, completed %q, cancelled %q", n, a.texts(EventLost), a.texts(EventCompleted), a.texts(EventCancelled))
		}
	})
}

// TestCancelMeansOneJob: a wish to stop a job never reaches the next one of that
// name.
func TestCancelMeansOneJob(t *testing.T) {
	bubble(t, func(r *rig) {
		a := r.start("a", Options{}, quick())
		settle()
		r.job("r1", "r1-sync", claimOf("another", time.Now()))
		var done atomic.Bool
		r.model.inject(func(c call) fault {
			if c.Verb == "update" && done.CompareAndSwap(false, true) {
				r.model.remove("jobs", "default", "r1-sync")
				r.job("r1", "r1-sync", claimOf("another", time.Now()))
			}
			return fault{}
		})
		err := a.Cancel(context.Background(), "default", "r1-sync")
		if reason := cancelReason(r.model.get("jobs", "default", "r1-sync")); err == nil || reason != "" {
			t.Errorf("%v, the next job: %q", err, reason)
		}
	})
}

// TestDeleteWithoutAnswerAndAReusedName: the job is done and gone; that its name
// is in use again is no loss.
func TestDeleteWithoutAnswerAndAReusedName(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		a := r.start("a", Options{}, quick())
		settle()
		lose := once(func(c call) bool { return c.Resource == "jobs" && c.Verb == "delete" }, fault{loseAnswer: true})
		r.model.inject(lose)
		r.job("r1", "r1-sync")
		for r.model.get("jobs", "default", "r1-sync") != nil {
			pass(time.Millisecond)
		}
		r.job("r1", "r1-sync")
		pass(time.Minute)
		if a.count(EventLost) != 0 || a.count(EventCompleted) != 2 || len(r.history()) != 2 || len(r.claims()) != 0 {
			t.Errorf("lost %q, completed %q, %d records, claims %+v", a.texts(EventLost), a.texts(EventCompleted), len(r.history()), r.claims())
		}
	})
}

// TestNameReusedForAJobWithoutRepository: it is ended with a reason, and not
// looked at over and over.
func TestNameReusedForAJobWithoutRepository(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		r.start("a", Options{Drivers: 1}, work(10*time.Second))
		settle()
		r.job("r1", "first")
		r.job("r1", "j")
		pass(time.Second)
		r.model.remove("jobs", "default", "j")
		r.job("", "j")
		pass(time.Minute)
		found := slices.ContainsFunc(r.history(), func(rec state.Record) bool {
			return rec.Name == "j" && rec.State == api.StateError && rec.Message == "spec.repository is not set"
		})
		if asked := r.model.arrived(func(c call) bool { return c.Verb == "get" && c.Name == "j" }); !found || asked > 5 {
			t.Errorf("asked %d times, history %+v", asked, r.history())
		}
	})
}

// TestNothingIsRememberedOfJobsThatAreGone: also of one whose deletion the watch
// had shown before its claim was sent in vain.
func TestNothingIsRememberedOfJobsThatAreGone(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		a := r.start("a", Options{}, quick())
		settle()
		get := once(func(c call) bool { return c.Verb == "get" && c.Name == "r1-sync" }, fault{lateAnswer: time.Second})
		put := once(isClaim, fault{lose: true})
		r.model.inject(func(c call) fault {
			if f := get(c); f != (fault{}) {
				return f
			}
			return put(c)
		})
		r.job("r1", "r1-sync")
		pass(500 * time.Millisecond)
		r.model.remove("jobs", "default", "r1-sync")
		pass(2 * time.Minute)
		r.job("r1", "moved", action("push"), claimOf("another", time.Now()))
		settle()
		r.model.edit("jobs", "default", "moved", func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, "r2", "spec", "repository")
		})
		settle()
		r.model.remove("jobs", "default", "moved")
		settle()
		f := a.driver.claimer.exclusion.foreign
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.announced)+len(f.repos) != 0 || len(r.claims()) != 0 {
			t.Errorf("remembered %v %v, claims %+v", f.announced, f.repos, r.claims())
		}
	})
}

// TestUnsentResultsOutliveThePrune: the local history is at its bounds while the
// API is away. What still has to be sent is not pruned, and no work is done twice.
func TestUnsentResultsOutliveThePrune(t *testing.T) {
	bubble(t, func(r *rig) {
		w := work(10 * time.Second)
		a := r.start("a", Options{LocalRecords: 1, Cleanup: CleanupOff}, w)
		for n := range 3 {
			r.repository(fmt.Sprint("r", n))
			r.job(fmt.Sprint("r", n), fmt.Sprint("j", n))
		}
		pass(5 * time.Second)
		a.link.cut(true)
		pass(90 * time.Minute)
		a.link.cut(false)
		pass(10 * time.Minute)
		if len(w.seen()) != 3 || len(r.model.all("jobs")) != 0 || len(r.model.all("historicjobs")) != 3 {
			t.Errorf("runs %q, %d jobs left, %d HistoricJobs", w.seen(), len(r.model.all("jobs")), len(r.model.all("historicjobs")))
		}
	})
}

// TestAskedToWaitWhileLookingAround: a server that is busy is not asked for the
// claims of others four times a second.
func TestAskedToWaitWhileLookingAround(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		w := quick()
		a := r.start("a", Options{Cleanup: CleanupOff}, w)
		settle()
		r.job("r1", "r1-sync")
		a.link.lag(func() time.Duration { return 25 * time.Second })
		r.model.inject(func(c call) fault {
			if listings(c) {
				return fault{status: 429, after: 5}
			}
			return fault{}
		})
		pass(45 * time.Second)
		if n := r.model.arrived(listings); n > 8 {
			t.Errorf("%d lists in 25 s", n)
		}
		a.link.lag(nil)
		r.model.inject(nil)
		pass(time.Minute)
		r.done("success", "")
	})
}

// TestAnEndedLeaseIsNotRenewed: a host slept for longer than a lease lasts, and a
// neighbour has begun to work on the repository. The first renewal gives up, the
// claim is found again, and the job waits for the neighbour.
func TestAnEndedLeaseIsNotRenewed(t *testing.T) {
	for _, overtaken := range []bool{false, true} {
		t.Run(fmt.Sprint("overtaken ", overtaken), func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				w := work(time.Minute)
				a := r.start("a", Options{Cleanup: CleanupOff}, w)
				r.job("r1", "r1-sync")
				pass(5 * time.Second)
				r.model.edit("jobs", "default", "r1-sync", func(u *unstructured.Unstructured) {
					setClaim(u, time.Now().Add(-100*time.Second).UnixMilli(), u.GetLabels()[api.LabelClaimOwner])
				})
				if overtaken {
					r.job("r1", "r1-push", action("push"), claimOf("another", time.Now()))
				}
				pass(20 * time.Second)
				if a.count(EventLost) != 1 || (a.count(EventReleased) == 1) != overtaken {
					t.Errorf("lost %q, released %q", a.texts(EventLost), a.texts(EventReleased))
				}
				if overtaken {
					r.model.remove("jobs", "default", "r1-push")
				}
				pass(3 * time.Minute)
				r.done("success", "")
				if len(w.seen()) != 2 {
					t.Errorf("runs %q", w.seen())
				}
			})
		})
	}
}

// TestAClaimFoundAgainSaysWhenItWasWritten: the first try to renew it travels for
// seconds and meets a conflict.
func TestAClaimFoundAgainSaysWhenItWasWritten(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		a := r.start("a", Options{Cleanup: CleanupOff}, work(time.Minute))
		r.job("r1", "r1-sync")
		pass(5 * time.Second)
		a.crash()
		a.stop()
		slow := once(func(c call) bool { return c.Resource == "jobs" && c.Verb == "update" }, fault{delay: 8 * time.Second})
		r.model.inject(slow)
		r.start("a", Options{Cleanup: CleanupOff}, work(time.Minute))
		pass(4 * time.Second)
		r.model.edit("jobs", "default", "r1-sync", func(u *unstructured.Unstructured) { api.SetAnnotation(u, "note", "ours") })
		pass(5 * time.Second)
		at, _ := strconv.ParseInt(r.model.get("jobs", "default", "r1-sync").GetLabels()[api.LabelClaim], 10, 64)
		if age := r.model.now().Sub(time.UnixMilli(at)); age > 3*time.Second {
			t.Errorf("renewed now, with a time %s ago", age)
		}
		pass(2 * time.Minute)
		r.done("success", "")
	})
}

// TestAJobThatWasWantedHereToo: another agent has got a job for which this one
// has an intent that is still open. It counts as a neighbour.
func TestAJobThatWasWantedHereToo(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		w := work(time.Minute)
		a := r.start("a", Options{Cleanup: CleanupOff}, w)
		r.job("r1", "a-mine")
		pass(5 * time.Second)
		a.crash()
		a.stop()
		theirs := r.job("r1", "b-theirs", claimOf("another", time.Now()))
		intent := state.Claim{UID: string(theirs.GetUID()), Namespace: "default", Name: "b-theirs", Repository: "r1", Action: "pull",
			Attempt: 1, Created: time.Now(), Phase: state.PhaseIntent, Token: "never arrived"}
		if err := r.store.PutClaim(context.Background(), intent); err != nil {
			t.Fatal(err)
		}
		w = work(time.Second)
		a = r.start("a", Options{Cleanup: CleanupOff}, w)
		pass(10 * time.Second)
		if len(w.seen()) != 0 || a.count(EventReleased) != 1 {
			t.Errorf("runs %q, released %q", w.seen(), a.texts(EventReleased))
		}
		r.model.remove("jobs", "default", "b-theirs")
		pass(time.Minute)
		if len(w.seen()) != 1 || len(r.model.all("jobs")) != 0 {
			t.Errorf("runs %q", w.seen())
		}
	})
}
