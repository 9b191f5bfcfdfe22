package jobs

import (
	"fmt"
	"sync/atomic"
	"time"

	"limpet/sync/jobs/lease"
)

// simHost is a machine with a wall clock that is wrong and jumps, and that is
// put to sleep. It outlives its processes and has the disk.
type simHost struct {
	world  *simWorld
	id     uint64
	name   string
	fate   fate
	wrong  time.Duration // of the wall clock
	jumps  []jump
	sleeps []sleep // in their order
	disk   *simDisk
	cut    []window // no connection at all
	mute   []window // no connection for renewals
	lives  int      // processes so far
	life   atomic.Pointer[simProcess]
	gone   atomic.Bool // nobody repairs it
}

// jump is a step of the wall clock.
type jump struct {
	at time.Time
	by time.Duration
}

// sleep is a time in which nothing of the host runs. The monotonic clock stands
// still in a suspended host and goes on under a stopped process.
type sleep struct {
	window
	stopped bool
}

// simProcess is one life of an agent: the host as its controller sees it.
type simProcess struct {
	*simHost
	nr     uint64
	dead   atomic.Bool
	tokens atomic.Uint64
	dice   atomic.Uint64
	clock  *simClock
	link   *simLink
	watch  *simWatch
	agent  *Controller
	stop   func()
	done   chan error
}

var _ host = (*simProcess)(nil)

// frozen is the bubble's time, and while the host sleeps the time at which it
// fell asleep: what runs then is thought of as having run just before.
func (h *simHost) frozen() time.Time {
	now := time.Now()
	for _, s := range h.sleeps {
		if s.has(now) {
			return s.from
		}
	}
	return now
}

// awakeIn is how long the host goes on sleeping.
func (h *simHost) awakeIn() time.Duration {
	now := time.Now()
	for _, s := range h.sleeps {
		if s.has(now) {
			return s.to.Sub(now)
		}
	}
	return 0
}

func (h *simHost) slept(since, until time.Time) bool {
	for _, s := range h.sleeps {
		if s.from.Before(until) && s.to.After(since) {
			return true
		}
	}
	return false
}

func (h *simHost) now() lease.Moment {
	t := h.frozen()
	m := lease.Moment{Time: t, Wall: t.Add(h.wrong)}
	for _, s := range h.sleeps {
		if !s.stopped && !s.to.After(t) {
			m.Time = m.Add(-s.to.Sub(s.from))
		}
	}
	for _, j := range h.jumps {
		if !j.at.After(t) {
			m.Wall = m.Wall.Add(j.by)
		}
	}
	return m
}

// after fires late when the host sleeps over it.
func (h *simHost) after(d time.Duration, f func()) *time.Timer {
	at := h.frozen().Add(d)
	for _, s := range h.sleeps {
		switch {
		case !s.to.After(h.frozen()) || s.from.After(at):
		case s.stopped && s.has(at):
			at = s.to.Add(h.fate.of(uint64(at.UnixNano())).between(0, 200*time.Millisecond))
		case !s.stopped:
			at = at.Add(s.to.Sub(s.from))
		}
	}
	// Not at once, so that it does not run beside what its caller does next.
	return time.AfterFunc(max(time.Until(at), 0)+h.fate.of(uint64(at.UnixNano())).between(1, 1000), f)
}

func (p *simProcess) token() string {
	return fmt.Sprintf("%s.%d.%d", p.name, p.nr, p.tokens.Add(1))
}

func (p *simProcess) jitter(d time.Duration) time.Duration {
	return d - d/10 + p.fate.of(p.nr, p.dice.Add(1)).between(0, d/5)
}

// simClock is what a process knows of the server's time.
type simClock struct {
	world *simWorld
	fate  fate
	known atomic.Int64 // how often it was told
}

func (c *simClock) observe() { c.known.Add(1) }

// Now is off by less than its bound, which gets smaller with the first answers.
func (c *simClock) Now() (time.Time, time.Duration, bool) {
	n := c.known.Load()
	if n == 0 {
		return time.Time{}, 0, false
	}
	bound := 300 * time.Millisecond
	if slow := c.fate.n(8); slow == 0 && n < 4 { // too slow an answer to know the time by
		bound = 25 * time.Second / time.Duration(n)
	}
	return c.world.now().Add(c.fate.between(-bound, bound)), bound, true
}

func (c *simClock) Millis(most time.Duration) (int64, error) {
	t, bound, ok := c.Now()
	if !ok || bound > most {
		return 0, errSimClock
	}
	return t.UnixMilli(), nil
}

var _ serverClock = (*simClock)(nil)
