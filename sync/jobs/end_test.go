package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
)

func archiving(c call) bool { return c.Resource == "historicjobs" && c.Verb == "create" }
func deleting(c call) bool  { return c.Resource == "jobs" && c.Verb == "delete" }

// during makes the first n calls of a kind fail thus.
func during(kind func(call) bool, n int, f fault) func(c call) fault {
	return func(c call) fault {
		if c.Agent != "person" && kind(c) && n > 0 {
			n--
			return f
		}
		return fault{}
	}
}

// TestCompletionMeetsFaults: whatever goes wrong between the end of the work and
// the end of the claim, the job ends once and has one HistoricJob at most.
func TestCompletionMeetsFaults(t *testing.T) {
	const ever = 1 << 30
	cases := []struct {
		name     string
		fault    func(r *rig) func(c call) fault
		absent   int // status of historicjobs
		historic string
		within   time.Duration
	}{
		{name: "nothing", historic: archivePosted},
		{name: "historicjobs answers 404", absent: 404, historic: archiveUnavailable},
		{name: "historicjobs answers 403", absent: 403, historic: archiveUnavailable},
		{name: "historicjobs answers 405", absent: 405, historic: archiveUnavailable},
		{name: "history refused as invalid", fault: plainFault(during(archiving, ever, fault{status: 422})), historic: archiveSkipped},
		{name: "history fails for ever", fault: plainFault(during(archiving, ever, fault{status: 500})), historic: archiveSkipped, within: 90 * time.Second},
		{name: "history fails twice", fault: plainFault(during(archiving, 2, fault{status: 500})), historic: archivePosted, within: 5 * time.Second},
		{name: "history is busy", fault: plainFault(during(archiving, 1, fault{status: 503, after: 7})), historic: archivePosted, within: 10 * time.Second},
		{name: "answer of history is lost", fault: plainFault(during(archiving, 1, fault{loseAnswer: true})), historic: archivePosted, within: 5 * time.Second},
		{name: "delete fails", fault: plainFault(during(deleting, 3, fault{status: 500})), historic: archivePosted, within: 5 * time.Second},
		{name: "delete is lost", fault: plainFault(during(deleting, 1, fault{lose: true})), historic: archivePosted, within: 5 * time.Second},
		{name: "answer of delete is lost", fault: plainFault(during(deleting, 1, fault{loseAnswer: true})), historic: archivePosted, within: 5 * time.Second},
		{name: "somebody writes the job before each delete", fault: func(r *rig) func(c call) fault {
			n := 0
			return func(c call) fault {
				if deleting(c) && n < 5 {
					n++
					r.model.edit("jobs", "default", c.Name, func(u *unstructured.Unstructured) { api.SetAnnotation(u, "noise", fmt.Sprint(n)) })
				}
				return fault{}
			}
		}, historic: archivePosted},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				r.repository("r2")
				w := quick()
				a := r.start("a", Options{}, w)
				settle()
				r.model.set(func() {
					if c.absent != 0 {
						r.model.absent["historicjobs"] = c.absent
					}
				})
				if c.fault != nil {
					r.model.inject(c.fault(r))
				}
				r.job("r1", "r1-sync")
				pass(c.within)
				if len(r.model.all("jobs")) != 0 || len(r.claims()) != 0 || len(w.seen()) != 1 {
					t.Fatalf("%d jobs, %d claims, runs %q", len(r.model.all("jobs")), len(r.claims()), w.seen())
				}
				if rec := r.only(); rec.HistoricJob != c.historic || rec.State != "success" {
					t.Errorf("record %+v", rec)
				}
				if n := len(r.model.all("historicjobs")); (n == 1) != (c.historic == archivePosted) {
					t.Errorf("%d HistoricJobs", n)
				}
				if c.absent != 0 {
					r.job("r2", "r2-sync")
					settle()
					if n := r.model.arrived(archiving); n != 1 || a.count(EventNote) != 1 {
						t.Errorf("a server without history was asked %d times, told %d times", n, a.count(EventNote))
					}
				}
			})
		})
	}
}

// TestOwnDeletionIsNoCancellation: the watch tells of it before the answer comes.
func TestOwnDeletionIsNoCancellation(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		a := r.start("a", Options{}, quick())
		settle()
		r.model.inject(during(deleting, 1, fault{lateAnswer: 3 * time.Second}))
		r.job("r1", "r1-sync")
		pass(10 * time.Second)
		r.done("success", "")
		if a.count(EventCancelled)+a.count(EventLost) != 0 || a.count(EventCompleted) != 1 {
			t.Errorf("told %q", append(a.texts(EventCancelled), a.texts(EventLost)...))
		}
	})
}

