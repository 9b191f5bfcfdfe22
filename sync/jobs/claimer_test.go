package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/testenv/suite"
)

func TestEligibility(t *testing.T) {
	pending := func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{api.LabelPendingDelete: "true"}) }
	going := func(u *unstructured.Unstructured) {
		now := stamp(time.Now())
		u.SetDeletionTimestamp(&now)
		u.SetFinalizers([]string{"example.com/wait"})
	}
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
		{name: "unknown action", job: []func(*unstructured.Unstructured){action("paint")}, left: `no agent serves paint`},
		{name: "action of others", options: Options{Actions: []string{"releaseResources"}}, left: "-"},
		{name: "repository of others", options: Options{Selector: selector("site=eu")}, left: "-"},
		{name: "repository selected", options: Options{Selector: selector("site=eu")}, repo: labelled("eu"), state: "success", runs: 1},
		{name: "no such repository", noRepo: true, state: "error", text: `repository "r1" does not exist in namespace "default"`},
		{name: "no such repository, and a selector", noRepo: true, options: Options{Selector: selector("site=eu")}, left: "-"},
		{name: "no repository named", job: []func(*unstructured.Unstructured){spec("repository", "")}, state: "error",
			text: "spec.repository is not set"},
		{name: "repository being deleted", repo: going, state: "warning", text: "is being deleted"},
		{name: "repository about to be deleted", repo: pending, state: "warning", text: "about to be deleted"},
		{name: "orphan action, repository gone", noRepo: true, job: []func(*unstructured.Unstructured){action("releaseResources")},
			state: "success", runs: 1},
		{name: "orphan action, repository going", repo: going, job: []func(*unstructured.Unstructured){action("releaseResources")},
			state: "success", runs: 1},
		{name: "orphan action, repository there", job: []func(*unstructured.Unstructured){action("releaseResources")}, state: "error",
			text: "to be deleted first"},
		{name: "spec of the wrong type", job: []func(*unstructured.Unstructured){spec("pull", "now")}, left: "read Job default/r1-sync"},
		{name: "credentials missing", ready: func(Task) error { return errors.New("no credentials for this repository") },
			left: "no credentials"},
		{name: "ready panics", ready: func(Task) error { panic("oh") }, left: "worker panicked: oh"},
		{name: "claimed", job: []func(*unstructured.Unstructured){claimOf("x", time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))}, left: "-"},
		{name: "cancelled before", job: []func(*unstructured.Unstructured){with(api.AnnoCancel, "not now")}, state: "cancelled", text: "cancelled before it began: not now"},
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

// TestClaimOfAnOldVersion: a job is claimed as the watch has shown it. When that is behind, the API
// is asked once, and the job is claimed as it is there, or left to its owner.
func TestClaimOfAnOldVersion(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *rig)
		kinds  map[string]int // requests about jobs and their history
		runs   int
	}{
		"as it was": {change: func(*rig) {}, kinds: map[string]int{"update jobs": 1, "create historicjobs": 1, "delete jobs": 1}, runs: 1},
		"edited": {
			change: func(r *rig) {
				r.model.edit("jobs", "default", "old", func(u *unstructured.Unstructured) { api.SetLabel(u, "team", "night") })
			},
			// The watch shows the edited one when it has ended.
			kinds: map[string]int{"update jobs": 2, "get jobs": 2, "create historicjobs": 1, "delete jobs": 1}, runs: 1,
		},
		"claimed by another agent": {
			change: func(r *rig) {
				r.model.edit("jobs", "default", "old", claimOf("limpet-x.1", time.Now().Add(time.Hour)))
			},
			kinds: map[string]int{"update jobs": 1, "get jobs": 1},
		},
		"its name given to a job of another repository": {
			change: func(r *rig) {
				r.model.remove("jobs", "default", "old")
				r.job("r2", "old")
			},
			kinds: map[string]int{"update jobs": 2, "get jobs": 3, "create historicjobs": 1, "delete jobs": 1}, runs: 1,
		},
		"ended here in another life": {
			change: func(r *rig) {
				ref := refOf(r.model.get("jobs", "default", "old"))
				rec := state.Record{UID: ref.uid, Namespace: ref.Namespace, Name: ref.Name, Repository: ref.repository,
					Action: ref.action, Agent: "a", State: "success", HistoricJob: archivePosted, Finished: time.Now()}
				if err := r.store.PutRecord(context.Background(), rec); err != nil {
					r.t.Fatal(err)
				}
				r.model.edit("jobs", "default", "old", func(u *unstructured.Unstructured) { api.SetLabel(u, "team", "night") })
			},
			// The watch shows the edited one when it is gone.
			kinds: map[string]int{"get jobs": 2, "delete jobs": 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				r.repository("r2")
				w := quick()
				a := r.start("a", Options{}, w)
				pass(time.Second)
				a.link.lag(func() time.Duration { return 200 * time.Millisecond })
				r.model.set(func() { r.model.calls = nil })
				r.job("r1", "old")
				pass(100 * time.Millisecond)
				c.change(r)
				pass(time.Second)
				kinds := map[string]int{}
				r.model.arrived(func(c call) bool {
					if c.Verb != "list" {
						kinds[c.Verb+" "+c.Resource]++
					}
					return true
				})
				if !maps.Equal(kinds, c.kinds) || len(w.seen()) != c.runs {
					t.Errorf("%d runs, %v", len(w.seen()), kinds)
				}
				if claims, notes := r.claims(), a.count(EventNote); len(claims) != 0 || notes > 1 {
					t.Errorf("%d notes, claims left: %+v", notes, claims)
				}
			})
		})
	}
}

