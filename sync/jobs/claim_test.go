package jobs

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
)

func isClaim(c call) bool {
	return c.Resource == "jobs" && c.Verb == "update" && !c.Lease && c.body.GetLabels()[api.LabelClaim] != ""
}

func TestClaimMeetsFaults(t *testing.T) {
	full := fmt.Errorf("%w: test", state.ErrFull)
	cases := []struct {
		name string
		// prepare sets the fault; it may use the rig and the agent.
		prepare func(r *rig, a *agent)
		// repair ends the fault.
		repair func(r *rig, a *agent)
		// tries is how many claims have arrived before the repair; -1 = do not ask.
		tries int
		// intents is how many claims are in the state file before the repair.
		intents int
		done    bool // before the repair
	}{
		{name: "no fault", tries: 1, done: true},
		{name: "the answer is lost", prepare: func(r *rig, _ *agent) {
			lost := false
			r.model.inject(func(c call) fault {
				if isClaim(c) && !lost {
					lost = true
					return fault{loseAnswer: true}
				}
				return fault{}
			})
		}, tries: -1, done: true},
		{name: "the request is lost", prepare: func(r *rig, _ *agent) {
			lost := false
			r.model.inject(func(c call) fault {
				if isClaim(c) && !lost {
					lost = true
					return fault{lose: true}
				}
				return fault{}
			})
		}, tries: -1, done: true},
		{name: "somebody changes the job before every try", prepare: func(r *rig, _ *agent) {
			n := 0
			r.model.inject(func(c call) fault {
				if isClaim(c) {
					n++
					r.model.edit("jobs", "default", c.Name, func(u *unstructured.Unstructured) { api.SetAnnotation(u, "noise", fmt.Sprint(n)) })
				}
				return fault{}
			})
		}, repair: func(r *rig, _ *agent) { r.model.inject(nil) }, tries: -1},
		{name: "somebody claims it in between", prepare: func(r *rig, _ *agent) {
			r.model.inject(func(c call) fault {
				if isClaim(c) {
					r.model.edit("jobs", "default", c.Name, claimOf("stranger", r.model.now()))
				}
				return fault{}
			})
		}, repair: func(r *rig, _ *agent) {
			r.model.inject(nil)
			r.model.edit("jobs", "default", "r1-sync", stripClaim)
		}, tries: 1},
		{name: "it is deleted in between", prepare: func(r *rig, _ *agent) {
			r.model.inject(func(c call) fault {
				if isClaim(c) {
					r.model.remove("jobs", "default", c.Name)
				}
				return fault{}
			})
		}, repair: func(r *rig, _ *agent) { r.model.inject(nil); r.job("r1", "r1-sync") }, tries: 1},
		{name: "the server forbids it", prepare: func(r *rig, _ *agent) {
			r.model.inject(func(c call) fault {
				if isClaim(c) {
					return fault{status: 403}
				}
				return fault{}
			})
		}, repair: func(r *rig, _ *agent) { r.model.inject(nil) }, tries: -1},
		{name: "the time of the server is unknown", prepare: func(r *rig, _ *agent) { r.model.set(func() { r.model.noDate = true }) },
			repair: func(r *rig, _ *agent) { r.model.set(func() { r.model.noDate = false }) }},
		{name: "the state file is full", prepare: func(_ *rig, a *agent) { a.ledger.failing(func(string) error { return full }) },
			repair: func(_ *rig, a *agent) { a.ledger.failing(nil) }},
		{name: "the disk is full when the claim is confirmed", prepare: func(_ *rig, a *agent) {
			n := 0
			a.ledger.failing(func(op string) error {
				if n++; op == "claim" && n == 2 {
					return syscall.ENOSPC
				}
				return nil
			})
		}, repair: func(*rig, *agent) {}, tries: -1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				w := quick()
				r.model.set(func() { r.model.noDate = c.name == "the time of the server is unknown" })
				a := r.start("a", Options{}, w)
				settle()
				if c.prepare != nil {
					c.prepare(r, a)
				}
				r.repository("r1")
				r.job("r1", "r1-sync")
				pass(5 * time.Second)
				if tries := r.model.arrived(isClaim); c.tries >= 0 && tries != c.tries {
					t.Errorf("%d claims arrived, want %d", tries, c.tries)
				}
				if got := len(r.claims()); got != c.intents {
					t.Errorf("%d claims in the state file, want %d", got, c.intents)
				}
				if ended := len(r.history()) == 1; ended != c.done {
					t.Errorf("ended: %t, want %t", ended, c.done)
				}
				if c.repair != nil {
					c.repair(r, a)
				}
				pass(2 * time.Minute)
				r.done("success", "")
				if got := w.seen(); len(got) != 1 {
					t.Errorf("runs %q", got)
				}
			})
		})
	}
}

