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
//	                 that was accepted before. (Where the watch had to begin with
//	                 a new list, that holds at the end of the list.) If there is a
//	                 live one, its owner goes on and this agent gives its job back.
//	                 If there is none, this claim is the first one, and who comes
//	                 later sees it.
//	Found again      A claim that is settled by recover.go is renewed, then the
//	                 claims are listed, and any live one counts as earlier. For
//	                 the watch has shown the claim long ago, nobody may have looked
//	                 then, and it may have been dead in between.
//
// # Why nothing runs together
//
// Call the write that makes a claim, or brings one to life that is found again,
// its birth. A worker begins only after a look at the claims that shows all
// births before the own one: the watch in its order, or a list that was asked for
// after the birth was answered. Let two agents work with live claims, and let B
// have the later birth. B's look shows A's claim, since it was born before, and
// shows it alive, so B gives way: that is no case. It rests on this:
//
//   - Alive is judged as of a moment before the own birth, or before the list was
//     asked for: what is not in the picture yet, a later renewal, is not missed.
//   - Clocks are off by clockError at most, so a claim that is dead for a neighbour
//     is at least one expiry old. The owner stops at two thirds of that, and does
//     not renew a claim that is older than the expiry less clockError, however
//     little time its own monotonic clock says has passed (lapsed). It gives up,
//     and the claim, found again, has another birth.
//   - The claims of this agent are told from others by their token, not by their
//     UID: a job that was wanted here too may be theirs.
//
// Of two claims one was accepted first, and both agents agree which, because
// they go by the server's order and not by clocks: exactly one of them gives
// way, so nothing is blocked for ever. Claim times would not do: an agent whose
// claim arrived late with an early time in it would go on beside another that had
// looked before it arrived.
//
// # What it does not promise
//
// A host that sleeps between its look and its first renewal begins, or goes on,
// with a lease that has ended, until it renews: no lease can prevent that. A watch
// that shows jobs in another order than they were written shows too little; one
// server never does. A claim that a person has taken off protects nobody. Grafana's
// own drivers follow no such rule; their claims are respected here, but they do not
// respect ours.
//
// # What it costs
//
// No request where the watch works, and one list for a claim that is found again.
// When the watch is behind by more than watchPatience, the claims are listed
// instead (one request per 100 of them). A list says nothing of the order of what is
// in it, and every live claim counts as earlier: two agents may then both give way.
// Who gave way rests for a time of its own, so they do not meet again for ever.
//
// The one that gave way is not starved either: its job keeps its place in the
// queue, and each time it gives way another job of the repository is done.

// watchPatience is how long the watch may be behind before the claims are
// listed. A watch that works shows a write within milliseconds.
const watchPatience = 250 * time.Millisecond

// giveWay is the longest rest of a job whose agent has given way.
const giveWay = 2 * time.Second

// alive returns how much longer the lease of a neighbour may last, at a time of
// the server; 0 or less when it is over. A claim that cannot be compared does not
// bind anybody.
func (t terms) alive(x neighbour, now int64) time.Duration {
	if x.at-now > t.expiry.Milliseconds() {
		return 0
	}
	return time.Duration(x.at-now)*time.Millisecond + t.expiry + t.clockError()
}

// lapsed says whether an own claim, as it stands in the job, may be dead for a
// neighbour at a time of the server: its clock and ours may be off.
func (t terms) lapsed(job *unstructured.Unstructured, now int64) bool {
	at, _ := strconv.ParseInt(api.Label(job, api.LabelClaim), 10, 64)
	age := now - at
	return age >= (t.expiry-t.clockError()).Milliseconds() || age <= -(t.expiry-2*t.clockError()).Milliseconds()
}

// occupied returns how long a repository is taken by a neighbour at least,
// unless the watch shows the end of it; 0 = it is free.
func (c *Controller) occupied(l lane) time.Duration {
	if l.Repository == "" {
		return 0
	}
	list := c.neighbours.at(l)
	now, err := c.millis()
	if err != nil && len(list) > 0 {
		return min(c.o.Expiry, c.o.Interval)
	}
	rest := time.Duration(0)
	for _, x := range list {
		rest = max(rest, c.terms.alive(x, now))
	}
	return min(rest, c.o.Interval)
}

// rival is a neighbour that was first on a repository.
type rival struct {
	job   string
	turns bool // it claims in turn
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
		case <-own.known:
			timer.Stop()
			return c.shownRival(h, own), nil
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

// shownRival asks the watch, which has shown the own claim. Who was alive is
// judged as of the time in that claim, for which the watch is up to date.
func (c *Controller) shownRival(h *held, own *ownClaim) *rival {
	for _, x := range c.neighbours.earlier(own) {
		if c.terms.alive(x, h.started) > 0 {
			return &rival{job: x.String(), turns: agentOf(x.owner) != "", listed: own.listed}
		}
	}
	return nil
}

// replacedBy returns a neighbour that works on the repository of a job that is
// taken up again, or nil. The claim has been renewed already.
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
			if laneOf(job) != l || !claimed(job) || c.isOwnClaim(string(job.GetUID()), api.Label(job, api.LabelClaimOwner)) {
				continue
			}
			at, _ := strconv.ParseInt(api.Label(job, api.LabelClaim), 10, 64)
			if c.terms.alive(neighbour{at: at}, now) > 0 {
				return &rival{job: keyOf(job).String(), turns: agentOf(api.Label(job, api.LabelClaimOwner)) != "", listed: true}, nil
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
	if to.turns {
		c.rivalry.early()
	}
	var bar time.Duration
	if to.listed {
		bar = time.Duration(hashOf(c.o.Agent, h.token) % uint64(giveWay))
	}
	v, given := c.giveBack(h, func(job *unstructured.Unstructured) {
		api.SetAnnotation(job, api.AnnoNotBefore, strconv.FormatInt(c.nowMillis()+bar.Milliseconds(), 10))
	})
	if !given {
		return v
	}
	c.rest(context.WithoutCancel(h.ctx), h)
	c.tell(EventReleased, h.about, "another agent works on the repository: it has job "+to.job)
	return verdict{again: true, calm: true, bar: bar, rest: max(time.Millisecond, c.occupied(lane{h.Namespace, h.repository}))}
}