// TestWriteOfAChangedRepository: what writes to a repository goes by the Repository of the API: its
// branch, its workflows and the signatures that it demands, also where the watch is behind.
func TestWriteOfAChangedRepository(t *testing.T) {
	for _, name := range api.WriteActions {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				seen := ""
				a := r.start("a", Options{}, &script{action: name, run: func(_ context.Context, task *Task) error {
					seen = api.Label(task.Repo, "team")
					return nil
				}})
				pass(time.Second)
				a.link.lag(func() time.Duration { return 200 * time.Millisecond })
				for i := range 5 {
					r.model.edit("repositories", "default", "r1", func(u *unstructured.Unstructured) {
						api.SetLabel(u, "team", fmt.Sprint(i))
					})
				}
				r.job("r1", "j", action(name))
				pass(2 * time.Second)
				if seen != "4" {
					t.Errorf("it ran for version %q of the Repository", seen)
				}
			})
		})
	}
}

// TestEndForARepository: no job ends for what the watch shows of its repository while the API knows
// better, nor for an answer that says nothing of it.
func TestEndForARepository(t *testing.T) {
	living := func(*unstructured.Unstructured) {}
	going := func(u *unstructured.Unstructured) {
		now := stamp(time.Now())
		u.SetDeletionTimestamp(&now)
		u.SetLabels(map[string]string{"site": "eu"})
	}
	remove := func(r *rig) { r.model.remove("repositories", "default", "r1") }
	site, err := labels.Parse("site=eu")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		action  string
		options Options
		before  func(*unstructured.Unstructured)
		change  func(r *rig)
		answer  fault // to the first read of the repository
		state   string
		text    string
	}{
		"deleted":     {action: "releaseResources", before: living, change: remove, state: "success"},
		"read later":  {action: "releaseResources", before: living, change: remove, answer: fault{status: 500}, state: "success"},
		"server busy": {action: "releaseResources", before: living, change: remove, answer: fault{status: 429, after: 20}, state: "success"},
		"404 of a proxy": {action: "releaseResources", before: living, change: func(*rig) {}, answer: fault{status: 404},
			state: "error", text: "to be deleted first"},
		"made again": {action: "pull", before: going, change: func(r *rig) {
			remove(r)
			r.repository("r1")
		}, state: "success"},
		"gone meanwhile": {action: "pull", before: going, change: remove, state: "error", text: "does not exist"},
		"gone meanwhile, and a selector": {action: "pull", options: Options{Selector: site}, before: going, change: remove,
			state: "error", text: "does not exist"},
		"as it was": {action: "pull", before: going, change: func(*rig) {}, state: "warning", text: "is being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1", c.before)
				w, orphans := quick(), quick()
				orphans.action = "releaseResources"
				a := r.start("a", c.options, w, orphans)
				pass(time.Second)
				a.link.lag(func() time.Duration { return 200 * time.Millisecond })
				for i := range 5 { // before what happens next, in the watch of repositories alone
					r.model.edit("repositories", "default", "r1", func(u *unstructured.Unstructured) {
						api.SetLabel(u, "team", fmt.Sprint(i))
					})
				}
				reads := 0
				r.model.inject(func(call call) fault {
					if call.Verb == "get" && call.Resource == "repositories" {
						if reads++; reads == 1 {
							return c.answer
						}
					}
					return fault{}
				})
				c.change(r)
				r.job("r1", "r1-sync", action(c.action))
				pass(time.Minute)
				r.done(c.state, c.text)
				if c.answer.status > 0 && reads == 0 || reads > 2 {
					t.Errorf("the repository was read %d times", reads)
				}
			})
		})
	}
}

