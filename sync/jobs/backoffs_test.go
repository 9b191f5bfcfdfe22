package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
)

// restsLong is a worker whose first attempt leaves the job at rest for four minutes.
func restsLong() *script {
	return worker(func(_ context.Context, task *Task) error {
		if task.Attempt == 1 {
			return &TransientError{Err: errPassing, After: 4 * time.Minute}
		}
		return nil
	})
}

// TestJobIsDeletedWhileItRests: the history tells of its attempts, whether the
// agent sees it or is away, and whether the server keeps HistoricJobs. An agent
// that was away where there are none cannot know how the job has ended.
func TestJobIsDeletedWhileItRests(t *testing.T) {
	cases := map[string]struct{ away, archiveless, reused bool }{
		"seen":                      {},
		"the agent is away":         {away: true},
		"without HistoricJobs":      {archiveless: true},
		"away, without any":         {away: true, archiveless: true},
		"the name is used again":    {reused: true},
		"away, and used once again": {away: true, reused: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				if c.archiveless {
					r.model.absent["historicjobs"] = 404
				}
				r.repository("r1")
				a := r.start("a1", Options{}, restsLong())
				job := r.job("r1", "r1-sync")
				pass(time.Second)
				if c.away {
					a.stop()
				}
				r.model.remove("jobs", "default", "r1-sync")
				if c.reused {
					r.job("r1", "r1-sync", func(u *unstructured.Unstructured) { api.SetAnnotation(u, api.AnnoNotBefore, "9999999999999") })
				}
				if c.away {
					a = r.start("a2", Options{}, quick())
				}
				pass(time.Second)
				if c.away && c.archiveless {
					if len(r.history()) != 0 || len(r.claims()) != 0 {
						t.Errorf("history %+v, claims %+v", r.history(), r.claims())
					}
					return
				}
				rec := r.only()
				if rec.UID != string(job.GetUID()) || rec.State != stateCancelled || rec.HistoricJob != archiveSkipped ||
					rec.Message != "cancelled: the job was deleted after attempt 1: the git host does not answer" || !contains(string(rec.Spec), `"pull"`) ||
					!contains(string(rec.Status), `"state":"error"`) || rec.Repository != "r1" || rec.Action != "pull" || rec.Finished.Before(rec.Started) {
					t.Errorf("record %+v", rec)
				}
				if got := told(rec.Attempts); !slices.Equal(got, []string{"1 a1 transient"}) {
					t.Errorf("attempts %q", got)
				}
				if len(r.claims()) != 0 || len(r.model.all("historicjobs")) != 0 || a.count(EventCompleted) != 1 {
					t.Errorf("claims %v, told %q", r.claims(), a.texts(EventCompleted))
				}
				pass(2 * time.Minute)
				if len(r.history()) != 1 || a.count(EventCompleted) != 1 {
					t.Errorf("told %q", a.texts(EventCompleted))
				}
			})
		})
	}
}

// TestRecordOfADeletedJobMeetsFaults: it is made when the API and the disk let it
// be made, and once.
func TestRecordOfADeletedJobMeetsFaults(t *testing.T) {
	for _, stop := range []string{"complete", "end", "api"} {
		t.Run(stop, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				a := r.start("a1", Options{}, restsLong())
				r.job("r1", "r1-sync")
				pass(time.Second)
				if stop == "api" {
					r.model.inject(func(c call) fault {
						if c.Resource == "historicjobs" {
							return fault{status: 500}
						}
						return fault{}
					})
				} else {
					a.ledger.failing(func(op string) error {
						if op == stop {
							return errors.New("no")
						}
						return nil
					})
				}
				r.model.remove("jobs", "default", "r1-sync")
				pass(time.Minute)
				if len(r.claims()) != 1 {
					t.Fatalf("claims %+v", r.claims())
				}
				a.crash()
				settle()
				r.model.inject(nil)
				r.start("a2", Options{}, quick())
				pass(time.Minute)
				if rec := r.only(); rec.State != stateCancelled || len(rec.Attempts) != 1 || len(r.claims()) != 0 {
					t.Errorf("record %+v, claims %+v", rec, r.claims())
				}
			})
		})
	}
}

// TestJobThatRestsIsDoneByAnother: then the history of this agent does not call it cancelled.
func TestJobThatRestsIsDoneByAnother(t *testing.T) {
	for _, away := range []bool{false, true} {
		t.Run(fmt.Sprint("away ", away), func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				a := r.start("a", Options{}, restsLong())
				r.job("r1", "r1-sync")
				pass(time.Second)
				if a.Drain(true); away {
					a.stop()
				} else {
					r.model.set(func() { r.model.absent["historicjobs"] = 404 })
				}
				r.startOn(r.open("b.db"), "b", Options{}, quick())
				pass(5 * time.Minute)
				if away {
					r.start("a2", Options{}, quick())
					pass(time.Second)
				}
				if len(r.model.all("jobs")) != 0 || len(r.history()) != 0 || len(r.claims()) != 0 {
					t.Errorf("%d jobs, history %+v, claims %+v", len(r.model.all("jobs")), r.history(), r.claims())
				}
			})
		})
	}
}

