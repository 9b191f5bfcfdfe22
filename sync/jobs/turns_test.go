package jobs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"limpet/sync/api"
	"limpet/sync/failpoint"
)

// stream posts jobs to agents over a network that takes its time, and measures.
type stream struct {
	rig    *rig
	mu     sync.Mutex // guards the fields below
	random *rand.Rand
	posted int
	among  int                  // repositories
	at     map[string]time.Time // of jobs that nobody has claimed
	waits  []time.Duration      // from the POST to the first claim that is sent
}

// streamRepositories are those that the jobs go to in turn. Agents are introduced
// on more of them, so that each is the first at some.
const (
	streamRepositories = 20
	introductions      = 200
)

// newStream has calls and watches take some milliseconds from now on.
func newStream(r *rig, seed uint64) *stream {
	s := &stream{rig: r, random: rand.New(rand.NewPCG(seed, 3)), among: streamRepositories, at: map[string]time.Time{}}
	for n := range introductions {
		r.repository(fmt.Sprint("r", n))
	}
	r.model.inject(func(c call) fault {
		s.mu.Lock()
		defer s.mu.Unlock()
		if at, ok := s.at[c.Name]; ok && c.Verb == "update" && c.Resource == "jobs" {
			s.waits = append(s.waits, time.Since(at))
			delete(s.at, c.Name)
		}
		return fault{delay: s.exp(2 * time.Millisecond), lateAnswer: s.exp(2 * time.Millisecond)}
	})
	return s
}

// exp returns a random duration of that average. The caller has the lock.
func (s *stream) exp(mean time.Duration) time.Duration {
	return time.Duration(s.random.ExpFloat64() * float64(mean))
}

// agents starts agents with state files of their own.
func (s *stream) agents(n int, o Options, work func() *script) (out []*agent) {
	for range n {
		out = append(out, s.agent(o, work()))
	}
	pass(3 * time.Second)
	return out
}

func (s *stream) agent(o Options, work ...Worker) *agent {
	nr := len(s.rig.agents)
	a := s.rig.startOn(s.rig.open(fmt.Sprint(nr, ".db")), fmt.Sprint("agent-", nr), o, work...)
	a.link.lag(func() time.Duration {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.exp(2 * time.Millisecond)
	})
	return a
}

// post makes n jobs, one after the other, with pauses of that average, and
// waits until all are done.
func (s *stream) post(n int, pause time.Duration) {
	s.rig.t.Helper()
	s.mu.Lock()
	s.waits = nil
	s.mu.Unlock()
	for range n {
		s.mu.Lock()
		s.posted++
		name, rest := fmt.Sprint("job-", s.posted), s.exp(pause)
		s.at[name] = time.Now()
		s.mu.Unlock()
		s.rig.job(fmt.Sprint("r", s.posted%s.among), name)
		if pause > 0 {
			pass(rest)
		}
	}
	for began := time.Now(); len(s.rig.model.all("jobs")) > 0; pass(20 * time.Millisecond) {
		if time.Since(began) > 10*time.Minute {
			s.rig.t.Fatalf("%d jobs are left", len(s.rig.model.all("jobs")))
		}
	}
}

// introduce posts jobs until every agent has claimed one.
func (s *stream) introduce() {
	s.rig.t.Helper()
	s.among = introductions
	defer func() { s.among = streamRepositories }()
	for slices.ContainsFunc(s.rig.agents, func(a *agent) bool { won, _ := a.rivalry.races(); return won == 0 }) {
		if s.post(20, 100*time.Millisecond); s.posted > 10_000 {
			for _, a := range s.rig.agents {
				won, lost := a.rivalry.races()
				s.rig.t.Logf("%s has won %d races and lost %d; head start %s", a.o.self, won, lost, a.rivalry.head())
			}
			s.rig.t.Fatalf("after %d jobs there is an agent that has done none", s.posted)
		}
	}
}

// quantile returns that of the waits of the last post.
func (s *stream) quantile(q float64) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.waits)
	return s.waits[int(q*float64(len(s.waits)-1))].Round(time.Millisecond / 10)
}

