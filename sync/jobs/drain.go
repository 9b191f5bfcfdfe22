package jobs

import (
	"fmt"
	"time"
)

// An agent that drains ends what it has begun and begins nothing new: running
// jobs go on, own claims of before are settled, results are sent. The queue fills
// all the same, expired claims of others are made eligible for other agents, and
// history is pruned. Draining is of the process: the next one claims again unless
// it is told otherwise, because an agent that was forgotten in this state looks
// well and does nothing.

// Drain has the agent claim nothing new, or with false claim again. It returns at
// once; see Draining for the end of what runs. To ask twice changes nothing.
func (c *Controller) Drain(on bool) {
	c.mu.Lock()
	if on == !c.drained.IsZero() {
		c.mu.Unlock()
		return
	}
	c.drained, c.dry = time.Time{}, false
	if on {
		c.drained = time.Now()
	}
	c.mu.Unlock()
	c.queue.gate(on)
	if !on {
		c.tell(EventDrain, about{}, "jobs are claimed again")
		return
	}
	c.tell(EventDrain, about{}, "draining: nothing new is claimed until limpet drain --off, SIGUSR2 or a restart; "+c.busyText())
	c.driedUp()
}

// Draining returns since when the agent claims nothing new, zero when it does
// claim, and how much of its own is not at its end yet: jobs that a driver has,
// claims that wait to be settled, and results that wait for the API.
func (c *Controller) Draining() (since time.Time, busy int) {
	taken := c.queue.taken()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.drained, taken + len(c.unsettled)
}

func (c *Controller) busyText() string {
	if _, busy := c.Draining(); busy > 0 {
		return plural(busy, "job") + " of this agent " + map[bool]string{true: "goes", false: "go"}[busy == 1] + " on"
	}
	return "nothing of this agent runs"
}

// draining says whether the agent claims nothing new.
func (c *Controller) draining() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.drained.IsZero()
}

// driedUp tells once when the last of what a draining agent had has ended.
func (c *Controller) driedUp() {
	since, busy := c.Draining()
	if since.IsZero() || busy > 0 {
		return
	}
	c.mu.Lock()
	told := c.dry
	c.dry = true
	c.mu.Unlock()
	if !told {
		c.tell(EventDrain, about{}, fmt.Sprintf("drained: nothing of this agent runs any more, after %s", time.Since(since).Round(time.Second)))
	}
}
