package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/resources"
)

// steps are the places where a job can be stopped, in their order.
var steps = []string{"intent", "claimed", "confirmed", "working", "marked", "worked", "recorded", "posted", "deleted", "ended"}

// batches is a worker of three batches with a mark after each; it begins where its mark says.
func batches(done *[]string, atMark func(ctx context.Context, n int)) *script {
	return worker(func(ctx context.Context, t *Task) error {
		begin := 0
		if len(t.Mark) > 0 {
			if _, err := fmt.Sscan(string(t.Mark), &begin); err != nil {
				return err
			}
		}
		for n := begin + 1; n <= 3; n++ {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			*done = append(*done, fmt.Sprint(n))
			t.Progress.Record(ctx, dashboard(resources.Created, nil, nil))
			if err := t.Progress.Mark(ctx, n); err != nil {
				return err
			}
			if atMark != nil {
				atMark(ctx, n)
			}
		}
		return nil
	})
}

// TestCrashAtEveryStep: the process is gone at that very moment; a new one with the same state file
// ends the job. Nothing is lost, nothing is told twice.
func TestCrashAtEveryStep(t *testing.T) {
	for _, stop := range steps {
		t.Run(stop, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				var a *agent
				var done []string
				crashed := make(chan struct{})
				marks := 0
				die := func(name string) {
					if name == "marked" {
						marks++
					}
					if name == stop && marks != 1 {
						a.crash()
						close(crashed)
					}
				}
				w := batches(&done, func(ctx context.Context, n int) {
					if n == 2 && stop == "marked" {
						<-ctx.Done()
					}
				})
				a = r.start("a1", Options{hook: func(name string, _ jobRef) { die(name) }}, w)
				settle()
				created := r.job("r1", "r1-sync")
				<-crashed
				settle()

				again := batches(&done, nil)
				r.start("a2", Options{}, again)
				pass(10 * time.Second)
				rec := r.done("success", "")
				if rec.UID != string(created.GetUID()) || rec.HistoricJob != archivePosted && stop != "ended" && stop != "deleted" {
					t.Errorf("record %+v", rec)
				}
				status, _, _ := unstructured.NestedSlice(r.model.all("historicjobs")[0].Object, "status", "summary")
				if len(status) != 1 || status[0].(map[string]any)["create"] != int64(3) {
					t.Errorf("the summary counts %v", status)
				}
				wantRuns, wantDone := 1, "[1 2 3]"
				switch slices.Index(steps, stop) {
				case 2, 3: // held, nothing done
				case 4:
					wantDone = "[1 2 3]" // batch 3 after the restart
				case 5: // all marked, the end not recorded
				case 6, 7, 8, 9:
					wantRuns = 0
				}
				if got := fmt.Sprint(done); got != wantDone || len(again.seen()) != wantRuns {
					t.Errorf("batches %s, runs after the restart %q", got, again.seen())
				}
			})
		})
	}
}

// TestJobThatKillsItsAgent: it is not tried for ever.
func TestJobThatKillsItsAgent(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		created := r.job("r1", "r1-sync")
		runs := 0
		for n := range 3 {
			var a *agent
			started, crashed := make(chan struct{}), make(chan struct{})
			a = r.start(fmt.Sprint("a", n), Options{MaxAttempts: 3}, worker(func(ctx context.Context, task *Task) error {
				<-started
				runs++
				if task.Attempt != n+1 {
					t.Errorf("run %d is attempt %d", n+1, task.Attempt)
				}
				a.crash()
				close(crashed)
				<-ctx.Done()
				return ctx.Err()
			}))
			close(started)
			<-crashed
			settle()
			if n > 0 {
				if got := attemptsOf(r.model.get("jobs", "default", "r1-sync")); got != n {
					t.Errorf("the job says %d attempts, want %d", got, n)
				}
			}
			pass(5 * time.Second)
		}
		last := quick()
		r.start("a9", Options{MaxAttempts: 3}, last)
		pass(5 * time.Second)
		rec := r.done("dead", "3 attempts")
		if runs != 3 || len(last.seen()) != 0 || rec.UID != string(created.GetUID()) || !contains(rec.Message, expiredMessage) {
			t.Errorf("%d runs, then %q, record %+v", runs, last.seen(), rec)
		}
	})
}