// TestClaimIsTakenAwayAtTheEnd: somebody takes the claim away between the
// HistoricJob and the DELETE. The job is in history, so it is deleted and not run
// again.
func TestClaimIsTakenAwayAtTheEnd(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		w := quick()
		r.start("a", Options{}, w)
		settle()
		n := 0
		r.model.inject(func(c call) fault {
			if deleting(c) && n == 0 {
				n++
				r.model.edit("jobs", "default", c.Name, stripClaim)
			}
			return fault{}
		})
		r.job("r1", "r1-sync")
		settle()
		if rec := r.only(); rec.HistoricJob != archivePosted || len(r.claims()) != 0 {
			t.Errorf("record %+v", rec)
		}
		pass(time.Minute)
		r.done("success", "")
		if len(w.seen()) != 1 {
			t.Errorf("runs %q", w.seen())
		}
	})
}

// TestFinalStatusKeepsWhatIsNotOurs: also in history.
func TestFinalStatusKeepsWhatIsNotOurs(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		w := worker(func(ctx context.Context, task *Task) error {
			task.Progress.SetURLs(map[string]string{"sourceURL": "https://git.example.com"})
			task.Progress.SetMessage(ctx, "now")
			<-time.After(2 * time.Second)
			return nil
		})
		r.start("a", Options{}, w)
		settle()
		r.job("r1", "r1-sync", func(u *unstructured.Unstructured) { u.Object["status"] = map[string]any{"strange": "kept"} })
		pass(3 * time.Second)
		r.done("success", "")
		status := r.model.all("historicjobs")[0].Object["status"].(map[string]any)
		if status["strange"] != "kept" || status["progressUpdates"] != int64(3) || status["url"].(map[string]any)["sourceURL"] == nil || status["progress"] != nil {
			t.Errorf("status %v", status)
		}
	})
}

func plainFault(f func(c call) fault) func(*rig) func(c call) fault {
	return func(*rig) func(c call) fault { return f }
}

// TestResultWaitsForTheAPI: the work is done, the API is away. The result is
// sent when it is back, if and only if the job is still ours.
func TestResultWaitsForTheAPI(t *testing.T) {
	cases := []struct {
		name      string
		meanwhile func(r *rig)
		historic  string
		left      int
		runs      int
	}{
		{"still ours", func(*rig) {}, archivePosted, 0, 1},
		{"taken by somebody", func(r *rig) {
			r.model.edit("jobs", "default", "r1-sync", claimOf("stranger", r.model.now()))
		}, archiveSkipped, 1, 1},
		{"reaped", func(r *rig) { r.model.remove("jobs", "default", "r1-sync") }, archiveSkipped, 0, 1},
		{"reaped and made anew", func(r *rig) {
			r.model.remove("jobs", "default", "r1-sync")
			r.job("r1", "r1-sync", claimOf("stranger", r.model.now()))
		}, archiveSkipped, 1, 1},
		{"requeued", func(r *rig) {
			r.model.edit("jobs", "default", "r1-sync", func(u *unstructured.Unstructured) {
				stripClaim(u)
				api.SetAnnotation(u, api.AnnoAttempt, "1")
			})
		}, archivePosted, 0, 2},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				w := work(10 * time.Second)
				a := r.start("a", Options{Cleanup: CleanupOff}, w)
				settle()
				r.job("r1", "r1-sync")
				pass(5 * time.Second)
				a.link.cut(true)
				pass(30 * time.Second)
				if rec := r.only(); rec.State != "success" || rec.HistoricJob != "" {
					t.Errorf("record while the API is away: %+v", rec)
				}
				c.meanwhile(r)
				pass(time.Hour)
				calls := r.model.arrived(func(c call) bool { return c.Agent == "a" })
				a.link.cut(false)
				pass(time.Minute)
				if calls = r.model.arrived(func(c call) bool { return c.Agent == "a" }) - calls; calls > 12 {
					t.Errorf("%d requests to catch up", calls)
				}
				if rec := r.only(); rec.HistoricJob != c.historic || rec.State != "success" {
					t.Errorf("record %+v", rec)
				}
				if len(r.claims()) != 0 || len(r.model.all("jobs")) != c.left || len(w.seen()) != c.runs {
					t.Errorf("claims %v, %d jobs, runs %q", r.claims(), len(r.model.all("jobs")), w.seen())
				}
			})
		})
	}
}

