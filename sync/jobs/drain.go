package jobs

import (
	"fmt"
	"sync"
	"time"
)

// An agent that drains ends what it has begun and begins nothing new: running
// jobs go on, own claims of before are settled, results are sent. The queue fills
// all the same, expired claims of others are made eligible for other agents, and
// history is pruned. Draining is of the process: the next one claims again unless
// it is told otherwise, because an agent that was forgotten in this state looks
// healthy and does nothing.
type drain struct {
	*env
	queue *workQueue

	mu       sync.Mutex // guards the fields below
	since    time.Time  // zero = the agent claims
	reported bool       // nothing of before runs any more, and that was reported
}

// set has the agent claim nothing new, or claim again. To set it twice changes nothing.
func (d *drain) set(on bool) {
	d.mu.Lock()
	if on == !d.since.IsZero() {
		d.mu.Unlock()
		return
	}
	d.since, d.reported = time.Time{}, false
	if on {
		d.since = time.Now()
	}
	d.mu.Unlock()
	d.queue.setClosed(on)
	if !on {
		d.events.emit(EventDrain, jobRef{}, "jobs are claimed again")
		return
	}
	text := "nothing of this agent runs"
	if _, busy := d.state(); busy > 0 {
		text = plural(busy, "job") + " of this agent still running"
	}
	d.events.emit(EventDrain, jobRef{}, "draining: nothing new is claimed until limpet drain --off, SIGUSR2 or a restart; "+text)
	d.reportDrained()
}

// state returns since when the agent claims nothing new, zero when it does claim, and
// how much of its own is not at its end yet: jobs that a driver has, claims that wait
// to be settled, and results that wait for the API.
func (d *drain) state() (since time.Time, busy int) {
	busy = d.queue.running() + d.claims.pendingCount()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.since, busy
}

// on reports whether the agent claims nothing new.
func (d *drain) on() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.since.IsZero()
}

// reportDrained reports once when the last of what a draining agent had has ended.
func (d *drain) reportDrained() {
	since, busy := d.state()
	if since.IsZero() || busy > 0 {
		return
	}
	d.mu.Lock()
	reported := d.reported
	d.reported = true
	d.mu.Unlock()
	if !reported {
		d.events.emit(EventDrain, jobRef{}, fmt.Sprintf("drained: nothing of this agent runs any more, after %s", time.Since(since).Round(time.Second)))
	}
}
