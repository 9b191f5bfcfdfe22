package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/resources"
)

var errPassing = &TransientError{Err: errors.New("the git host does not answer")}

// told renders the attempts of a record.
func told(list []state.Attempt) (out []string) {
	for _, a := range list {
		out = append(out, fmt.Sprintf("%d %s %s", a.N, a.Agent, a.State))
	}
	return out
}

// TestTransientFailureIsTriedAgain: with a growing backoff, and the history has of every attempt.
func TestTransientFailureIsTriedAgain(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		var began []time.Time
		w := worker(func(_ context.Context, task *Task) error {
			began = append(began, time.Now())
			if task.Last != (task.Attempt == 3) {
				t.Errorf("attempt %d is the last: %v", task.Attempt, task.Last)
			}
			if task.Attempt < 3 {
				return fmt.Errorf("pull: %w", errPassing)
			}
			return nil
		})
		a := r.start("a", Options{}, w)
		r.job("r1", "r1-sync")
		settle()
		job := r.model.get("jobs", "default", "r1-sync")
		view, err := api.JobView(job)
		if err != nil || claimed(job) || view.Status.State != api.StatePending ||
			!contains(view.Status.Message, "attempt 1 of 3: pull: the git host does not answer; tried again in ") {
			t.Errorf("between the attempts: %v", job.Object)
		}
		pass(2 * time.Minute)
		rec := r.done("success", "")
		if got := told(rec.Attempts); !slices.Equal(got, []string{"1 a transient", "2 a transient", "3 a success"}) || rec.DeadLetter != nil {
			t.Errorf("attempts %q, dead letter %v", got, rec.DeadLetter)
		}
		for _, at := range rec.Attempts {
			if at.Started.IsZero() || at.Finished.Before(at.Started) {
				t.Errorf("attempt %+v", at)
			}
		}
		for i, want := range []time.Duration{5 * time.Second, 20 * time.Second} {
			if rest := began[i+1].Sub(began[i]); rest < want*9/10 || rest > want*11/10+time.Second {
				t.Errorf("rest %d was %s, want about %s", i+1, rest, want)
			}
		}
		if a.count(EventRetry) != 2 || a.count(EventDead) != 0 {
			t.Errorf("told %q %q", a.texts(EventRetry), a.texts(EventDead))
		}
	})
}

// TestNextAttemptGoesOnFromTheMark: in this process, after a restart, and when its claim is refused
// once.
func TestNextAttemptGoesOnFromTheMark(t *testing.T) {
	for name, c := range map[string]struct {
		restart bool
		status  int
	}{"here": {}, "restart": {restart: true}, "conflict": {status: 409}, "too many requests": {status: 429}, "forbidden": {status: 403}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				w := worker(func(ctx context.Context, task *Task) error {
					if task.Attempt == 2 {
						return nil
					}
					if err := task.Progress.Mark(ctx, "half"); err != nil {
						return err
					}
					return errPassing
				})
				a := r.start("a", Options{}, w)
				r.job("r1", "r1-sync")
				settle()
				if claims := r.claims(); len(claims) != 1 || claims[0].Phase != state.PhaseResting || claims[0].Token != "" {
					t.Fatalf("claims %+v", claims)
				}
				if c.restart {
					a.stop()
					r.start("a", Options{}, w)
				}
				if c.status != 0 {
					r.model.inject(during(func(c call) bool { return c.Verb == "update" && claimed(c.body) }, 1, fault{status: c.status}))
				}
				pass(5 * time.Minute)
				r.done("success", "")
				if got := fmt.Sprint(w.seen()); got != `[r1-sync 1  r1-sync 2 "half"]` {
					t.Errorf("runs %s", got)
				}
			})
		})
	}
}

// TestListOfAttemptsIsBounded: whatever another agent writes there.
func TestListOfAttemptsIsBounded(t *testing.T) {
	t.Parallel()
	r := &rig{model: newModel()}
	job := r.job("r1", "j")
	for _, text := range []string{"", "null", "{}", "[1]", `[{"n":0}]`, `[{"n":-1}]`, strings.Repeat("[", 1<<16)} {
		api.SetAnnotation(job, api.AnnoAttempts, text)
		if got := attemptsEnded(job); len(got) != 0 {
			t.Errorf("%.20q: %v", text, got)
		}
	}
	for n := range 100 {
		endAttempt(job, state.Attempt{N: n + 1, State: attemptCrashed, Message: strings.Repeat("x", 1<<20)})
	}
	if got := attemptsEnded(job); len(got) != maxAttemptsKept || got[0].N != 81 ||
		len(job.GetAnnotations()[api.AnnoAttempts]) > maxAttemptsKept*(maxAttemptText+100) {
		t.Errorf("%d attempts in %d bytes", len(got), len(job.GetAnnotations()[api.AnnoAttempts]))
	}
	if attemptsOf(job) != 100 {
		t.Errorf("counted %d", attemptsOf(job))
	}
}