// TestStrangeClaims: state files of other days.
func TestStrangeClaims(t *testing.T) {
	cases := []struct {
		name  string
		claim state.Claim
		runs  int
	}{
		{"no token", state.Claim{UID: "uid-102", Phase: state.PhaseHeld}, 1},
		{"unknown phase", state.Claim{UID: "uid-102", Phase: "painted", Token: "x"}, 1},
		{"completing without a record", state.Claim{UID: "uid-102", Phase: state.PhaseCompleting, Token: "mine"}, 1},
		{"unreadable mark", state.Claim{UID: "uid-102", Phase: state.PhaseHeld, Token: "mine", Mark: []byte(`17`)}, 1},
		{"other job", state.Claim{UID: "uid-5", Phase: state.PhaseHeld, Token: "x"}, 1},
		{"other namespace", state.Claim{UID: "uid-5", Namespace: "elsewhere", Phase: state.PhaseCompleting, Token: "x"}, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				r.job("r1", "r1-sync", func(u *unstructured.Unstructured) {
					if c.claim.Token == "mine" {
						setClaim(u, r.model.now().UnixMilli(), "mine")
					}
				})
				k := c.claim
				k.Name, k.Repository = "r1-sync", "r1"
				if k.Namespace == "" {
					k.Namespace = "default"
				}
				if err := r.store.PutClaim(context.Background(), k); err != nil {
					t.Fatal(err)
				}
				r.model.set(func() { r.model.known = map[string]string{"mine": "a"} })
				w := quick()
				r.start("a", Options{}, w)
				pass(time.Minute)
				r.done("success", "")
				if len(w.seen()) != c.runs {
					t.Errorf("runs %q", w.seen())
				}
			})
		})
	}
}

// TestJobInBackoff: a job that is cancelled or deleted between two attempts has a record with its
// attempts; one whose backoff is ended is taken at once, by the agent that gave it back and by one
// that only watched.
func TestJobInBackoff(t *testing.T) {
	for _, how := range []string{"cancelled", "cancelled before the release", "cancelled in the release", "deleted", "deleted after a restart",
		"deleted, no space", "ended", "ended in the release", "ended for another agent"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				w := worker(func(_ context.Context, task *Task) error {
					if task.Attempt == 1 {
						return &TransientError{Err: errPassing, After: 4 * time.Minute}
					}
					return nil
				})
				a := r.start("a", Options{}, w)
				others, name, rest := &script{action: "push"}, "a", 35*time.Second
				if strings.HasSuffix(how, "agent") {
					others, name = w, "b"
				}
				if strings.HasSuffix(how, "release") {
					rest = time.Second
				}
				r.model.inject(func(c call) fault {
					switch {
					case rest > time.Second || c.Verb != "update" || c.body == nil || claimed(c.body):
						return fault{}
					case strings.Contains(how, "before"):
						return fault{delay: 3 * time.Second}
					}
					return fault{lateAnswer: 3 * time.Second}
				})
				b := r.open("b.db")
				r.job("r1", "r1-sync")
				pass(time.Second)
				r.startOn(b, name, Options{}, others)
				pass(rest)
				want, text, runs := []string{"1 a transient", "2 a success"}, "completed", 2
				switch strings.FieldsFunc(how, func(c rune) bool { return c == ' ' || c == ',' })[0] {
				case "cancelled":
					want, text, runs = []string{"1 a transient", "2 a cancelled"}, "cancelled between two attempts: "+cancelText, 1
					if err := a.Cancel(context.Background(), "default", "r1-sync"); err != nil {
						t.Fatal(err)
					}
				case "deleted":
					want, text, runs = want[:1], "deleted between two attempts", 1
					if strings.HasSuffix(how, "restart") {
						a.stop()
						a = r.start("a", Options{}, w)
						pass(time.Second)
					}
					if strings.HasSuffix(how, "space") {
						a.ledger.failing(func(string) error { return syscall.ENOSPC })
					}
					r.model.remove("jobs", "default", "r1-sync")
				default:
					a.Drain(others == w)
					r.model.edit("jobs", "default", "r1-sync", with(api.AnnoNotBefore, ""))
				}
				pass(max(time.Second, 10*time.Second-rest))
				if jobs := len(r.model.all("jobs")); jobs != 0 || len(w.seen()) != runs {
					t.Fatalf("%d jobs are left, runs %q", jobs, w.seen())
				}
				if strings.HasSuffix(how, "space") {
					if got := a.texts(EventNote); len(got) != 1 || len(r.history()) != 0 {
						t.Errorf("told %q, history %+v", got, r.history())
					}
					return
				}
				records, err := b.History(context.Background(), state.Query{})
				if others == w {
					want[1] = "2 b success"
				} else if len(records) != 0 {
					t.Errorf("an agent that had no attempt recorded %+v", records)
				} else {
					records = r.history()
				}
				if err != nil || len(records) != 1 || !slices.Equal(told(records[0].Attempts), want) || !contains(records[0].Message, text) {
					t.Errorf("records %+v, %v", records, err)
				}
			})
		})
	}
}

