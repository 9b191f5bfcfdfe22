package jobs

import (
	"context"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
)

// Two agents must not work on one repository at the same time, whatever the two
// jobs are. Inside an agent the lanes of the queue see to that. Between agents
// there is no lock, only the claims, which everybody can see. So it goes as in
// Dekker's algorithm: first write the own claim, then read the claims of others.
//
//	Before a claim   While the watch shows a live claim of a neighbour on the
//	                 repository, the whole lane rests, until the watch shows its
//	                 end. No request is spent on it.
//	After a claim    The agent waits until the watch shows its own claim. The
//	                 watch delivers writes in the order in which the server has
//	                 accepted them, so at that moment it has shown every claim
//	                 that was accepted before. If there is a live one, its owner
//	                 goes on and this agent gives its job back. If there is none,
//	                 this claim is the first one, and who comes later sees it.
//
// Of two claims one was accepted first, and both agents agree which, because
// they go by the server's order and not by clocks: exactly one of them gives
// way, so nothing is blocked for ever and nothing runs together. Claim times
// would not do: an agent whose claim arrived late with an early time in it would
// go on beside another that had looked before it arrived.
//
// A job that is taken up again (after a restart, an outage, a claim that had no
// answer) is at the second step too. How old its claim is among the others is not
// known any more, so the claims are listed.
//
// The cost is no request where the watch works. When it is behind by more than
// watchPatience, the claims are listed instead (one request per 100 of them);
// then the order is not known, and every live claim of a neighbour counts as
// earlier. Two agents may then both give way. Who gave way rests for a time of
// its own, so they do not meet again for ever.
//
// The one that gave way is not starved either: its job keeps its place in the
// queue, and each time it gives way another job of the repository is done.
//
// A claim counts as long as its lease lasts by the server's clock. So the
// exclusion is as good as the lease: an owner stops at two thirds of the expiry.
// Grafana's own drivers follow no such rule; their claims are respected here, but
// they do not respect ours.

// watchPatience is how long the watch may be behind before the claims are
// listed. A watch that works shows a write within milliseconds.
const watchPatience = 250 * time.Millisecond

// giveWay is the longest rest of a job whose agent has given way.
const giveWay = 2 * time.Second

// alive returns how much longer the lease of a neighbour may last; 0 or less
// when it is over. A claim that cannot be compared does not bind anybody.
func (c *Controller) alive(x neighbour) time.Duration {
	now, err := c.millis()
	if err != nil {
		return c.o.Expiry
	}
	if x.at-now > c.o.Expiry.Milliseconds() {
		return 0
	}
	return time.Duration(x.at-now)*time.Millisecond + c.o.Expiry + c.terms.clockError()
}

// occupied returns how long a repository is taken by a neighbour at least,
// unless the watch shows the end of it; 0 = it is free.
func (c *Controller) occupied(l lane) time.Duration {
	if l.Repository == "" {
		return 0
	}
	rest := time.Duration(0)
	for _, x := range c.neighbours.at(l) {
		rest = max(rest, c.alive(x))
	}
	return min(rest, c.o.Interval)
}

// rival is a neighbour that was first on a repository.
type rival struct {
	job string
	// listed says that the order of the claims is not known, so that the rival may
	// give way at the same time.
	listed bool
}

// firstHere returns nil when a claim that was just written is the first live one
// on its repository, else who was first. An error says that the job is not ours
// any more before that was known.
func (c *Controller) firstHere(h *held) (*rival, error) {
	l := lane{h.Namespace, h.repository}
	if l.Repository == "" {
		return nil, nil
	}
	own := c.neighbours.shown(h.uid, h.token)
	for patience := watchPatience; ; {
		timer := time.NewTimer(patience)
		select {
		case <-own.seen:
			timer.Stop()
			return c.shownRival(h, l, own), nil
		case <-h.ctx.Done():
			timer.Stop()
			return nil, context.Cause(h.ctx)
		case <-timer.C:
		}
		r, err := c.listedRival(h.ctx, l)
		if err == nil {
			return r, nil
		}
		patience = max(min(2*patience, giveWay), c.asked(err))
	}
}

// shownRival asks the watch, which has shown the own claim.
func (c *Controller) shownRival(h *held, l lane, own *ownClaim) *rival {
	h.mu.Lock()
	version := h.claim.ResourceVersion
	h.mu.Unlock()
	for _, x := range c.neighbours.earlier(l, own, version) {
		if c.alive(x) > 0 {
			return &rival{job: x.String()}
		}
	}
	return nil
}

// replacedBy returns the neighbour that works on the repository of a job that is
// taken up again, or nil. The claims are listed, because the watch says nothing of
// the order of old claims: somebody may have begun after this one had expired,
// before its request arrived, or before this agent, which then stopped, could look.
func (c *Controller) replacedBy(h *held) (*rival, error) {
	if h.repository == "" {
		return nil, nil
	}
	for try := 1; ; try++ {
		r, err := c.listedRival(h.ctx, lane{h.Namespace, h.repository})
		if err == nil {
			return r, nil
		}
		if h.ctx.Err() != nil {
			return nil, context.Cause(h.ctx)
		}
		pause(h.ctx, max(c.asked(err), retryDelay(try)))
	}
}

// listedRival asks the API for a live claim of a neighbour on a repository.
func (c *Controller) listedRival(ctx context.Context, l lane) (*rival, error) {
	now, err := c.millis()
	if err != nil {
		return nil, err
	}
	for page := ""; ; {
		jobs, next, err := c.server.expiredJobs(ctx, l.Namespace, now+c.o.Expiry.Milliseconds(), page)
		if err != nil {
			return nil, err
		}
		for i := range jobs {
			job := &jobs[i]
			if laneOf(job) != l || !claimed(job) || c.isOwn(string(job.GetUID())) {
				continue
			}
			at, _ := strconv.ParseInt(job.GetLabels()[api.LabelClaim], 10, 64)
			if c.alive(neighbour{at: at}) > 0 {
				return &rival{job: keyOf(job).String(), listed: true}, nil
			}
		}
		if page = next; page == "" {
			return nil, nil
		}
	}
}

// yield gives a job back whose repository a neighbour had claimed before. It is
// no attempt. The lane rests until the neighbour is done; where both may have
// given way the job rests for a while too, each time another one.
func (c *Controller) yield(h *held, to *rival) verdict {
	var bar time.Duration
	if to.listed {
		bar = time.Duration(hashOf(c.o.Agent, h.token) % uint64(giveWay))
	}
	v, given := c.giveBack(h, func(job *unstructured.Unstructured) {
		setAnnotation(job, api.AnnoNotBefore, strconv.FormatInt(c.nowMillis()+bar.Milliseconds(), 10))
	})
	if !given {
		return v
	}
	c.dropClaim(context.WithoutCancel(h.ctx), h)
	c.tell(EventReleased, h.about, "another agent works on the repository: it has job "+to.job)
	return verdict{again: true, calm: true, bar: bar, rest: max(time.Millisecond, c.occupied(lane{h.Namespace, h.repository}))}
}
