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
	"limpet/sync/resources"
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

// noise has others write the job before each of the first n calls of a kind.
func (r *rig) noise(n int, kind func(call) bool) {
	r.model.inject(func(c call) fault {
		if kind(c) && n > 0 {
			n--
			r.model.edit("jobs", "default", c.Name, func(u *unstructured.Unstructured) { api.SetAnnotation(u, "noise", fmt.Sprint(n)) })
		}
		return fault{}
	})
}

// TestCompletionMeetsFaults: whatever goes wrong between the end of the work and the end of the
// claim, the job ends once and has one HistoricJob at most.
func TestCompletionMeetsFaults(t *testing.T) {
	const ever = 1 << 30
	cases := []struct {
		name     string
		fault    func(c call) fault
		absent   int // status of historicjobs
		noise    int // writes of others
		historic string
		within   time.Duration
	}{
		{name: "nothing", historic: archivePosted},
		{name: "historicjobs answers 404", absent: 404, historic: archiveUnavailable},
		{name: "historicjobs answers 403", absent: 403, historic: archiveUnavailable},
		{name: "historicjobs answers 405", absent: 405, historic: archiveUnavailable},
		{name: "history refused as invalid", fault: during(archiving, ever, fault{status: 422}), historic: archiveSkipped},
		{name: "history fails for ever", fault: during(archiving, ever, fault{status: 500}), historic: archiveSkipped,
			within: 90 * time.Second},
		{name: "history fails twice", fault: during(archiving, 2, fault{status: 500}), historic: archivePosted,
			within: 5 * time.Second},
		{name: "history is busy", fault: during(archiving, 1, fault{status: 503, after: 7}), historic: archivePosted,
			within: 10 * time.Second},
		{name: "answer of history is lost", fault: during(archiving, 1, fault{loseAnswer: true}), historic: archivePosted,
			within: 5 * time.Second},
		{name: "delete fails", fault: during(deleting, 3, fault{status: 500}), historic: archivePosted, within: 5 * time.Second},
		{name: "delete is lost", fault: during(deleting, 1, fault{lose: true}), historic: archivePosted, within: 5 * time.Second},
		{name: "answer of delete is lost", fault: during(deleting, 1, fault{loseAnswer: true}), historic: archivePosted,
			within: 5 * time.Second},
		{name: "others write the job before each delete", noise: 5, historic: archivePosted},
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
				r.model.inject(c.fault)
				if c.noise > 0 {
					r.noise(c.noise, deleting)
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

// TestHowWorkersEnd: when no attempt is left the job is an error for Grafana and dead for people.
func TestHowWorkersEnd(t *testing.T) {
	cases := []struct {
		name    string
		w       *script
		state   string
		message string
		reason  string // of the dead letter
	}{
		{"error", worker(func(context.Context, *Task) error { return errors.New("no such branch") }), "error", "no such branch", ""},
		{"panic", worker(func(context.Context, *Task) error { panic("index out of range") }), "error", "worker panicked: index out of range", ""},
		{"transient", worker(func(context.Context, *Task) error { return errPassing }), "dead", "the git host does not answer", attemptTransient},
		{"timeout", work(time.Hour), "dead", "job did not end within 1m0s", attemptTimeout},
		{"finished although the time was up", worker(func(context.Context, *Task) error { <-time.After(70 * time.Second); return nil }),
			"success", "", ""},
		{"slow to return after its time", worker(func(ctx context.Context, _ *Task) error {
			<-ctx.Done()
			<-time.After(3 * time.Minute)
			return ctx.Err()
		}), "dead", "job did not end within 1m0s", attemptTimeout},
		{"too many errors", worker(func(ctx context.Context, t *Task) error {
			t.Progress.StrictMaxErrors(2)
			for range 5 {
				t.Progress.Record(ctx, dashboard(resources.Updated, errors.New("bad"), nil))
			}
			return t.Progress.TooManyErrors()
		}), "error", "too many errors: 5", ""},
		{"one error that is too many", worker(func(ctx context.Context, t *Task) error {
			t.Progress.StrictMaxErrors(1)
			t.Progress.Record(ctx, dashboard(resources.Updated, errors.New("bad"), nil))
			return t.Progress.TooManyErrors()
		}), "error", "bad", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				a := r.start("a", Options{Timeout: time.Minute, MaxAttempts: 2}, c.w)
				settle()
				r.job("r1", "r1-sync")
				pass(65 * time.Second)
				if strings.HasPrefix(c.name, "slow") {
					if job := r.model.get("jobs", "default", "r1-sync"); job == nil || len(a.Snapshot().Running) != 1 {
						t.Fatal("the job ended while its worker still ran")
					}
				}
				pass(15 * time.Minute)
				rec := r.done(c.state, c.message)
				if d := rec.DeadLetter; (c.reason != "") != (d != nil) {
					t.Errorf("dead letter %+v", d)
				} else if d != nil {
					historic, err := api.JobView(r.model.all("historicjobs")[0])
					if d.Reason != c.reason || d.Attempts != 2 || d.LastError != c.message || rec.Message != c.message+" (2 attempts)" ||
						a.count(EventDead) != 1 || err != nil || historic.Status.State != api.StateError || historic.Status.Message != rec.Message ||
						!slices.Equal(told(rec.Attempts), []string{"1 a " + c.reason, "2 a " + c.reason}) {
						t.Errorf("dead letter %+v, record %+v, HistoricJob %+v, %v", d, rec, historic.Status, err)
					}
				}
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

// dead is a job of a stranger who has died some time ago.
func (r *rig) dead(name string, age time.Duration, change ...func(*unstructured.Unstructured)) {
	r.job("r1", name, append([]func(*unstructured.Unstructured){claimOf("stranger", r.model.now().Add(-age))}, change...)...)
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
		{name: "alive, the watch is far behind", make: func(r *rig) { r.dead("j", 0) }, during: func(r *rig) {
			r.agents[0].link.lag(func() time.Duration { return 10 * time.Minute })
			r.model.edit("jobs", "default", "j", claimOf("stranger", r.model.now()))
		}},
		{name: "alive, its clock is two minutes slow", make: func(r *rig) { r.dead("j", 2*time.Minute) }, during: func(r *rig) {
			r.model.edit("jobs", "default", "j", claimOf("stranger", r.model.now().Add(-2*time.Minute)))
		}},
		{name: "alive, its clock is an hour fast", make: func(r *rig) { r.dead("j", -time.Hour) }, during: func(r *rig) {
			r.model.edit("jobs", "default", "j", claimOf("stranger", r.model.now().Add(time.Hour)))
		}},
		{name: "dead, its clock was a year fast", make: func(r *rig) { r.dead("j", -365*24*time.Hour) }, notBefore: 59 * time.Second,
			by: 5 * time.Minute, attempt: 2},
		{name: "a claim that is no number", make: func(r *rig) { r.job("r1", "j", rawClaim("yesterday")) }, notBefore: 59 * time.Second,
			by: 5 * time.Minute, attempt: 2},
		{name: "an owner without a time", make: func(r *rig) {
			r.job("r1", "j", func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{api.LabelClaimOwner: "x"}) })
		}, notBefore: 59 * time.Second, by: 5 * time.Minute, attempt: 2},
		{name: "second attempt died", make: func(r *rig) { r.dead("j", time.Hour, with(api.AnnoAttempt, "1")) }, notBefore: 59 * time.Second,
			by: 70 * time.Second, attempt: 3},
		{name: "third attempt died", make: func(r *rig) { r.dead("j", time.Hour, with(api.AnnoAttempt, "2")) }, notBefore: 59 * time.Second,
			by: 70 * time.Second, state: "dead", text: expiredMessage + " (3 attempts)"},
		{name: "fail", cleanup: CleanupFail, make: func(r *rig) { r.dead("j", time.Hour) }, notBefore: 59 * time.Second, by: 70 * time.Second,
			state: "error", text: expiredMessage},
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

// TestRescueOfOneJobByTwo: the agent that comes second has nothing to tell.
func TestRescueOfOneJobByTwo(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		r.dead("j", time.Hour)
		a := r.start("a", Options{Cleanup: CleanupFail}, quick())
		b := r.startOn(r.open("b.db"), "b", Options{Cleanup: CleanupFail}, quick())
		r.model.inject(func(c call) fault {
			if c.Verb == "update" {
				return fault{delay: 5 * time.Second}
			}
			return fault{}
		})
		pass(10 * time.Minute)
		if lost := a.claimResults(ClaimConflict) + b.claimResults(ClaimConflict); lost != 1 {
			t.Fatalf("%d of two claims were too late", lost)
		}
		if notes := append(a.texts(EventNote), b.texts(EventNote)...); len(notes) != 0 || len(r.model.all("jobs")) != 0 {
			t.Errorf("told %q", notes)
		}
	})
}

// TestFinishedJobIsNotRescued: its owner died before the DELETE, and the server cannot say so at
// first.
func TestFinishedJobIsNotRescued(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		r.dead("j", time.Hour)
		h := &unstructured.Unstructured{Object: map[string]any{"kind": "HistoricJob"}}
		h.SetName("j-x")
		h.SetLabels(map[string]string{api.LabelOriginalUID: string(r.model.get("jobs", "default", "j").GetUID())})
		r.model.put("historicjobs", "default", h)
		r.model.inject(during(func(c call) bool { return c.Verb == "list" && c.Resource == "historicjobs" }, 3, fault{status: 503}))
		w := quick()
		r.start("a", Options{}, w)
		pass(10 * time.Minute)
		if len(w.seen()) != 0 || len(r.model.all("jobs")) != 0 {
			t.Errorf("done again: %q, %d jobs left", w.seen(), len(r.model.all("jobs")))
		}
	})
}

// old makes a HistoricJob and a local record that finished some time ago.
func (r *rig) old(name string, age time.Duration) {
	r.t.Helper()
	finished := r.model.now().Add(-age)
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": "HistoricJob",
		"status": map[string]any{"state": "success", "finished": finished.UnixMilli()}}}
	u.SetName(name)
	r.model.put("historicjobs", "default", u)
	if err := r.store.PutRecord(context.Background(), state.Record{UID: name, Namespace: "default", Name: name, State: "success",
		Finished: finished}); err != nil {
		r.t.Fatal(err)
	}
}

