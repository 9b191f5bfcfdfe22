package jobs

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/failpoint"
	"limpet/sync/jobs/lease"
	"limpet/sync/jobs/queue"
)

type claimer struct {
	env       *env
	jobs      lister
	exclusion *exclusion
	delay     *queue.ClaimDelay
	finisher  *finisher
}

// claim takes a job: the intent is stored first, then the labels are written under the
// resourceVersion that was read, then the claim is stored as confirmed. A crash between any two of
// these leaves a claim that recovery settles by UID and token. A request without an answer may
// arrive much later, so its token is used again until the job is seen to be gone or claimed by
// others: there is no claim that the state file does not know.
//
// Without a held job and without an error the job cannot be claimed now, and the result is what
// becomes of its key. The error is stale when the job has changed or gone since it was read. A
// doomed job is claimed only to be failed: a restart must not run it.
func (c *claimer) claim(
	ctx context.Context, job *unstructured.Unstructured, doomed bool,
) (h *heldJob, result queue.Result, err error) {
	k, open, err := c.storeIntent(ctx, job, doomed)
	if err != nil {
		return nil, result, err
	}
	millis, err := c.env.clock.millis()
	if err != nil {
		return nil, result, c.notSent(ctx, k, open, err)
	}
	if !open && !claimed(job) && c.overtaken(job) {
		c.abandon(ctx, k) // after it the repository may be free again
		return nil, queue.Result{Requeue: true, RepoAfter: c.exclusion.occupied(repoOf(job)), NotUrgent: true}, nil
	}
	next := job.DeepCopy()
	setClaim(next, millis, k.Token)
	api.SetAnnotation(next, api.AnnoNotBefore, "")
	api.SetAnnotation(next, api.AnnoAgent, c.env.o.Agent)
	setStatus(next, api.JobStatus{State: api.StateWorking, Started: millis, Message: "job started"})
	sent := c.env.clock.host.now()
	out, err := c.env.server.putJob(ctx, next)
	switch {
	case err == nil:
		return c.won(ctx, job, out, k, sent)
	case !stale(err):
		c.env.events.measure(ClaimAttempt{driverOf(ctx), ClaimError})
		return nil, result, c.notSent(ctx, k, open || !refusedByServer(err), err)
	}
	c.env.events.measure(ClaimAttempt{driverOf(ctx), ClaimConflict})
	c.delay.Lost()
	if open { // the earlier request may have arrived
		c.env.claims.addPending(pendingClaim{claim: k})
		return nil, queue.Result{Retry: true, Urgent: true}, nil
	}
	c.abandon(ctx, k)
	return nil, queue.Result{Retry: true}, err
}

// storeIntent stores the intent to claim a job. open reports that an earlier request with its token
// may still arrive.
func (c *claimer) storeIntent(
	ctx context.Context, job *unstructured.Unstructured, doomed bool,
) (k state.Claim, open bool, err error) {
	ref := refOf(job)
	k = state.Claim{
		UID: ref.uid, Namespace: ref.Namespace, Name: ref.Name, Repository: ref.repository, Action: ref.action,
		ResourceVersion: job.GetResourceVersion(), Token: tokenPrefix + c.env.o.self + "." + c.env.clock.host.token(), Attempt: ref.attempt,
		Phase: state.PhaseIntent, Created: c.env.clock.host.now().Wall, Doomed: doomed,
	}
	if before, err := c.env.store.Claim(ctx, ref.uid); err == nil {
		k.Mark = before.Mark
	}
	earlier, open := c.env.claims.openIntent(ref.uid)
	if open {
		k.Token = earlier.Token
	}
	if err := c.env.store.PutClaim(ctx, k); err != nil {
		return k, open, fmt.Errorf("store the intent to claim: %w", err)
	}
	c.env.pass(failpoint.Intent, ref)
	return k, open, nil
}

// won stores the claim as confirmed and begins to renew it.
func (c *claimer) won(
	ctx context.Context, before, job *unstructured.Unstructured, k state.Claim, sent lease.Reading,
) (*heldJob, queue.Result, error) {
	c.env.pass(failpoint.Claimed, refOf(before))
	c.env.events.measure(ClaimAttempt{driverOf(ctx), ClaimWon})
	c.delay.Won()
	k.Phase = state.PhaseHeld
	k.Claimed = c.env.clock.host.now().Wall
	k.ResourceVersion = job.GetResourceVersion()
	h := c.env.hold(ctx, job, k, sent)
	h.started = c.env.clock.roughMillis()
	h.run = h.started
	status, _, _ := unstructured.NestedString(before.Object, "status", "state")
	h.ranBefore = status != "" || k.Attempt > 1
	if err := c.env.store.PutClaim(h.ctx, k); err != nil {
		defer h.drop()
		return nil, c.finisher.release(h, "the claim cannot be written to the state file: "+err.Error()), nil
	}
	c.env.pass(failpoint.Confirmed, h.ref)
	if h.ref.attempt == 1 && !h.created.IsZero() {
		c.env.events.measure(FirstClaim{h.ref.action, max(time.UnixMilli(h.started).Sub(h.created), 0)})
	}
	return h, queue.Result{}, nil
}

// overtaken reports whether the watch has shown another claim since the job was read, on the job or
// on its repository: then a request would be in vain.
func (c *claimer) overtaken(job *unstructured.Unstructured) bool {
	seen, ok := c.jobs.Get(job.GetNamespace(), job.GetName())
	return ok && seen.GetUID() == job.GetUID() && claimed(seen) || c.exclusion.occupied(repoOf(job)) > 0 && cancelReason(job) == ""
}

// refusedByServer reports that an error came from the server and that nothing was written.
func refusedByServer(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsTooManyRequests(err) || apierrors.IsMethodNotSupported(err) ||
		apierrors.IsRequestEntityTooLargeError(err)
}

// notSent ends a try that has no claim to show. When a write may still arrive the intent stays, and
// the next look at the job tells by the token.
func (c *claimer) notSent(ctx context.Context, k state.Claim, mayArrive bool, cause error) error {
	if mayArrive {
		c.env.claims.addPending(pendingClaim{claim: k})
	} else {
		c.abandon(ctx, k)
	}
	return cause
}

// abandon forgets an intent that led to no claim, and keeps the mark of a job that was released
// before.
func (c *claimer) abandon(ctx context.Context, k state.Claim) {
	c.env.claims.dropPending(k.UID)
	ctx = context.WithoutCancel(ctx)
	var err error
	if len(k.Mark) > 0 {
		resting := k
		resting.Phase = state.PhaseResting
		resting.Token = ""
		resting.Doomed = false
		err = c.env.store.PutClaim(ctx, resting)
	} else {
		err = c.env.store.DropClaim(ctx, k.UID)
	}
	if err != nil {
		c.env.claims.addPending(pendingClaim{claim: k})
	}
}
