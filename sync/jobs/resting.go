package jobs

import (
	"context"
	"slices"

	"limpet/state"
)

// The mark of a job that rests between two attempts stays in the state file: if
// this agent gets the job again, also after a restart, the work goes on from it.
// It is a hint and is given up where keeping it would cost too much.

// maxResting bounds the marks that are kept, because a mark may be as large as
// the texts of its job (textBudget).
const maxResting = 256

// rest turns the claim of a job that was given back into one that rests, or
// forgets it when there is nothing to go on from.
func (c *Controller) rest(ctx context.Context, h *held) {
	h.mu.Lock()
	k := h.claim
	h.mu.Unlock()
	c.mu.Lock()
	full := len(c.resting) >= maxResting
	c.mu.Unlock()
	if len(k.Mark) == 0 || full {
		c.dropClaim(ctx, h)
		return
	}
	k.Phase, k.Token = state.PhaseResting, ""
	if err := c.store.PutClaim(ctx, k); err != nil {
		c.dropClaim(ctx, h)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resting[k.UID] = k
}

// rested returns the claim with which a job rests, if it does so here.
func (c *Controller) rested(uid string) (state.Claim, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.resting[uid]
	return k, ok
}

// sweep forgets the marks of jobs that have left the queue.
func (c *Controller) sweep(ctx context.Context) {
	c.mu.Lock()
	var gone []string
	for uid, k := range c.resting {
		job, ok := c.jobs.Get(k.Namespace, k.Name)
		if !ok || string(job.GetUID()) != uid {
			gone = append(gone, uid)
		}
	}
	c.mu.Unlock()
	slices.Sort(gone)
	for _, uid := range gone {
		if c.isOwn(uid) {
			continue // its record is that of the claim now
		}
		if err := c.store.DropClaim(ctx, uid); err != nil {
			return // the next sweep tries again
		}
		c.mu.Lock()
		delete(c.resting, uid)
		c.mu.Unlock()
	}
}