// TestServerAway: a worker that cannot reach the server that it writes to has nothing to say about
// its job, whether the API goes in the first attempt or in the last.
func TestServerAway(t *testing.T) {
	for _, first := range []int{1, 3} {
		t.Run(fmt.Sprint("attempt ", first), func(t *testing.T) {
			bubble(t, func(r *rig) {
				var a *agent
				outage := true
				w := worker(func(_ context.Context, task *Task) error {
					switch {
					case task.Attempt >= first && !outage:
						return nil
					case task.Attempt == first:
						a.link.cut(true)
					}
					return &kube.UnavailableError{Err: errors.New("connection refused")}
				})
				r.repository("r1")
				a = r.start("a", Options{}, w)
				r.job("r1", "r1-sync")
				pass(10 * time.Minute)
				if len(r.history()) != 0 || len(r.claims()) != 1 {
					t.Errorf("while the API is away: %d records, %d claims", len(r.history()), len(r.claims()))
				}
				outage = false
				a.link.cut(false)
				pass(time.Minute)
				r.done("success", "")
				if seen := w.seen(); len(seen) != first+1 || seen[first] != seen[first-1] {
					t.Errorf("runs: %q", seen)
				}
			})
		})
	}
}

func TestJobTravels(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		w := worker(func(ctx context.Context, t *Task) error {
			t.Progress.SetRefs("main", "aaa", "bbb")
			t.Progress.SetTotal(ctx, 2)
			t.Progress.Record(ctx, dashboard(resources.Created, nil, nil))
			t.Progress.Record(ctx, dashboard(resources.Updated, nil, errors.New("odd")))
			t.Log.Info("two files", "commit", "bbb")
			return nil
		})
		a := r.start("a", Options{}, w)
		settle()
		created := r.job("r1", "r1-sync")
		settle()
		rec := r.done("warning", "completed with warnings")
		if rec.UID != string(created.GetUID()) || rec.RefFrom != "aaa" || rec.RefTo != "bbb" || rec.HistoricJob != archivePosted ||
			rec.Agent != "a" {
			t.Errorf("record %+v", rec)
		}
		if len(rec.Attempts) != 1 || rec.Attempts[0].N != 1 || rec.Labels[api.LabelClaim] != "" || rec.Labels["team"] != "ops" {
			t.Errorf("record %+v", rec)
		}
		h := r.model.all("historicjobs")[0]
		view, err := api.JobView(h)
		if err != nil {
			t.Fatal(err)
		}
		if view.Status.State != "warning" || view.Status.Finished == 0 || len(view.Status.Summary) != 1 || view.Status.Summary[0].Warning != 1 {
			t.Errorf("HistoricJob %v", h.Object)
		}
		if h.Object["spec"].(map[string]any)["unknown"] != "kept" {
			t.Error("the HistoricJob lost a member of the spec")
		}
		for _, typ := range []string{EventClaimed, EventApplied, EventRejected, EventCompleted} {
			if a.count(typ) != 1 {
				t.Errorf("%d events %s", a.count(typ), typ)
			}
		}
		// A quick job costs one claim, one HistoricJob, one delete.
		if n := r.model.writes(func(e entry) bool { return e.Agent == "a" }); n != 3 {
			t.Errorf("%d writes for a quick job", n)
		}
	})
}

// TestResultWaitsAcrossARestart: the work is done, the API is away, and the process ends, in order
// or not. The next one knows the result, waits for the API and sends it if and only if the job is
// still ours.
func TestResultWaitsAcrossARestart(t *testing.T) {
	cases := []struct {
		name      string
		meanwhile func(r *rig)
		historic  string
		left      int
		runs      int // of the second process
	}{
		{"still ours", func(*rig) {}, archivePosted, 0, 0},
		{"taken by another agent", func(r *rig) {
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
					if u := a.Snapshot().Undelivered; len(u) != 1 || u[0].UID != string(created.GetUID()) || u[0].State != "success" ||
						u[0].Repository != "r1" {
						t.Fatalf("unsent %+v", u)
					}
					if orderly {
						a.stop()
					} else {
						a.crash()
					}
					settle()
					w := quick()
					r.away = true
					b := r.start("a", Options{Cleanup: CleanupOff}, w)
					c.meanwhile(r)
					pass(time.Hour)
					if u := b.Snapshot().Undelivered; len(u) != 1 || u[0].State != "success" || time.Since(u[0].Since) < time.Hour ||
						time.Since(u[0].Since) > time.Hour+time.Minute {
						t.Errorf("unsent after the restart: %+v", u)
					}
					if rec := r.only(); rec.State != "success" || rec.HistoricJob != "" || len(w.seen()) != 0 || b.Ready() == nil {
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