func TestPrune(t *testing.T) {
	hour := time.Hour
	cases := []struct {
		name          string
		o             Options
		after         time.Duration
		local, remote string // what is left of ages 0 h to 5 h
	}{
		{"no limits", Options{}, 24 * hour, "[0 1 2 3 4 5]", "[0 1 2 3 4 5]"},
		{"expiration for both", Options{HistoryExpiration: 2*hour + 30*time.Minute}, time.Minute, "[0 1 2]", "[0 1 2]"},
		{"expiration for the local one alone", Options{LocalHistory: 2*hour + 30*time.Minute}, time.Minute, "[0 1 2]", "[0 1 2 3 4 5]"},
		{"two expirations", Options{HistoryExpiration: 30 * time.Minute, LocalHistory: 4*hour + 30*time.Minute}, time.Minute, "[0 1 2 3 4]",
			"[0]"},
		{"by number", Options{LocalRecords: 2}, time.Minute, "[0 1]", "[0 1 2 3 4 5]"},
		{"by bytes", Options{LocalBytes: 450}, time.Minute, "[0 1 2]", "[0 1 2 3 4 5]"},
		{"by all of them", Options{LocalBytes: 450, LocalRecords: 5, HistoryExpiration: 90 * time.Minute}, time.Minute, "[0 1]", "[0 1]"},
		{"time goes on", Options{HistoryExpiration: 3*hour + 30*time.Minute}, 2*hour + 12*time.Minute, "[0 1]", "[0 1]"},
		{"a short one", Options{HistoryExpiration: 10 * time.Second}, 15 * time.Second, "[]", "[]"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				for age := range 6 {
					r.old(fmt.Sprint(age), time.Duration(age)*hour)
				}
				r.start("a", c.o, quick())
				pass(c.after)
				local, remote := []string{}, []string{}
				for _, rec := range r.history() {
					local = append(local, rec.Name)
				}
				for _, u := range r.model.all("historicjobs") {
					remote = append(remote, u.GetName())
				}
				if fmt.Sprint(local) != c.local || fmt.Sprint(remote) != c.remote {
					t.Errorf("local %v, want %s; in the API %v, want %s", local, c.local, remote, c.remote)
				}
			})
		})
	}
}

