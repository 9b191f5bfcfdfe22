package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/api"
)

var errPassing = &TransientError{Err: errors.New("the git host does not answer")}

// told renders the attempts of a record.
func told(list []state.Attempt) (out []string) {
	for _, a := range list {
		out = append(out, fmt.Sprintf("%d %s %s", a.N, a.Agent, a.State))
	}
	return out
}

// TestTransientFailureIsTriedAgain: with a growing rest, and the history tells
// of every attempt.
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
		if err != nil || claimed(job) || view.Status.State != api.StatePending || !contains(view.Status.Message, "attempt 1 of 3: pull: the git host does not answer; tried again in ") {
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

// TestDeadLetter: when no attempt is left the job is an error for Grafana and
// dead for people.
func TestDeadLetter(t *testing.T) {
	cases := []struct {
		name   string
		w      *script
		reason string
		last   string
	}{
		{"transient", worker(func(context.Context, *Task) error { return errPassing }), attemptTransient, "the git host does not answer"},
		{"timeout", work(time.Hour), attemptTimeout, "job did not end within 1m0s"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				a := r.start("a", Options{MaxAttempts: 2, Timeout: time.Minute}, c.w)
				r.job("r1", "r1-sync")
				pass(5 * time.Minute)
				rec := r.done("dead", c.last+" (2 attempts)")
				if d := rec.DeadLetter; d == nil || d.Reason != c.reason || d.Attempts != 2 || d.LastError != c.last {
					t.Errorf("dead letter %+v", d)
				}
				if got := told(rec.Attempts); !slices.Equal(got, []string{"1 a " + c.reason, "2 a " + c.reason}) {
					t.Errorf("attempts %q", got)
				}
				historic, err := api.JobView(r.model.all("historicjobs")[0])
				if err != nil || historic.Status.State != api.StateError || historic.Status.Message != rec.Message {
					t.Errorf("HistoricJob %+v, %v", historic.Status, err)
				}
				if n := a.count(EventDead); n != 1 || len(c.w.seen()) != 2 {
					t.Errorf("told dead %d times, runs %q", n, c.w.seen())
				}
			})
		})
	}
}

// TestOtherErrorsAreFinal: nobody tries again what no trial can mend.
func TestOtherErrorsAreFinal(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		w := worker(func(context.Context, *Task) error { return errors.New("401 bad credentials") })
		r.start("a", Options{}, w)
		r.job("r1", "r1-sync")
		settle()
		if rec := r.done("error", "401"); rec.DeadLetter != nil || len(w.seen()) != 1 {
			t.Errorf("dead letter %v, runs %q", rec.DeadLetter, w.seen())
		}
	})
}

// TestRetryAfterIsHonoured: the rest is not shorter than the host asked for.
func TestRetryAfterIsHonoured(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		w := worker(func(_ context.Context, task *Task) error {
			if task.Attempt == 1 {
				return &TransientError{Err: errors.New("429"), After: 3 * time.Minute}
			}
			return nil
		})
		r.start("a", Options{}, w)
		r.job("r1", "r1-sync")
		pass(3*time.Minute - time.Second)
		if len(w.seen()) != 1 {
			t.Errorf("runs %q", w.seen())
		}
		pass(2 * time.Second)
		r.done("success", "")
	})
}

// TestNextAttemptGoesOnFromTheMark: in this process, and after a restart.
func TestNextAttemptGoesOnFromTheMark(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				fails := func() *script {
					return worker(func(ctx context.Context, task *Task) error {
						if task.Attempt == 2 {
							return nil
						}
						if err := task.Progress.Mark(ctx, "half"); err != nil {
							return err
						}
						return errPassing
					})
				}
				w := fails()
				a := r.start("a", Options{}, w)
				r.job("r1", "r1-sync")
				settle()
				if claims := r.claims(); len(claims) != 1 || claims[0].Phase != state.PhaseResting || claims[0].Token != "" {
					t.Fatalf("claims %+v", claims)
				}
				if restart {
					a.stop()
					w = fails()
					r.start("a", Options{}, w)
				}
				pass(time.Minute)
				r.done("success", "")
				seen := w.seen()
				if got := seen[len(seen)-1]; got != `r1-sync 2 "half"` {
					t.Errorf("runs %q", seen)
				}
			})
		})
	}
}

// TestMarkOfAJobThatIsGone: nothing of it stays in the state file.
func TestMarkOfAJobThatIsGone(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		w := worker(func(ctx context.Context, task *Task) error {
			if err := task.Progress.Mark(ctx, 1); err != nil {
				return err
			}
			return &TransientError{Err: errors.New("busy"), After: time.Hour}
		})
		r.start("a", Options{}, w)
		r.job("r1", "r1-sync")
		settle()
		if len(r.claims()) != 1 {
			t.Fatalf("claims %v", r.claims())
		}
		r.model.remove("jobs", "default", "r1-sync")
		pass(time.Minute)
		if len(r.claims()) != 0 {
			t.Errorf("claims left: %v", r.claims())
		}
	})
}

// TestAttemptsOfSeveralAgents: each kind of end is in the record of who ends the
// job: a setback here, a crash there.
func TestAttemptsOfSeveralAgents(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		a := r.start("a", Options{}, worker(func(context.Context, *Task) error { return errPassing }))
		r.job("r1", "r1-sync")
		settle()
		a.stop()
		b := r.startOn(r.open("b.db"), "b", Options{}, work(time.Hour))
		pass(time.Minute)
		if len(b.Snapshot().Running) != 1 {
			t.Fatal("not taken by the second agent")
		}
		b.crash()
		r.startOn(r.open("c.db"), "c", Options{}, quick())
		pass(10 * time.Minute)
		job := r.model.all("historicjobs")
		if len(job) != 1 || len(r.model.all("jobs")) != 0 {
			t.Fatalf("%d HistoricJobs, %d jobs", len(job), len(r.model.all("jobs")))
		}
		rec, err := r.agents[2].ledger.History(context.Background(), state.Query{})
		if err != nil || len(rec) != 1 {
			t.Fatalf("%v %v", rec, err)
		}
		if got := told(rec[0].Attempts); !slices.Equal(got, []string{"1 a transient", "2 b crashed", "3 c success"}) {
			t.Errorf("attempts %q", got)
		}
	})
}

// TestListOfAttemptsIsBounded: whatever somebody writes there.
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
	if got := attemptsEnded(job); len(got) != maxAttemptsKept || got[0].N != 81 || len(job.GetAnnotations()[api.AnnoAttempts]) > maxAttemptsKept*(maxAttemptText+100) {
		t.Errorf("%d attempts in %d bytes", len(got), len(job.GetAnnotations()[api.AnnoAttempts]))
	}
	if attemptsOf(job) != 100 {
		t.Errorf("counted %d", attemptsOf(job))
	}
}
