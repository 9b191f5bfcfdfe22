package jobs

import (
	"time"

	"limpet/state"
)

// Backlog is what this agent knows at a moment of the jobs that are not done.
type Backlog struct {
	Unclaimed map[string]int  // jobs that nobody has claimed, by action, as the watch shows them
	Claimed   int             // jobs that somebody has claimed
	Queued    int             // names in the queue of this agent: those that wait, run or rest
	Waiting   int             // those that wait for a driver
	Added     uint64          // names that came to wait since the start
	Looking   []time.Duration // how long each driver that has a name has been busy with it
	Unsent    int             // results that are kept in the state file because the API has not taken them yet
}

// Backlog counts what there is now. It asks the picture of the watch and the
// queue, not the API, and is safe for concurrent use.
func (c *Controller) Backlog() Backlog {
	b := Backlog{Unclaimed: map[string]int{}}
	c.queue.census(&b)
	for _, job := range c.jobs.Objects() {
		if claimedSight(job) {
			b.Claimed++
			continue
		}
		b.Unclaimed[job.Text(pathAction)]++
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range c.unsettled {
		if u.claim.Phase == state.PhaseCompleting {
			b.Unsent++
		}
	}
	for _, h := range c.holding() {
		if h.completing() {
			b.Unsent++
		}
	}
	return b
}

// completing says that the result is kept and on its way.
func (h *held) completing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.claim.Phase == state.PhaseCompleting
}

// census fills in what the queue holds now.
func (i *intake) census(b *Backlog) {
	i.mu.Lock()
	defer i.mu.Unlock()
	b.Queued = i.queue.len()
	b.Waiting = b.Queued - i.queue.later.len() - len(i.pace.looking)
	b.Added = i.pace.added
	for _, l := range i.pace.looking {
		b.Looking = append(b.Looking, time.Since(l.began))
	}
}
