package jobs

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// shown is a crew with a clock of its own, which is shown claims.
type shown struct {
	*crew
	now time.Time
}

func crewOf(self string) *shown {
	return &shown{newCrew(self), time.Unix(1_790_000_000, 0)}
}

func laneNr(n int) lane { return lane{"default", fmt.Sprint("r", n)} }

func (s *shown) claims(uid, agent string, n int) {
	s.begin(uid, agent, laneNr(n), true, s.now, firstHead)
}

func (s *shown) ends(uid string, n int) { s.end(uid, laneNr(n), true, s.now) }

// meets has agents make one claim each, so that they are known and idle.
func (s *shown) meets(agents ...string) {
	s.list(true)
	for _, a := range agents {
		s.claims("first of "+a, a, 0)
		s.ends("first of "+a, 0)
	}
	s.list(false)
	s.pass(time.Minute)
}

func (s *shown) pass(d time.Duration) { s.now = s.now.Add(d) }

func (s *shown) place(n int) int { return s.ahead(laneNr(n), s.now, firstHead) }

// TestAgentsAgree: agents that were shown the same claims come to the same order
// at every repository, and to others of each other.
func TestAgentsAgree(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "d", "e"}
	var crews []*shown
	for _, name := range names {
		c := crewOf(name)
		c.meets(names...)
		crews = append(crews, c)
	}
	r := rand.New(rand.NewPCG(1, 2))
	live := map[string]int{}
	firsts := map[string]int{}
	for step := range 2000 {
		pass := time.Duration(r.IntN(100)) * time.Millisecond
		for _, c := range crews {
			c.pass(pass)
		}
		n := r.IntN(40)
		uid := fmt.Sprint("uid-", step)
		by := names[r.IntN(len(names))]
		for _, c := range crews {
			c.claims(uid, by, n)
		}
		live[uid] = n
		for old, n := range live {
			if len(live) > 8 {
				for _, c := range crews {
					c.ends(old, n)
				}
				delete(live, old)
			}
		}
		places := map[int]bool{}
		for i, c := range crews {
			self := c.mates[names[i]]
			if self.class(c.now, firstHead) == full {
				continue // it would not ask
			}
			k := c.place(n)
			if places[k] {
				t.Fatalf("step %d: two agents are the ones with %d before them at r%d", step, k, n)
			}
			places[k] = true
			if k == 0 {
				firsts[names[i]]++
			}
		}
	}
	for _, name := range names {
		if firsts[name] < 100 {
			t.Errorf("%s is first %d times of 2000: %v", name, firsts[name], firsts)
		}
	}
}

// TestOrderOfAgents: who is full or passed over comes behind, for as long as that
// is so, and not before.
func TestOrderOfAgents(t *testing.T) {
	t.Parallel()
	s := crewOf("me")
	s.meets("me", "first")
	n := 1
	for s.place(n) != 1 {
		n++
	}
	s.claims("x", "first", n+1)
	if s.place(n) != 1 {
		t.Error("who has just claimed something is not waited for: it may be done at once")
	}
	s.pass(firstHead)
	if s.place(n) != 0 {
		t.Error("a full agent is waited for")
	}
	s.claims("y", "first", n+1)
	s.ends("y", n+1)
	if s.pass(time.Second); s.place(n) != 1 {
		t.Error("an agent that was seen with two claims is full with one")
	}
	s.ends("x", n+1)
	s.pass(firstHead - 1)
	if s.claims("z", "me", n); s.place(n) != 1 {
		t.Error("an agent is passed over that has ended a job a moment ago")
	}
	s.ends("z", n)
	s.pass(time.Second)
	if s.claims("z", "me", n); s.place(n) != 0 {
		t.Error("an idle agent is waited for that let a job go")
	}
	s.ends("z", n)
	if s.pass(firstAbsence - 1); s.place(n) != 0 {
		t.Error("it is waited for before its time is over")
	}
	if s.pass(1); s.place(n) != 1 {
		t.Error("it is passed over after its time")
	}
	if s.claims("z", "me", n); s.mates["first"].absent.Sub(s.now) != 2*firstAbsence {
		t.Errorf("the second time it is passed over for %s", s.mates["first"].absent.Sub(s.now))
	}
	if s.claims("w", "first", n+1); s.place(n) != 1 {
		t.Error("who claims again is passed over")
	}
}

// TestDeadAgentsAreForgotten: a dead agent makes fewer and fewer jobs wait, in the
// end none.
func TestDeadAgentsAreForgotten(t *testing.T) {
	t.Parallel()
	s := crewOf("me")
	s.meets("me", "dead")
	n := 1
	for s.place(n) != 1 {
		n++
	}
	waits := 0
	for i := range 3600 {
		if s.place(n) > 0 {
			waits++
		}
		uid := fmt.Sprint(i)
		s.claims(uid, "me", n)
		s.ends(uid, n)
		s.pass(time.Second)
	}
	if waits != mostMissed+1 || len(s.mates) != 1 {
		t.Errorf("%d jobs have waited for a dead agent in an hour, %d agents are known", waits, len(s.mates))
	}
}

