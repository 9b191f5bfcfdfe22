package cli_test

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"limpet/sync/failpoint"
)

var kills = flag.Int("kills", 0, "how often TestKilledAtAnyMoment kills; 0 = 6, or 300 with -fault")

// killPoints are the places where a job of every kind can be stopped.
var killPoints = []string{failpoint.Seen, failpoint.Intent, failpoint.Claimed, failpoint.Confirmed, failpoint.Fetched, failpoint.Planned,
	failpoint.Applying, failpoint.Marked, failpoint.Recorded, failpoint.Posted, failpoint.Deleted, failpoint.Ended}

// few are Repositories of which each job writes a handful of objects.
func few() map[string]int { return map[string]int{"a": small, "b": small, "c": small, "d": small} }

// TestKilledAtEveryPoint: the process ends itself with SIGKILL at a point in the
// life of a job and is started again, over and over. Then everything is as if it
// had never been killed.
func TestKilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	first, w := seeded(t), newWorld(t)
	lives := [][]string{killPoints} // one agent for all points
	if *long {
		lives = nil
		for _, p := range killPoints {
			lives = append(lives, []string{p}) // one for each
		}
	}
	each := times(1, 50)
	t.Run("at", func(t *testing.T) {
		for i, points := range lives {
			name := "every-point"
			if len(points) == 1 {
				name = points[0]
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				sizes := few()
				switch {
				case name == failpoint.Marked:
					sizes = map[string]int{"large": large}
				case len(points) > 1:
					sizes["large"] = large
				}
				m := newMortal(t, w, "kill-"+name, first+uint64(i), sizes)
				kills := 0
				for range each {
					for _, p := range points {
						m.killAt(p)
						kills++
					}
				}
				m.rest()
				m.judge()
				writes, again := m.rewritten()
				if again > 0 {
					t.Errorf("%d of %d writes wrote what was there already", again, writes)
				}
				t.Logf("fault: %s: %d kills, %d jobs, %d objects written, %d again, claim taken up again after %s at most",
					name, kills, len(m.jobs), writes, again, m.slowest.Round(time.Millisecond))
			})
		}
	})
}

// killAt lets the agent live until a job comes to a point.
func (m *mortal) killAt(point string) {
	m.t.Helper()
	passage, names := 1+m.rng.IntN(3), []string{"a", "b", "c", "d"}
	switch point {
	case failpoint.Marked:
		passage, names = 1, []string{"large"}
	case failpoint.Applying:
		passage = 1 + m.rng.IntN(3*small)
	}
	m.feed(names...)
	l := m.start(fmt.Sprintf("%s=kill@%d", point, passage))
	hungry := time.NewTicker(300 * time.Millisecond)
	defer hungry.Stop()
	for deadline := time.After(callTimeout); ; {
		select {
		case <-l.done:
			if !m.end(l) {
				m.t.Fatalf("not killed at %s", point)
			}
			return
		case <-hungry.C: // what earlier lives have left does not come to the point again
			m.feed(names...)
		case <-deadline:
			m.t.Fatalf("still alive, no job has come to %s for the %d. time", point, passage)
		}
	}
}

// TestKilledAtAnyMoment is the same without points.
func TestKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	first, w := seeded(t), newWorld(t)
	agents := times(1, 3)
	each := cmp.Or(*kills, times(6, 300)) / agents
	t.Run("agent", func(t *testing.T) {
		for i := range agents {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				m := newMortal(t, w, fmt.Sprint("kill-anywhere-", i), first+uint64(i), few())
				rng := rand.New(rand.NewPCG(first+uint64(i), 5))
				for range each {
					m.killWithin(rng)
				}
				m.rest()
				m.judge()
				writes, again := m.rewritten()
				if again > 0 {
					t.Errorf("%d of %d writes wrote what was there already", again, writes)
				}
				t.Logf("fault: at any moment: %d kills, %d jobs, %d objects written, %d again, claim taken up again after %s at most",
					each, len(m.jobs), writes, again, m.slowest.Round(time.Millisecond))
			})
		}
	})
}

// killWithin kills an agent some time after it has been started.
func (m *mortal) killWithin(rng *rand.Rand) {
	m.t.Helper()
	m.feed("a", "b", "c", "d")
	l := m.start("")
	if rng.IntN(4) > 0 { // else it may die on the way to its feet
		m.claims(l)
	}
	timer := time.AfterFunc(time.Duration(rng.IntN(400))*time.Millisecond, func() { _ = l.cmd.Process.Kill() })
	defer timer.Stop()
	if !m.end(l) {
		m.t.Fatal("ended by itself")
	}
}

// TestKilledWhileItStops: a job has been given back and the process dies before
// it could note that.
func TestKilledWhileItStops(t *testing.T) {
	t.Parallel()
	first, w := seeded(t), newWorld(t)
	m := newMortal(t, w, "kill-released", first, few())
	want := times(1, 20)
	kills := 0
	for try := 0; kills < want; try++ {
		if try > 20*want {
			t.Fatalf("%d kills after %d tries", kills, try)
		}
		m.feed("a", "b", "c", "d")
		l := m.start("released=kill")
		until(t, "a job is at work", func() bool { return strings.Contains(m.log.String()[m.logged:], `"step":"applied"`) })
		_ = l.cmd.Process.Signal(syscall.SIGTERM)
		if m.end(l) {
			kills++
		}
	}
	m.rest()
	m.judge()
	t.Logf("fault: released: %d kills, %d jobs", kills, len(m.jobs))
}