// TestStateFileMeetsFaults: a result that is not kept does not count.
func TestStateFileMeetsFaults(t *testing.T) {
	cases := []struct {
		name string
		fail error
		// before the repair, after 45 s
		held bool // the claim is kept and renewed
	}{
		{"disk full", syscall.ENOSPC, true},
		{"file at its limit", fmt.Errorf("%w: test", state.ErrFull), true},
		{"read-only", fmt.Errorf("%w: test", state.ErrReadOnly), false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				w := work(10 * time.Second)
				a := r.start("a", Options{}, w)
				settle()
				r.job("r1", "r1-sync")
				pass(5 * time.Second)
				a.ledger.failing(func(string) error { return c.fail })
				pass(30 * time.Second)
				job := r.model.get("jobs", "default", "r1-sync")
				if job == nil || claimed(job) != c.held {
					t.Fatalf("job %v", job)
				}
				if len(r.history()) != 0 || len(r.model.all("historicjobs")) != 0 {
					t.Error("a result was told that is not kept")
				}
				pass(2 * time.Minute)
				a.ledger.failing(nil)
				pass(2 * time.Minute)
				r.done("success", "")
				if got := len(w.seen()); (got == 1) != c.held {
					t.Errorf("%d runs", got)
				}
			})
		})
	}
}

// TestResultThatIsNeverKept: the lease ends before there is room for it. Nobody is
// told that it is kept, and the job is done again.
func TestResultThatIsNeverKept(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		w := work(10 * time.Second)
		a := r.start("a", Options{}, w)
		settle()
		r.job("r1", "r1-sync")
		pass(5 * time.Second)
		a.ledger.failing(func(string) error { return syscall.ENOSPC })
		r.model.inject(func(call) fault { return fault{status: 500} })
		pass(time.Minute)
		if got := fmt.Sprint(a.texts(EventWaiting)); contains(got, "is kept") || a.count(EventLost) == 0 || len(a.Snapshot().Undelivered) != 0 {
			t.Errorf("told %q, unsent %v", got, a.Snapshot().Undelivered)
		}
		a.ledger.failing(nil)
		r.model.inject(nil)
		pass(3 * time.Minute)
		r.done("success", "")
		if got := len(w.seen()); got != 2 {
			t.Errorf("%d runs", got)
		}
	})
}

func TestHowWorkersEnd(t *testing.T) {
	cases := []struct {
		name    string
		w       *script
		state   string
		message string
	}{
		{"error", worker(func(context.Context, *Task) error { return errors.New("no such branch") }), "error", "no such branch"},
		{"panic", worker(func(context.Context, *Task) error { panic("index out of range") }), "error", "worker panicked: index out of range"},
		{"timeout", work(time.Hour), "dead", "job did not end within 1m0s (3 attempts)"},
		{"finished although the time was up", worker(func(context.Context, *Task) error { <-time.After(70 * time.Second); return nil }), "success", ""},
		{"slow to return after its time", worker(func(ctx context.Context, _ *Task) error {
			<-ctx.Done()
			<-time.After(3 * time.Minute)
			return ctx.Err()
		}), "dead", "job did not end within 1m0s (3 attempts)"},
		{"too many errors", worker(func(ctx context.Context, t *Task) error {
			t.Progress.StrictMaxErrors(2)
			for range 5 {
				t.Progress.Record(ctx, dashboard(Updated, errors.New("bad"), nil))
			}
			return t.Progress.TooManyErrors()
		}), "error", "too many errors: 5"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				a := r.start("a", Options{Timeout: time.Minute}, c.w)
				settle()
				r.job("r1", "r1-sync")
				pass(65 * time.Second)
				if strings.HasPrefix(c.name, "slow") {
					if job := r.model.get("jobs", "default", "r1-sync"); job == nil || len(a.Snapshot().Running) != 1 {
						t.Fatal("the job ended while its worker still ran")
					}
				}
				pass(15 * time.Minute)
				r.done(c.state, c.message)
				if a.waiting() != 0 {
					t.Errorf("%d names left in the queue", a.waiting())
				}
				r.job("r1", "again") // the process goes on
				pass(20 * time.Minute)
				if len(r.history()) != 2 {
					t.Error("the next job was not run")
				}
			})
		})
	}
}