// TestDoomedJobIsNotRun: a job that is claimed to be failed is failed once, also when the answer to
// its claim is lost.
func TestDoomedJobIsNotRun(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		n := 0
		r.model.inject(func(c call) fault {
			if c.Verb == "update" && c.Resource == "jobs" && c.body != nil && strings.HasPrefix(api.Label(c.body, api.LabelClaimOwner), "limpet-") && !c.Lease {
				n++
				if n == 1 {
					return fault{loseAnswer: true}
				}
			}
			return fault{}
		})
		r.job("r1", "r1-sync", claimOf("stranger", r.model.now().Add(-time.Hour)))
		w := quick()
		r.start("a1", Options{Cleanup: CleanupFail}, w)
		pass(15 * time.Minute)
		r.done("error", "")
		if got := r.history(); len(w.seen()) != 0 || len(got) != 1 || len(got[0].Attempts) != 1 {
			t.Errorf("runs %q, history %+v", w.seen(), got)
		}
	})
}

// revive puts a job back as it was.
func (m *model) revive(job *unstructured.Unstructured) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.store(entry{call: *person("create", "jobs", job.GetName()), before: job, now: job.DeepCopy()})
}

// TestEndedJobComesBack: a job that this agent has ended, and that a restored server has again, is
// not done again.
func TestEndedJobComesBack(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		claimed      bool
		phase        state.Phase
		cleanup      string
		within       time.Duration
		keepHistoric bool
	}{
		"as it waited":                     {within: time.Second},
		"as it waited, historic there":     {within: time.Second, keepHistoric: true},
		"as it waited, with its intent":    {phase: state.PhaseIntent, within: time.Second},
		"as it ran":                        {claimed: true, within: 6 * time.Minute},
		"as it ran, and is to be failed":   {claimed: true, cleanup: CleanupFail, within: 6 * time.Minute},
		"as it ran, with its claim":        {claimed: true, phase: state.PhaseHeld, within: time.Second},
		"as it ended, with its completion": {claimed: true, phase: state.PhaseCompleting, within: time.Second},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				waits := r.job("r1", "r1-sync")
				a := r.start("a1", Options{}, work(5*time.Second))
				pass(time.Second)
				runs, claims := r.model.get("jobs", "default", "r1-sync"), r.claims()
				pass(time.Minute)
				r.done("success", "")
				a.stop()
				old := waits
				if c.claimed {
					old = runs
				}
				r.model.revive(old)
				if !c.keepHistoric {
					r.model.set(func() { clear(r.model.objects["historicjobs"]) })
				}
				if c.phase != "" {
					claims[0].Phase = c.phase
					if err := r.store.PutClaim(context.Background(), claims[0]); err != nil {
						t.Fatal(err)
					}
				}
				w := quick()
				r.start("a2", Options{Cleanup: c.cleanup}, w)
				pass(c.within)
				got := r.history()
				if jobs := len(r.model.all("jobs")); jobs+len(r.claims())+len(w.seen()) != 0 || len(got) != 1 || got[0].State != "success" {
					t.Errorf("%d jobs left, claims %d, runs %q, history %+v", jobs, len(r.claims()), w.seen(), got)
				}
			})
		})
	}
}