// TestWriteOfAnUnreadRepository: a job whose Repository the API does not give is released, and runs
// once when it does.
func TestWriteOfAnUnreadRepository(t *testing.T) {
	for _, code := range []int{403, 429, 500} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				w := &script{action: "push", run: func(context.Context, *Task) error { return nil }}
				r.start("a", Options{}, w)
				pass(time.Second)
				r.model.inject(func(c call) fault {
					if c.Verb == "get" && c.Resource == "repositories" {
						return fault{status: code, after: 1}
					}
					return fault{}
				})
				r.job("r1", "j", action("push"))
				pass(10 * time.Second)
				if left := r.model.get("jobs", "default", "j"); left == nil || claimed(left) || len(w.seen()) != 0 {
					t.Errorf("job %v, runs %q", left, w.seen())
				}
				r.model.inject(nil)
				pass(5 * time.Minute)
				if r.done("success", ""); len(w.seen()) != 1 {
					t.Errorf("runs %q", w.seen())
				}
			})
		})
	}
}

// TestIntentForAnOldVersion: the intent to claim a job that others have claimed is forgotten at
// once, also when the state file could not be written at first.
func TestIntentForAnOldVersion(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		a := r.start("a", Options{}, quick())
		pass(time.Second)
		a.link.lag(func() time.Duration { return 200 * time.Millisecond })
		full := true
		a.ledger.failing(func(op string) error {
			if op == "drop" && full {
				full = false
				return state.ErrFull
			}
			return nil
		})
		r.job("r1", "old")
		pass(100 * time.Millisecond)
		r.model.edit("jobs", "default", "old", claimOf("limpet-x.1", time.Now().Add(time.Hour)))
		pass(time.Second)
		if claims := r.claims(); full || len(claims) != 0 {
			t.Errorf("claims left: %+v", claims)
		}
	})
}

// stream posts jobs to agents over a network that takes its time, and measures.
type stream struct {
	rig    *rig
	mu     sync.Mutex // guards the fields below
	random *rand.Rand
	posted int
}

const streamRepositories = 20

// newStream starts agents with state files of their own, and has calls and watches take some
// milliseconds from now on.
func newStream(r *rig, agents int) *stream {
	s := &stream{rig: r, random: rand.New(rand.NewPCG(uint64(agents), 3))}
	for n := range streamRepositories {
		r.repository(fmt.Sprint("r", n))
	}
	for n := range agents {
		a := r.startOn(r.open(fmt.Sprint(n, ".db")), fmt.Sprint("agent-", n), Options{}, quick())
		a.link.lag(s.latency)
	}
	r.model.inject(func(call) fault {
		return fault{delay: s.latency(), lateAnswer: s.latency()}
	})
	pass(3 * time.Second)
	return s
}

func (s *stream) latency() time.Duration { return s.exp(2 * time.Millisecond) }

// exp returns a random duration of that average.
func (s *stream) exp(mean time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.random.ExpFloat64() * float64(mean))
}

