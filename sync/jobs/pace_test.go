package jobs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// tally is a Meter that adds up what the queue tells.
type tally struct {
	unmetered
	looked, retried int
	waited, took    time.Duration
}

func (m *tally) Looked(waited, took time.Duration, retried bool) {
	m.looked++
	m.waited += waited
	m.took += took
	if retried {
		m.retried++
	}
}

// TestCensusLikeTheQueue does 1,000 random sequences of everything that may
// happen to a queue, and compares the numbers that are shown with a count of the
// names one by one.
func TestCensusLikeTheQueue(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1000) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 9))
			i := newIntake(40, "agent")
			m := &tally{}
			i.pace.meter = m
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			began := map[key]time.Time{} // names that are out
			looked, retried, took := 0, 0, time.Duration(0)
			for step := range 60 {
				k := key{"default", fmt.Sprint("job-", rng.IntN(50))}
				l := lane{"default", fmt.Sprint("repo-", rng.IntN(6))}
				switch rng.IntN(7) {
				case 0:
					i.add(k, l, rng.IntN(9) == 0)
				case 1:
					i.rank(k, l, rng.IntN(10))
				case 2:
					i.addAfter(k, l, time.Duration(rng.IntN(20))*time.Second)
				case 3:
					<-time.After(time.Duration(rng.IntN(15)) * time.Second)
				case 4:
					i.free(l)
				case 5:
					if i.ready(time.Now()) {
						name, _, _ := i.take(ctx)
						began[name] = time.Now()
					}
				case 6:
					for name, since := range began {
						v := verdict{retry: rng.IntN(4) == 0, again: rng.IntN(4) == 0}
						if rng.IntN(4) == 0 {
							v.bar = time.Duration(rng.IntN(20)) * time.Second
						}
						i.done(name, v)
						delete(began, name)
						looked++
						took += time.Since(since)
						if v.retry {
							retried++
						}
						break
					}
				}
				var b Backlog
				i.census(&b)
				waits, sum, want := 0, time.Duration(0), time.Duration(0)
				for _, s := range i.queue.slots {
					if s.place == waiting {
						waits++
					}
				}
				for _, d := range b.Looking {
					sum += d
				}
				for _, since := range began {
					want += time.Since(since)
				}
				if b.Waiting != waits || b.Queued != len(i.queue.slots) || len(b.Looking) != len(began) || sum != want {
					t.Fatalf("seed %d, step %d: shown %+v, but %d wait and %d are out for %s", seed, step, b, waits, len(began), want)
				}
			}
			if m.looked != looked || m.retried != retried || m.took != took {
				t.Fatalf("seed %d: counted %+v, but %d looks (%d retried) took %s", seed, m, looked, retried, took)
			}
		})
	}
}

// TestWaitIsMeasured: the time in a lane counts, the time of a bar does not.
func TestWaitIsMeasured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := newIntake(10, "agent")
		m := &tally{}
		i.pace.meter = m
		a, l := key{"default", "a"}, lane{"default", "r"}
		i.add(a, l, false)
		<-time.After(3 * time.Second)
		i.add(a, l, false) // known
		i.rank(a, l, 9)    // moved within its lane
		if k, _, ok := i.take(t.Context()); !ok || k != a {
			t.Fatalf("took %v, %v", k, ok)
		}
		<-time.After(2 * time.Second)
		i.done(a, verdict{again: true, bar: time.Minute})
		if m.waited != 3*time.Second || m.took != 2*time.Second || i.pace.added != 1 {
			t.Errorf("waited %s, took %s, %d came", m.waited, m.took, i.pace.added)
		}
		if _, _, ok := i.take(t.Context()); !ok { // after the bar
			t.Fatal("nothing came")
		}
		i.done(a, verdict{})
		if m.waited != 3*time.Second || m.looked != 2 || i.pace.added != 2 {
			t.Errorf("waited %s in %d looks, %d came", m.waited, m.looked, i.pace.added)
		}
	})
}