// TestClaimCarriesServerTime: whatever the host's clock says.
func TestClaimCarriesServerTime(t *testing.T) {
	for _, skew := range []time.Duration{0, time.Hour, -time.Hour, 10 * 365 * 24 * time.Hour, -10 * 365 * 24 * time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.model.skew = skew
				r.repository("r1")
				r.job("r1", "r1-sync")
				r.start("a", Options{}, work(time.Minute))
				pass(45 * time.Second)
				ms, err := r.clock().Millis(10 * time.Second)
				if err != nil {
					t.Fatal(err)
				}
				if off := time.UnixMilli(ms).Sub(r.model.now()).Abs(); off > time.Second {
					t.Errorf("the agent is %s off", off)
				}
				pass(time.Minute)
				rec := r.done("success", "")
				if off := rec.Finished.Sub(r.model.now()).Abs(); off > time.Minute {
					t.Errorf("the record is stamped %s off the server's time", off)
				}
			}) // the oracle looks at every claim time
		})
	}
}

func (r *rig) clock() serverClock { return r.agents[len(r.agents)-1].env.clock.server }

// TestTwoAgentsRace: two agents, two state files, one queue.
func TestTwoAgentsRace(t *testing.T) {
	bubble(t, func(r *rig) {
		const n = 60
		for i := range 10 {
			r.repository(fmt.Sprint("r", i))
		}
		w1, w2 := work(time.Second), work(time.Second)
		r.start("a", Options{}, w1)
		other := r.open("other.db")
		r.startOn(other, "b", Options{}, w2)
		for i := range n {
			r.job(fmt.Sprint("r", i%10), fmt.Sprint("job", i))
		}
		pass(5 * time.Minute)
		if left := len(r.model.all("jobs")); left != 0 {
			t.Fatalf("%d jobs left", left)
		}
		if got := len(r.model.all("historicjobs")); got != n {
			t.Errorf("%d HistoricJobs", got)
		}
		if got := len(w1.seen()) + len(w2.seen()); got != n || len(w1.seen()) == 0 || len(w2.seen()) == 0 {
			t.Errorf("%d and %d runs", len(w1.seen()), len(w2.seen()))
		}
		theirs, err := other.HistoryCount(context.Background())
		if err != nil || theirs+len(r.history()) != n {
			t.Errorf("%d and %d records, %v", len(r.history()), theirs, err)
		}
	})
}

