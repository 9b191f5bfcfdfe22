package jobs

import (
	"cmp"
	"context"
	"fmt"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/failpoint"
)

// A claim in the state file that no driver works on is unsettled: the process
// stopped, the API was away for too long, or an answer never came. There is one
// way to settle it, at start and later alike: its name goes to the head of the
// queue, a driver reads the job, and
//
//	the job does not exist, has another UID or another owner   forget it, "lost"
//	nobody has it, intent            its request may still arrive: claim it again with the same token
//	it is ours, intent or held       renew, then resume from the mark
//	it is ours, completing           renew, then go on with the completion

// unsettled is a claim that waits to be settled.
type unsettled struct {
	claim state.Claim
	// restart says that the process has stopped since: the claim of before
	// counts as an attempt, because the job may be what stopped it.
	restart bool
	result  result // of the work, when the claim is completing
}

// recall takes over the claims that the last process left.
func (c *Controller) recall(ctx context.Context) error {
	claims, err := c.store.Claims(ctx)
	if err != nil {
		return fmt.Errorf("read own claims: %w", err)
	}
	for _, k := range claims {
		r := c.resultOf(ctx, k)
		c.mu.Lock()
		if k.Phase == state.PhaseResting {
			c.resting[k.UID] = respite{claim: k, unwatched: true}
			c.mu.Unlock()
			continue
		}
		c.unsettled[k.UID] = unsettled{claim: k, restart: true, result: r}
		c.mu.Unlock()
		c.crew.was(agentOf(k.Token))
		c.queue.add(key{k.Namespace, k.Name}, lane{k.Namespace, k.Repository}, true)
	}
	return nil
}

// unsettle has a claim of this process settled. The driver that has its name
// gives it back with an urgent verdict.
func (c *Controller) unsettle(k state.Claim, r result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsettled[k.UID] = unsettled{claim: k, result: r}
}

// unsettledOf returns the claims under a name. There may be two when the name
// was reused.
func (c *Controller) unsettledOf(k key) []unsettled {
	return c.unsettledThat(func(of state.Claim) bool { return of.Namespace == k.Namespace && of.Name == k.Name })
}

// allUnsettled returns all of them, ordered by UID.
func (c *Controller) allUnsettled() []unsettled {
	return c.unsettledThat(func(state.Claim) bool { return true })
}

func (c *Controller) unsettledThat(fit func(state.Claim) bool) (out []unsettled) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range c.unsettled {
		if fit(u.claim) {
			out = append(out, u)
		}
	}
	if len(out) > 1 {
		sort.Slice(out, func(i, j int) bool { return out[i].claim.UID < out[j].claim.UID })
	}
	return out
}

// isOwnClaim says whether a claim is one of this agent. That the job was wanted
// here too is not enough: somebody else may have got it.
func (c *Controller) isOwnClaim(uid, token string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.running[uid]; h != nil {
		return h.token == token
	}
	u, ok := c.unsettled[uid]
	return ok && u.claim.Token == token
}

// isOwn says whether this agent works on a job or has still to settle it.
func (c *Controller) isOwn(uid string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, unsettled := c.unsettled[uid]
	return c.running[uid] != nil || unsettled
}

// Adrift returns the claims that no driver works on, owner token by UID: the work
// has ended or was left, and the API has not been told yet.
func (c *Controller) Adrift() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]string, len(c.unsettled))
	for uid, u := range c.unsettled {
		out[uid] = u.claim.Token
	}
	return out
}

// forget settles a claim whose job is gone or in other hands.
func (c *Controller) forget(ctx context.Context, u unsettled, why string) error {
	k := u.claim
	a := about{key: key{k.Namespace, k.Name}, uid: k.UID, repository: k.Repository, action: k.Action, attempt: k.Attempt}
	var err error
	if k.Phase == state.PhaseCompleting {
		historic := skipped
		if found, lookErr := c.server.archived(ctx, k.Namespace, k.UID); lookErr == nil && found {
			historic = posted
		}
		err = c.store.EndClaim(ctx, k.UID, historic)
	} else {
		err = c.store.DropClaim(ctx, k.UID)
	}
	if err != nil {
		return fmt.Errorf("forget a claim: %w", err)
	}
	c.neighbours.withdraw(k.UID, k.Token)
	c.mu.Lock()
	delete(c.unsettled, k.UID)
	c.mu.Unlock()
	switch k.Phase {
	case state.PhaseCompleting:
		c.tellState(EventCompleted, a, "", "the job had left the queue already: "+why)
	case state.PhaseHeld:
		c.tell(EventLost, a, "lost while nobody worked on it: "+why)
	}
	return nil
}

