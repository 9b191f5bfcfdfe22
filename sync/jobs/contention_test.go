package jobs

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// idlers are agents that all wait for the next job, each as the driver does it:
// see, hesitate, look at the watch, GET, PUT.
type idlers struct {
	agents []*rivalry
	busy   []int // number of the job from which the agent has time again
	trip   time.Duration
	r      *rand.Rand
}

// oneWay is a half of a round trip, more or less.
func (s *idlers) oneWay() time.Duration {
	return s.trip/4 + time.Duration(s.r.Int64N(int64(s.trip)/2+1))
}

// job lets the agents race for one job, and returns how many conflicts that made
// and how long after the job was made it was claimed.
func (s *idlers) job(n, rest int) (conflicts int, latency time.Duration) {
	type try struct {
		agent          *rivalry
		index          int
		looks, read    time.Duration // at the watch; when the server answers the GET
		arrives, heard time.Duration // when the PUT arrives; when a claim is shown to the agent
		sent           time.Duration
	}
	uid := fmt.Sprint("job-", n)
	var tries []try
	first := time.Duration(-1)
	winner := -1
	for i, a := range s.agents {
		if s.busy[i] > n {
			continue
		}
		t := try{agent: a, index: i}
		t.looks = s.oneWay() + a.hesitation(uid)
		t.read = t.looks + s.oneWay()
		t.sent = t.read + s.oneWay()
		t.arrives = t.sent + s.oneWay()
		t.heard = s.oneWay()
		tries = append(tries, t)
		if first < 0 || t.arrives < first {
			first, winner = t.arrives, len(tries)-1
		}
	}
	for i, t := range tries {
		switch {
		case i == winner:
			t.agent.win()
			s.busy[t.index] = n + 1 + rest
		case t.looks >= first+t.heard, t.read >= first: // it has seen the claim and sends nothing
		default:
			conflicts++
			t.agent.lose(t.arrives + s.oneWay() - t.sent)
		}
	}
	return conflicts, first
}

// TestHesitation simulates idle agents that race for single jobs, and asks for
// the promises of contention.go: about one conflict to a claim at most, however
// many they are, the first claim about a round trip later than that of an agent
// alone, and no waiting without rivals. Two fleets: one whose winners have time
// for the next job at once, one whose winners are busy for as many jobs as half
// of the agents need.
func TestHesitation(t *testing.T) {
	t.Parallel()
	const jobs, learning = 600, 100
	for _, trip := range []time.Duration{2 * time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond} {
		for _, n := range []int{1, 2, 4, 16, 64, 256} {
			for _, busy := range []bool{false, true} {
				t.Run(fmt.Sprintf("agents=%d trip=%s busy=%t", n, trip, busy), func(t *testing.T) {
					t.Parallel()
					s := &idlers{trip: trip, r: rand.New(rand.NewPCG(1, uint64(n))), busy: make([]int, n)}
					for i := range n {
						s.agents = append(s.agents, &rivalry{agent: fmt.Sprint("agent-", i)})
					}
					rest := 0
					if busy {
						rest = n / 2
					}
					early, late, latency, worst := 0, 0, time.Duration(0), time.Duration(0)
					for i := range jobs {
						conflicts, took := s.job(i, rest)
						if i < learning {
							early += conflicts
							continue
						}
						late += conflicts
						latency += took - 2*trip
						worst = max(worst, took-2*trip)
					}
					per := float64(late) / (jobs - learning)
					mean := latency / (jobs - learning)
					switch {
					case n == 1 && (early > 0 || worst > trip):
						t.Errorf("an agent alone has %d conflicts and waits for %s", early, worst)
					case per > 2.5 || early > 4*n+200:
						t.Errorf("%.2f conflicts per claim, %d in the first %d", per, early, learning)
					case mean > 3*trip/2+2*time.Millisecond || worst > maxWindow:
						t.Errorf("the first claim comes %s later than alone, %s at worst", mean, worst)
					}
					t.Logf("%.2f conflicts per claim (%d in the first %d), first claim %s later than alone, at worst %s", per, early, learning, mean.Round(time.Millisecond/10), worst.Round(time.Millisecond))
				})
			}
		}
	}
}

// TestHesitationEndsWithTheRivals: an agent that is alone again waits for nothing
// after a few claims, whatever it has met.
func TestHesitationEndsWithTheRivals(t *testing.T) {
	t.Parallel()
	r := &rivalry{agent: "a"}
	for range 100 {
		r.lose(time.Minute)
	}
	waited := time.Duration(0)
	for n := range 12 {
		d := r.hesitation(fmt.Sprint(n))
		if d > maxWindow {
			t.Fatalf("waits for %s", d)
		}
		waited += d
		r.win()
	}
	if r.hesitation("x") != 0 || waited > 2*maxWindow {
		t.Fatalf("after 12 claims it has waited for %s and waits still", waited)
	}
}