func TestEligibility(t *testing.T) {
	pending := func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{api.LabelPendingDelete: "true"}) }
	going := func(u *unstructured.Unstructured) {
		now := stamp(time.Now())
		u.SetDeletionTimestamp(&now)
		u.SetFinalizers([]string{"example.com/wait"})
	}
	eu := func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"site": "eu"}) }
	spec := func(field string, v any) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) { u.Object["spec"].(map[string]any)[field] = v }
	}
	cases := []struct {
		name    string
		options Options
		repo    func(*unstructured.Unstructured) // nil = plain
		noRepo  bool
		job     []func(*unstructured.Unstructured)
		ready   func(Task) error
		left    string // why it is left; "-" = left without a word
		state   string // how it ends
		text    string
		runs    int
	}{
		{name: "plain", state: "success", runs: 1},
		{name: "unknown action", job: []func(*unstructured.Unstructured){action("paint")}, left: `no worker for action "paint"`},
		{name: "action of others", options: Options{Actions: []string{"releaseResources"}}, left: "-"},
		{name: "repository of others", options: Options{Selector: selector("site=eu")}, left: "-"},
		{name: "repository selected", options: Options{Selector: selector("site=eu")}, repo: eu, state: "success", runs: 1},
		{name: "no such repository", noRepo: true, state: "error", text: `repository "r1" does not exist in namespace "default"`},
		{name: "no such repository, and a selector", noRepo: true, options: Options{Selector: selector("site=eu")}, left: "-"},
		{name: "no repository named", job: []func(*unstructured.Unstructured){spec("repository", "")}, state: "error", text: "spec.repository is not set"},
		{name: "repository being deleted", repo: going, state: "warning", text: "is being deleted"},
		{name: "repository about to be deleted", repo: pending, state: "warning", text: "about to be deleted"},
		{name: "orphan action, repository gone", noRepo: true, job: []func(*unstructured.Unstructured){action("releaseResources")}, state: "success", runs: 1},
		{name: "orphan action, repository going", repo: going, job: []func(*unstructured.Unstructured){action("releaseResources")}, state: "success", runs: 1},
		{name: "orphan action, repository there", job: []func(*unstructured.Unstructured){action("releaseResources")}, state: "error", text: "to be deleted first"},
		{name: "spec of the wrong type", job: []func(*unstructured.Unstructured){spec("pull", "now")}, left: "read Job default/r1-sync"},
		{name: "credentials missing", ready: func(Task) error { return errors.New("no credentials for this repository") }, left: "no credentials"},
		{name: "ready panics", ready: func(Task) error { panic("oh") }, left: "worker panicked: oh"},
		{name: "claimed by somebody", job: []func(*unstructured.Unstructured){claimOf("x", time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))}, left: "-"},
		{name: "cancelled before", job: []func(*unstructured.Unstructured){func(u *unstructured.Unstructured) { api.SetAnnotation(u, api.AnnoCancel, "not now") }}, state: "cancelled", text: "cancelled before it began: not now"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				w, orphans := quick(), quick()
				w.ready, orphans.action = c.ready, "releaseResources"
				if !c.noRepo {
					change := c.repo
					if change == nil {
						change = func(*unstructured.Unstructured) {}
					}
					r.repository("r1", change)
				}
				a := r.start("a", c.options, w, orphans)
				settle()
				r.job("r1", "r1-sync", c.job...)
				pass(40 * time.Second)
				if got := len(w.seen()) + len(orphans.seen()); got != c.runs {
					t.Errorf("%d runs, want %d", got, c.runs)
				}
				if c.left == "" {
					r.done(c.state, c.text)
					return
				}
				if n := r.model.writes(func(e entry) bool { return e.Agent == "a" }); n != 0 {
					t.Errorf("%d writes about a job that is not for this agent", n)
				}
				if len(r.claims()) != 0 || len(r.history()) != 0 {
					t.Error("the state file knows it")
				}
				told := a.texts(EventSkipped)
				if c.left == "-" && len(told) != 0 || c.left != "-" && (len(told) != 1 || !contains(told[0], c.left)) {
					t.Errorf("told %q, want %q once", told, c.left)
				}
			})
		})
	}
}

// TestReadyLater: a job that could not be run is taken when it can.
func TestReadyLater(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		w, ok := quick(), make(chan struct{})
		w.ready = func(Task) error {
			select {
			case <-ok:
				return nil
			default:
				return errors.New("no credentials")
			}
		}
		r.start("a", Options{}, w)
		r.job("r1", "r1-sync")
		pass(time.Minute)
		close(ok)
		pass(31 * time.Second)
		r.done("success", "")
	})
}

// TestRepositoryOfTheSameFile: both were applied at once, the job first.
func TestRepositoryOfTheSameFile(t *testing.T) {
	bubble(t, func(r *rig) {
		r.start("a", Options{}, quick())
		settle()
		r.job("r1", "r1-sync")
		pass(500 * time.Millisecond)
		r.repository("r1")
		pass(5 * time.Second)
		r.done("success", "")
	})
}
