package jobs

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/failpoint"
)

// releaseTime bounds the whole release of one job, all tries included.
const releaseTime = 10 * time.Second

// release gives a held job back to the queue: without claim, pending, and not
// counted as an attempt. The name rests for one interval, so that others come
// first. When the API cannot be told, the claim stays in the state file and the
// next look at the job, now or at the next start, takes it up again.
func (c *Controller) release(h *held, why string) verdict {
	v, given := c.giveBack(h, func(*unstructured.Unstructured) {})
	if !given {
		return v
	}
	c.rest(context.WithoutCancel(h.ctx), h)
	c.tell(EventReleased, h.about, why)
	return verdict{bar: c.o.Interval, again: true, calm: true}
}

// giveBack takes the claim off a job, with what edit adds to that. When it does
// not succeed the verdict says what becomes of the job.
func (c *Controller) giveBack(h *held, edit func(*unstructured.Unstructured)) (v verdict, given bool) {
	h.seal()
	h.quiet()
	ctx, cancel := context.WithTimeout(h.ctx, releaseTime)
	defer cancel()
	err := h.put(ctx, endTries, func(job *unstructured.Unstructured) {
		stripClaim(job)
		setState(job, api.StatePending)
		edit(job)
	})
	if err != nil {
		if cause, _ := h.lost(); cause != nil {
			return c.forfeited(h), false
		}
		c.tell(EventWaiting, h.about, "the job could not be given back ("+err.Error()+"); it is taken up again later")
		return c.later(h), false
	}
	c.step(failpoint.Released, h.about)
	return verdict{}, true
}

// forfeited ends a job whose lease is lost. Nothing is written about it. A job
// that is not known to be in other hands (the API was away for too long) may
// still carry our claim: it is looked at again.
func (c *Controller) forfeited(h *held) verdict {
	cause, taken := h.lost()
	c.tell(EventLost, h.about, cause.Error())
	if !taken {
		// A lease ends no sooner than it would be renewed, so this makes no hot loop.
		v := c.later(h)
		v.arrived = true
		return v
	}
	c.dropClaim(context.WithoutCancel(h.ctx), h)
	return verdict{calm: true}
}

// dropClaim forgets a claim in the state file. One that cannot be forgotten is
// looked at again: the job does not carry its token any more.
func (c *Controller) dropClaim(ctx context.Context, h *held) {
	if err := c.store.DropClaim(ctx, h.uid); err != nil {
		c.once("drop "+h.uid, EventNote, h.about, "a claim that is over stays in the state file for now: "+err.Error())
		h.mu.Lock()
		k := h.claim
		h.mu.Unlock()
		c.unsettle(k, result{})
	}
}