// resume goes on with a job that still carries our claim.
func (c *Controller) resume(ctx context.Context, job *unstructured.Unstructured, u unsettled) verdict {
	k := u.claim
	crashed := k.Began
	if u.restart && k.Phase == state.PhaseHeld && !k.Doomed { // nobody has worked under a doomed one
		k.Attempt++
		k.Began = time.UnixMilli(c.nowMillis())
	}
	if k.Phase == state.PhaseIntent {
		k.Phase, k.Claimed = state.PhaseHeld, c.host.now().wall
	}
	h := c.hold(ctx, job, k, c.host.now())
	defer c.drop(h)
	h.again = true
	h.settled(u.result)
	if k.Phase == state.PhaseCompleting {
		h.seal()
	}
	view, err := api.JobView(job)
	if err == nil {
		h.started = view.Status.Started
	}
	if h.started == 0 {
		h.started = c.nowMillis()
	}
	if h.run = h.started; !k.Began.IsZero() {
		h.run = k.Began.UnixMilli()
	}
	if k.Attempt-1 > attemptsOf(job) {
		ended := crashedAttempt(job, k.Attempt-1, "the agent stopped while it worked on the job")
		if !crashed.IsZero() {
			ended.Started = crashed
		}
		h.before = addAttempt(h.before, ended)
	}
	if err := c.retake(h, k); err != nil {
		if _, taken := h.lost(); taken {
			if k.Phase == state.PhaseCompleting {
				return c.unfinished(ctx, h, "", err)
			}
			return c.forfeited(h)
		}
		return c.later(h)
	}
	if k.Phase == state.PhaseCompleting {
		return c.resumeCompletion(ctx, h)
	}
	if err := c.store.PutClaim(ctx, k); err != nil {
		return c.release(h, "the claim cannot be kept in the state file: "+err.Error())
	}
	c.step(failpoint.Confirmed, h.about)
	c.tell(EventResumed, h.about, resumedText(k))
	if k.Doomed {
		return c.finish(ctx, h, newProgress(time.Now()), death())
	}
	if k.Attempt > c.o.MaxAttempts {
		return c.finish(ctx, h, newProgress(time.Now()), dead(death(), attemptCrashed, c.o.MaxAttempts))
	}
	first, err := c.replacedBy(h)
	switch {
	case err != nil:
		return c.forfeited(h)
	case first != nil:
		return c.yield(h, first)
	}
	return c.serve(ctx, h, job)
}

// retake renews the claim and writes the count of attempts into the job, both in
// one write under the resourceVersion that showed the job to be ours.
func (c *Controller) retake(h *held, k state.Claim) error {
	millis, err := c.millis()
	if err != nil {
		return err
	}
	var sent moment
	err = h.put(h.ctx, claimTries, func(job *unstructured.Unstructured) {
		if now, err := c.millis(); err == nil { // of this try, not of the first one
			millis = now
		}
		sent = c.host.now()
		setClaim(job, millis, k.Token)
		for _, ended := range h.before {
			endAttempt(job, ended)
		}
		api.SetAnnotation(job, api.AnnoAgent, c.o.Agent)
	})
	if err == nil {
		h.confirm(sent)
	}
	return err
}

// resumeCompletion goes on where a completion was stopped. The record of the
// state file is the result; the HistoricJob may exist already.
func (c *Controller) resumeCompletion(ctx context.Context, h *held) verdict {
	found, err := c.store.History(ctx, state.Query{UID: h.uid, Limit: 1})
	if err != nil || len(found) == 0 {
		// Without its record the result is unknown: do the work again.
		return c.release(h, "the result of the job is not in the state file any more")
	}
	r := found[0]
	status := map[string]any{}
	if err := utiljson.Unmarshal(r.Status, &status); err != nil {
		return c.release(h, "the result of the job cannot be read any more")
	}
	out := Outcome{State: r.State, Message: r.Message, cancelled: r.State == stateCancelled}
	if r.State == stateDead {
		out.dead = cmp.Or(r.DeadLetter, &state.DeadLetter{})
	}
	ctx, cancel := c.graceful(ctx, h.ctx)
	defer cancel()
	return c.deliver(ctx, h, status, out)
}

func resumedText(k state.Claim) string {
	if len(k.Mark) == 0 {
		return "own claim found again, the work begins anew"
	}
	return "own claim found again, the work goes on from the last mark"
}