// TestWhoHasAJobThatRests: a claim or an attempt of somebody else is one, the own
// claim of before, which the watch shows late, is none.
func TestWhoHasAJobThatRests(t *testing.T) {
	cases := map[string]struct {
		change    func(u *unstructured.Unstructured)
		elsewhere bool
	}{
		"nobody":                    {func(*unstructured.Unstructured) {}, false},
		"the own claim, shown late": {func(u *unstructured.Unstructured) { setClaim(u, 1, "mine") }, false},
		"another claim":             {func(u *unstructured.Unstructured) { setClaim(u, 1, "theirs") }, true},
		"an attempt that is known":  {func(u *unstructured.Unstructured) { endAttempt(u, state.Attempt{N: 2}) }, false},
		"another attempt":           {func(u *unstructured.Unstructured) { endAttempt(u, state.Attempt{N: 3}) }, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &backoffs{jobs: map[string]backoffJob{"u": {token: "mine", claim: state.Claim{Attempts: []state.Attempt{{N: 1}, {N: 2}}}}}}
			job := &unstructured.Unstructured{Object: map[string]any{}}
			job.SetUID("u")
			c.change(job)
			b.see(job)
			if got := b.jobs["u"].elsewhere; got != c.elsewhere {
				t.Errorf("elsewhere %v", got)
			}
		})
	}
}

// TestJobIsCancelledWhileItRests: it ends at once, with its attempts.
func TestJobIsCancelledWhileItRests(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		w := restsLong()
		a := r.start("a", Options{}, w)
		r.job("r1", "r1-sync")
		pass(35 * time.Second)
		if err := a.Cancel(context.Background(), "default", "r1-sync"); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		rec := r.done(stateCancelled, "cancelled between two attempts: "+cancelText)
		if got := told(rec.Attempts); !slices.Equal(got, []string{"1 a transient", "2 a cancelled"}) || len(w.seen()) != 1 {
			t.Errorf("attempts %q, runs %q", got, w.seen())
		}
	})
}

// TestGivenBackJobGoesOnFromItsMark: after a stop of the agent, and after it has
// given way to a neighbour.
func TestGivenBackJobGoesOnFromItsMark(t *testing.T) {
	cases := map[string]func(r *rig, a *agent, w *script) *agent{
		"the agent stops": func(r *rig, a *agent, w *script) *agent {
			a.stop()
			return r.start("a2", Options{}, w)
		},
		"a neighbour was first": func(r *rig, a *agent, w *script) *agent {
			a.crash()
			settle()
			r.job("r1", "other", claimOf("stranger", r.model.now()))
			a = r.start("a2", Options{}, w)
			pass(time.Second)
			if told := a.texts(EventReleased); len(told) != 1 || !contains(told[0], "it has job default/other") {
				r.t.Fatalf("told %q", told)
			}
			r.model.remove("jobs", "default", "other")
			return a
		},
	}
	for name, stop := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				a := r.start("a1", Options{}, worker(func(ctx context.Context, task *Task) error {
					if err := task.Progress.Mark(ctx, "half"); err != nil {
						return err
					}
					<-ctx.Done()
					return context.Cause(ctx)
				}))
				r.job("r1", "r1-sync")
				pass(time.Second)
				w := quick()
				stop(r, a, w)
				pass(2 * time.Minute)
				r.done("success", "")
				if got := w.seen(); len(got) != 1 || !contains(got[0], `"half"`) {
					t.Errorf("runs %q", got)
				}
			})
		})
	}
}

// TestManyJobsInBackoff: what is stored of them is bounded, and dropped gently.
func TestManyJobsInBackoff(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		a := r.start("a", Options{}, quick())
		settle()
		b := a.scanner.backoffs
		fill := func(n int) {
			b.mu.Lock()
			defer b.mu.Unlock()
			clear(b.jobs)
			for n := range n {
				b.jobs[string(uidOf(int64(1000000+n)))] = backoffJob{}
			}
		}
		for _, c := range []struct {
			known        int
			kept, marked bool
		}{{maxMarks - 1, true, true}, {maxMarks, true, false}, {maxBackoffs, false, false}} {
			job := r.job("r1", "waits", func(u *unstructured.Unstructured) {
				api.SetAnnotation(u, api.AnnoNotBefore, "9999999999999")
				endAttempt(u, state.Attempt{N: 1, State: attemptTransient})
			})
			claim := state.Claim{UID: string(job.GetUID()), Namespace: "default", Name: "waits", Mark: []byte("1")}
			h := a.env.hold(context.Background(), job, claim, a.env.clock.host.now())
			fill(c.known)
			kept := b.keep(context.Background(), h)
			h.drop()
			if k, _ := b.claim(h.uid); kept != c.kept || (len(k.Mark) > 0) != c.marked || c.kept && len(k.Attempts) != 1 {
				t.Errorf("%d in backoff: kept %v, %+v", c.known, kept, k)
			}
			fill(0)
			if err := r.store.DropClaim(context.Background(), h.uid); err != nil {
				t.Fatal(err)
			}
			r.model.remove("jobs", "default", "waits")
			settle()
		}
	})
}
