package jobs

import (
	"context"
	"strconv"
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
	return c.giveBack(h, verdict{bar: c.o.Interval, again: true, calm: true}, why, func(*unstructured.Unstructured) {})
}

// giveBack writes the release of a job, with what edit adds to it, and returns
// then.
func (c *Controller) giveBack(h *held, then verdict, why string, edit func(*unstructured.Unstructured)) verdict {
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
			return c.forfeited(h)
		}
		c.tell(EventWaiting, h.about, "the job could not be given back ("+err.Error()+"); it is taken up again later")
		return c.later(h)
	}
	c.step(failpoint.Released, h.about)
	c.dropClaim(context.WithoutCancel(ctx), h)
	c.tell(EventReleased, h.about, why)
	return then
}

// postpone puts a job back whose worker met a server that could not be worked
// with. As long as the API of the jobs itself does not answer, the claim is kept
// and taken up again, however long that takes. When it does answer, the trouble
// is elsewhere, and the run counts as an attempt: after the last one the job ends
// as error.
func (c *Controller) postpone(ctx context.Context, h *held, p *Progress, away error) verdict {
	if h.attempt >= c.o.MaxAttempts {
		if _, err := c.server.job(h.ctx, h.key); err == nil {
			return c.finish(ctx, h, p, p.Outcome(away))
		}
		c.tell(EventWaiting, h.about, away.Error())
		return c.later(h)
	}
	rest := attemptDelay(h.attempt + 1)
	return c.giveBack(h, verdict{bar: rest, again: true, calm: true}, away.Error(), func(job *unstructured.Unstructured) {
		setAnnotation(job, api.AnnoAttempt, strconv.Itoa(h.attempt))
		setAnnotation(job, api.AnnoNotBefore, strconv.FormatInt(c.nowMillis()+rest.Milliseconds(), 10))
	})
}

// forfeited ends a job whose lease is lost. Nothing is written about it. A job
// that is not known to be in other hands (the API was away for too long) may
// still carry our claim: it is looked at again.
func (c *Controller) forfeited(h *held) verdict {
	cause, taken := h.lost()
	c.tell(EventLost, h.about, cause.Error())
	if !taken {
		return c.later(h)
	}
	c.dropClaim(context.WithoutCancel(h.ctx), h)
	return verdict{calm: true}
}

// dropClaim forgets a claim in the state file. One that cannot be forgotten is
// harmless: the next start finds that the job does not carry its token.
func (c *Controller) dropClaim(ctx context.Context, h *held) {
	if err := c.store.DropClaim(ctx, h.uid); err != nil {
		c.once("drop "+h.uid, EventNote, h.about, "a claim that is over stays in the state file until the next start: "+err.Error())
	}
}