// TestAgentsAreForgotten: of more agents than can be known those are forgotten that
// have done nothing for longest, and never this one, nor who has a claim.
func TestAgentsAreForgotten(t *testing.T) {
	t.Parallel()
	s := crewOf("me")
	s.claims("held", "first", 0)
	for n := range mostMates + 100 {
		uid, name := fmt.Sprint("uid-", n), fmt.Sprint("agent-", n)
		s.pass(time.Millisecond)
		if n < mostMates-2 {
			s.mates[name] = &mate{name: name, seats: 1, stirs: s.now}
			continue
		}
		s.claims(uid, name, 1)
		s.ends(uid, 1)
	}
	last := fmt.Sprint("agent-", mostMates+99)
	if len(s.mates) != mostMates || s.mates["me"] == nil || s.mates["first"] == nil || s.mates["agent-0"] != nil || s.mates[last] == nil {
		t.Errorf("%d agents are known, itself %t, who works %t, the first of the others %t, the last %t", len(s.mates),
			s.mates["me"] != nil, s.mates["first"] != nil, s.mates["agent-0"] != nil, s.mates[last] != nil)
	}
}

// TestWhoCounts: a list tells of agents but not of the order of their claims, and
// agents that take other jobs, and Grafana's drivers, are not waited for.
func TestWhoCounts(t *testing.T) {
	t.Parallel()
	s := crewOf("me")
	s.meets("me", "a", "b")
	s.begin("x", "other", laneNr(3), false, s.now, firstHead)
	s.begin("y", agentOf("7f3c.1"), laneNr(3), true, s.now, firstHead)
	names := []string{}
	for name := range s.mates {
		names = append(names, name)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"a", "b", "me"}) {
		t.Errorf("known: %v", names)
	}
	n := 1
	for s.place(n) != 1 || favour("a", laneNr(n)) < favour("me", laneNr(n)) {
		n++
	}
	s.begin("z", "a", laneNr(n), false, s.now, firstHead)
	if s.pass(firstHead); s.place(n) != 0 {
		t.Error("a claim of another kind does not make an agent full that is waited for")
	}
	s.ends("z", n)
	s.pass(time.Minute)
	s.list(true)
	for n := range 20 {
		s.claims(fmt.Sprint(n), "a", n)
	}
	if s.mates["b"].missed > 0 || s.mates["me"].missed > 0 {
		t.Error("somebody is passed over for the order of a list")
	}
}

// TestHesitation: the wait for others begins once, ends with a claim or the job,
// and grows slowly with the number of those before.
func TestHesitation(t *testing.T) {
	t.Parallel()
	s := crewOf("me")
	s.meets("me", "first")
	n := 1
	for s.place(n) != 1 {
		n++
	}
	left := func() time.Duration { return s.hesitation(laneNr(n), s.now, firstHead) }
	if left() != firstHead {
		t.Errorf("the second waits for %s", left())
	}
	s.pass(firstHead - 1)
	if left() != 1 {
		t.Errorf("%s are left of it", left())
	}
	if s.pass(1); left() > 0 {
		t.Error("it begins anew")
	}
	s.claims("x", "first", n)
	s.end("x", laneNr(n), false, s.now)
	if left() != firstHead {
		t.Error("another claim has not begun it anew")
	}
	s.pass(time.Minute)
	if s.ends("y", n); left() != firstHead {
		t.Error("a deleted job has not ended it")
	}
	s.pass(time.Minute)
	if s.leave(laneNr(n)); left() != firstHead {
		t.Error("it has not begun anew for a job that was left for later")
	}
	if m := behind(255, firstHead); m != 8*firstHead || behind(0, firstHead) != 0 {
		t.Errorf("the last of 256 waits for %s, the first for %s", m, behind(0, firstHead))
	}
}

// TestNewcomer: an agent that nobody knows goes at once, but not on and on while
// others are quicker.
func TestNewcomer(t *testing.T) {
	t.Parallel()
	s := crewOf("me")
	s.meets("a", "b", "c")
	n := 1
	for s.place(n) != 0 {
		n++
	}
	favoured, tries := 0, 0
	for n := range 4000 {
		first := true
		for name := range s.mates {
			first = first && favour(name, laneNr(n)) <= favour("me", laneNr(n))
		}
		if !first {
			continue
		}
		if favoured++; s.place(n) == 0 {
			tries++
		}
	}
	if favoured < 800 || tries < favoured/12 || tries > favoured/5 {
		t.Errorf("a newcomer tries its luck at %d of %d repositories that it favours most", tries, favoured)
	}
	eager := func() (tries int) { // of 100 times, no two at one moment
		for range 100 {
			s.pass(time.Microsecond)
			if s.place(n) == 0 {
				tries++
			}
		}
		return tries
	}
	for _, want := range []time.Duration{firstAbsence, 2 * firstAbsence, 4 * firstAbsence} {
		s.lose(s.now)
		if n := eager(); n > 0 {
			t.Errorf("a newcomer that has lost tries again at once, %d times", n)
		}
		if s.pass(want); eager() == 0 {
			t.Errorf("it does not try again after %s", want)
		}
	}
	s.claims("x", "me", n)
	s.ends("x", n)
	if s.lose(s.now); eager() != 100 {
		t.Error("who is known passes itself over: others wait for it")
	}
}