// races counts the claims of all agents, and those that were lost or given back.
func (s *stream) races() (won, vain int) {
	for _, a := range s.rig.agents {
		w, l := a.rivalry.races()
		won, vain = won+w, vain+l+a.count(EventReleased)
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

// TestAgentsClaimInTurn: agents that know each other lose few claims, whether
// single jobs come, or jobs as fast as they can be done, or more than that; each
// does its part; and an idle agent claims a job at once.
func TestAgentsClaimInTurn(t *testing.T) {
	for _, c := range []struct {
		name   string
		agents int
		pause  time.Duration
		most   float64 // of the claims, in vain
		p50    time.Duration
		p99    time.Duration
	}{
		{"single jobs, 2 agents", 2, 300 * time.Millisecond, 0.02, 20 * time.Millisecond, 60 * time.Millisecond},
		{"single jobs, 8 agents", 8, 300 * time.Millisecond, 0.02, 20 * time.Millisecond, 60 * time.Millisecond},
		{"a flood, 4 agents", 4, 4 * time.Millisecond, 0.05, time.Minute, time.Minute},
		{"a flood, 8 agents", 8, 4 * time.Millisecond, 0.05, time.Minute, time.Minute},
		{"a backlog, 4 agents", 4, 0, 0.05, time.Minute, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				s := newStream(r, 1)
				agents := s.agents(c.agents, Options{}, quick)
				s.introduce()
				// How many claims an agent can hold is learned by claims in vain, two or
				// so for each driver beyond the first. That is not what is measured.
				s.post(40*c.agents, 0)
				known, before := s.races()
				began := time.Now()
				s.post(400, c.pause)
				took := time.Since(began)
				won, vain := s.races()
				part := float64(vain-before) / float64(won-known)
				shares := []int{}
				for _, a := range agents {
					w, _ := a.rivalry.races()
					shares = append(shares, w)
				}
				t.Logf("%d claims in %s, %.3f in vain (%d of the first %d); claimed after p50 %s, p99 %s; shares %v",
					won-known, took.Round(time.Millisecond), part, before, known, s.quantile(0.5), s.quantile(0.99), shares)
				if part > c.most {
					t.Errorf("%.3f of the claims are in vain", part)
				}
				if s.quantile(0.5) > c.p50 || s.quantile(0.99) > c.p99 {
					t.Errorf("claimed after p50 %s, p99 %s", s.quantile(0.5), s.quantile(0.99))
				}
				s.end()
			})
		})
	}
}

// TestAFullAgentIsNotWaitedFor: while every driver of one agent is busy for long,
// the other takes the jobs of its repositories at once.
func TestAFullAgentIsNotWaitedFor(t *testing.T) {
	bubble(t, func(r *rig) {
		s := newStream(r, 2)
		task := worker(func(ctx context.Context, t *Task) error {
			if t.Name == "long" {
				rest(ctx, time.Minute)
			}
			return nil
		})
		agents := s.agents(2, Options{Drivers: 1}, func() *script { return task })
		s.introduce()
		r.job("r0", "long")
		pass(time.Second)
		s.mu.Lock()
		s.waits = nil
		s.mu.Unlock()
		before := s.posted
		busy, free := agents[0], agents[1]
		if len(free.Live()) > 0 {
			busy, free = free, busy
		}
		w, _ := free.rivalry.races()
		for range 40 {
			s.posted++
			name := fmt.Sprint("job-", s.posted)
			s.mu.Lock()
			s.at[name] = time.Now()
			s.mu.Unlock()
			r.job(fmt.Sprint("r", 1+s.posted%(streamRepositories-1)), name)
			pass(300 * time.Millisecond)
		}
		if len(busy.Live()) != 1 {
			t.Fatalf("%d long jobs run", len(busy.Live()))
		}
		if now, _ := free.rivalry.races(); now-w != s.posted-before || s.quantile(1) > 30*time.Millisecond {
			t.Errorf("%d of %d jobs were claimed by who is free, the last after %s", now-w, s.posted-before, s.quantile(1))
		}
		pass(time.Minute)
		s.end()
	})
}

// TestADeadAgentIsNotWaitedForLong: after one of two agents has died its
// repositories wait for a head start, and soon for nothing.
func TestADeadAgentIsNotWaitedForLong(t *testing.T) {
	bubble(t, func(r *rig) {
		s := newStream(r, 3)
		agents := s.agents(2, Options{}, quick)
		s.introduce()
		agents[0].crash()
		pass(time.Second)
		head := agents[1].rivalry.head()
		s.post(200, 500*time.Millisecond)
		if s.quantile(1) > 8*head+30*time.Millisecond || s.quantile(0.9) > 30*time.Millisecond {
			t.Errorf("jobs were claimed after p50 %s, p90 %s, the last after %s; the head start is %s", s.quantile(0.5), s.quantile(0.9), s.quantile(1), head)
		}
		s.end()
	})
}

// TestWhoCannotIsWaitedForOnce: an agent that takes one action only is first at half
// of the repositories. The other leaves it a head start there, for jobs that it
// will never take too, but no longer one with each of them.
func TestWhoCannotIsWaitedForOnce(t *testing.T) {
	bubble(t, func(r *rig) {
		s := newStream(r, 5)
		push := quick()
		push.action = "push"
		able := s.agent(Options{}, quick(), push)
		s.agent(Options{Actions: []string{"pull"}}, quick())
		pass(3 * time.Second)
		s.introduce()
		head := able.rivalry.head()
		s.mu.Lock()
		s.waits = nil
		s.mu.Unlock()
		for n := range 400 {
			name, kind := fmt.Sprint("mixed-", n), []string{"pull", "push"}[n%2]
			s.mu.Lock()
			s.at[name] = time.Now()
			s.mu.Unlock()
			r.job(fmt.Sprint("r", n%streamRepositories), name, action(kind))
			pass(700 * time.Millisecond)
		}
		if left := len(r.model.all("jobs")); left > 0 || able.rivalry.head() > 2*head || s.quantile(1) > 2*head+30*time.Millisecond {
			t.Errorf("%d jobs are left, the last was claimed after %s; the head start is %s and was %s", left, s.quantile(1), able.rivalry.head(), head)
		}
		s.end()
	})
}