func TestPruneMeetsRefusals(t *testing.T) {
	for _, status := range []int{403, 404, 405, 500} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.old("old", 3*time.Hour)
				r.model.set(func() { r.model.absent["historicjobs"] = status })
				a := r.start("a", Options{HistoryExpiration: time.Hour}, quick())
				pass(3 * time.Hour)
				if got := a.texts(EventNote); len(got) != 1 || len(r.history()) != 0 {
					t.Errorf("told %q, %d local records are left", got, len(r.history()))
				}
			})
		})
	}
}

// TestTrimTakesItsHistoricJobsAlong where they stand in the same file, and nowhere else.
func TestTrimTakesItsHistoricJobsAlong(t *testing.T) {
	for _, same := range []bool{false, true} {
		t.Run(fmt.Sprint(same), func(t *testing.T) {
			bubble(t, func(r *rig) {
				for i := range 3 * trimEvery {
					r.repository(fmt.Sprint("r", i))
					r.job(fmt.Sprint("r", i), fmt.Sprint("j", i))
				}
				o := Options{LocalRecords: 10, HistoryExpiration: 24 * time.Hour}
				if same {
					o.OldestRecord = func(ctx context.Context) (time.Time, error) {
						info, err := r.store.Info(ctx)
						return info.Oldest, err
					}
				}
				r.start("a", o, work(time.Second))
				pass(5 * time.Minute)
				if left := len(r.model.all("jobs")); left != 0 {
					t.Fatalf("%d jobs left", left)
				}
				n := len(r.model.all("historicjobs"))
				if same && n > 10+trimEvery || !same && n != 3*trimEvery {
					t.Errorf("%d HistoricJobs are kept beside %d records", n, len(r.history()))
				}
			})
		})
	}
}