// post makes n jobs, one after the other, with pauses of that average, waits until all are done,
// and returns how many claims were won and how many were in vain.
func (s *stream) post(n int, pause time.Duration, change ...jobOption) (won, vain int) {
	s.rig.t.Helper()
	wonBefore, vainBefore := s.claims()
	for range n {
		s.posted++
		name := fmt.Sprint("job-", s.posted)
		s.rig.job(fmt.Sprint("r", s.posted%streamRepositories), name, change...)
		if pause > 0 {
			pass(s.exp(pause))
		}
	}
	for began := time.Now(); len(s.rig.model.all("jobs")) > 0; pass(20 * time.Millisecond) {
		if time.Since(began) > 10*time.Minute {
			s.rig.t.Fatalf("%d jobs are left", len(s.rig.model.all("jobs")))
		}
	}
	won, vain = s.claims()
	return won - wonBefore, vain - vainBefore
}

// claims counts the claims of all agents, and those that were lost or given back.
func (s *stream) claims() (won, vain int) {
	for _, a := range s.rig.agents {
		won += a.claimResults(ClaimWon)
		vain += a.claimResults(ClaimConflict) + a.count(EventReleased)
	}
	return won, vain
}

// end lets the network be quick again: a bubble ends with what is under way.
func (s *stream) end() {
	for _, a := range s.rig.agents {
		a.link.lag(nil)
	}
	s.rig.model.inject(nil)
	pass(3 * time.Second)
}

// TestAgentsShareTheQueue: agents that have seen each other's claims lose few of their own, whether
// jobs come as fast as they can be done, or single ones, or more than can be done, or jobs whose
// backoff ends at one moment.
func TestAgentsShareTheQueue(t *testing.T) {
	for _, c := range []struct {
		name           string
		agents         int
		pause, backoff time.Duration
		full           bool // in the full lane only
	}{
		{"single jobs, 8 agents", 8, 300 * time.Millisecond, 0, true},
		{"a flood, 8 agents", 8, 4 * time.Millisecond, 0, true},
		{"a flood, 4 agents", 4, 4 * time.Millisecond, 0, false},
		{"a backlog, 8 agents", 8, 0, 0, true},
		{"after a backoff, 6 agents", 6, 0, 100 * time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.full {
				suite.Full(t)
			}
			bubble(t, func(r *rig) {
				s := newStream(r, c.agents)
				s.post(50*c.agents, 30*time.Millisecond) // now they know each other
				if c.pause < time.Second/10 {
					s.post(80*c.agents, 0) // and how long a step is among agents without a free driver
				}
				var change []jobOption
				n := 400
				if c.backoff > 0 {
					n = streamRepositories
					change = append(change, with(api.AnnoNotBefore, fmt.Sprint(time.Now().Add(c.backoff).UnixMilli())))
				}
				won, vain := s.post(n, c.pause, change...)
				if t.Logf("%d claims, %d in vain", won, vain); vain*20 > won {
					t.Errorf("%d of %d claims are in vain", vain, won)
				}
				s.end()
			})
		})
	}
}

// fixedClock is the state of the clock of a server.
type fixedClock struct {
	serverClock
	ahead, errBound time.Duration
	known           bool
}

func (c fixedClock) Now() (time.Time, time.Duration, bool) {
	return time.Now().Add(c.ahead), c.errBound, c.known
}

// TestRecordsHaveTheTimeOfTheLog: the local one, unless the server's clock is sure to be another.
func TestRecordsHaveTheTimeOfTheLog(t *testing.T) {
	t.Parallel()
	for c, want := range map[fixedClock]time.Duration{
		{}: 0, {ahead: 400 * time.Millisecond, errBound: 500 * time.Millisecond, known: true}: 0,
		{ahead: -400 * time.Millisecond, errBound: 500 * time.Millisecond, known: true}: 0,
		{ahead: time.Hour, errBound: 500 * time.Millisecond, known: true}:               time.Hour,
	} {
		synctest.Test(t, func(t *testing.T) {
			k := &clock{server: c, host: realHost{}}
			if got := time.Until(time.UnixMilli(k.roughMillis())); got != want {
				t.Errorf("%+v: %v off the local time, want %v", c, got, want)
			}
		})
	}
}