// TestGrafanasClaimsTeachNoHeadStart: a driver that waits for nobody is quicker with
// every job. Those that do wait leave each other no more time for that.
func TestGrafanasClaimsTeachNoHeadStart(t *testing.T) {
	for _, token := range []string{"7f3c", tokenOf("other", "1")} {
		t.Run(token, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				a := r.start("a", Options{Cleanup: CleanupOff}, quick())
				settle()
				r.model.inject(func(c call) fault {
					if c.Verb == "update" && c.Resource == "jobs" {
						r.model.edit("jobs", "default", c.Name, claimOf(token, time.Now()))
					}
					return fault{}
				})
				r.job("r1", "j")
				pass(time.Second)
				_, lost := a.rivalry.races()
				if grown := a.rivalry.head() > firstHead; lost != 1 || grown != (agentOf(token) != "") {
					t.Errorf("%d races lost, head start %s", lost, a.rivalry.head())
				}
				r.model.inject(nil)
			})
		})
	}
}

// TestNoClaimOnAnOldPicture: a claim of another that is shown after the job was
// read, on the job or on its repository, keeps the own one from being sent.
func TestNoClaimOnAnOldPicture(t *testing.T) {
	for _, sameJob := range []bool{true, false} {
		t.Run(fmt.Sprint("the same job ", sameJob), func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.repository("r1")
				var once sync.Once
				a := r.start("a", Options{Cleanup: CleanupOff, hook: func(point string, _ about) {
					if point != failpoint.Intent {
						return
					}
					once.Do(func() {
						if sameJob {
							r.model.edit("jobs", "default", "j", claimOf("grafana", time.Now()))
						} else {
							r.job("r1", "other", claimOf("grafana", time.Now()))
						}
						<-time.After(time.Second)
					})
				}}, quick())
				settle()
				r.job("r1", "j")
				pass(5 * time.Second)
				if n := r.model.arrived(func(c call) bool { return c.Verb == "update" && c.Resource == "jobs" }); n > 0 {
					t.Errorf("%d claims were sent", n)
				}
				if len(r.claims()) > 0 {
					t.Errorf("the state file has %v", r.claims())
				}
				taken, claims := "j", 0
				if !sameJob {
					taken, claims = "other", 1
				}
				r.model.remove("jobs", "default", taken)
				pass(time.Second)
				if n := a.count(EventClaimed); n != claims {
					t.Errorf("%d claims when the claimed job was gone, want %d", n, claims)
				}
			})
		})
	}
}

// TestRepositoryIsFreeAgain: another agent comes to the repository before the own
// claim is sent, and is done before that is settled. The job is not left to the
// next list.
func TestRepositoryIsFreeAgain(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		var once, twice sync.Once
		a := r.start("a", Options{Cleanup: CleanupOff, hook: func(point string, _ about) {
			if point == failpoint.Intent {
				once.Do(func() {
					r.job("r1", "other", claimOf("grafana", time.Now()))
					<-time.After(time.Second)
				})
			}
		}}, quick())
		a.ledger.failing(func(op string) error {
			if op == "drop" {
				twice.Do(func() {
					r.model.remove("jobs", "default", "other")
					<-time.After(time.Second)
				})
			}
			return nil
		})
		settle()
		r.job("r1", "j")
		pass(5 * time.Second)
		if a.count(EventClaimed) != 1 {
			t.Error("the job waits although its repository is free")
		}
	})
}

// TestTurnsAfterARest: a job that agents have looked at before its time is claimed
// in turn when that has come.
func TestTurnsAfterARest(t *testing.T) {
	bubble(t, func(r *rig) {
		s := newStream(r, 4)
		s.agents(6, Options{Cleanup: CleanupOff}, quick)
		s.introduce()
		_, before := s.races()
		for n := range streamRepositories {
			until := time.Now().Add(100 * time.Second).UnixMilli()
			r.job(fmt.Sprint("r", n), fmt.Sprint("rests-", n), with(api.AnnoNotBefore, fmt.Sprint(until)))
		}
		pass(3 * time.Minute)
		if left := len(r.model.all("jobs")); left > 0 {
			t.Errorf("%d jobs are left", left)
		}
		if _, after := s.races(); after-before > streamRepositories/4 {
			t.Errorf("%d claims in vain for %d jobs", after-before, streamRepositories)
		}
		s.end()
	})
}

// TestNobodyWaitsForItself: an agent alone that comes back and finishes the claim
// of its life before leaves no job to that.
func TestNobodyWaitsForItself(t *testing.T) {
	bubble(t, func(r *rig) {
		r.repository("r1")
		a := r.start("a", Options{}, work(time.Minute))
		settle()
		r.job("r1", "j")
		pass(2 * time.Second)
		a.crash()
		next := r.start("a", Options{}, quick())
		pass(3 * time.Minute)
		r.done("success", "")
		next.crew.mu.Lock()
		defer next.crew.mu.Unlock()
		if len(next.crew.mates) != 1 {
			t.Errorf("it knows %d agents", len(next.crew.mates))
		}
	})
}
