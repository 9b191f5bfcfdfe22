package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/failpoint"
)

// claimTries is how often a claim is tried on a job that changes under it.
// Source: Grafana's claim.
const claimTries = 3

var (
	// errTaken says that somebody else has the job or that it has changed into
	// one that is not to be claimed.
	errTaken = errors.New("job is taken")
	// errOccupied says that somebody else has claimed another job of the repository.
	errOccupied = errors.New("repository is occupied")
	// errBusy says that the job has changed under every try.
	errBusy = errors.New("job changes too often to be claimed")
	// errArrived says that an earlier request of this agent has claimed the job.
	errArrived = errors.New("an earlier request has claimed the job")
	// errReleased says that the job was claimed and given back.
	errReleased = errors.New("job was given back")
)

// claim takes a job: the intent is kept first, then the labels are written under
// the resourceVersion that was read, then the claim is kept as confirmed. A crash
// between any two of these leaves a claim that recovery settles by UID and token.
// A request without an answer may arrive much later. Until the job is seen to be
// gone or in other hands its token is kept and used again, so that there is never
// a claim that nobody knows.
//
// doomed says that the job is claimed only to be failed: a restart must not run
// it. free says whether a job that had to be read again may still be claimed.
// It returns errTaken when it may not, errOccupied when another agent has come to the
// repository since the job was read, and errBusy after too many conflicts.
func (c *Controller) claim(ctx context.Context, job *unstructured.Unstructured, doomed bool, free func(*unstructured.Unstructured) bool) (*held, error) {
	a := aboutOf(job)
	k := state.Claim{UID: a.uid, Namespace: a.Namespace, Name: a.Name, Repository: a.repository, Action: a.action,
		ResourceVersion: job.GetResourceVersion(), Token: tokenOf(c.o.self, c.host.token()), Attempt: a.attempt, Phase: state.PhaseIntent, Created: c.host.now().wall, Doomed: doomed}
	if before, ok := c.rested(a.uid); ok {
		k.Mark = before.Mark
	}
	earlier, open := c.openIntent(a.uid)
	if open {
		k.Token = earlier.Token
	}
	if err := c.store.PutClaim(ctx, k); err != nil {
		return nil, fmt.Errorf("keep the intent to claim: %w", err)
	}
	c.step(failpoint.Intent, a)
	if open {
		c.neighbours.withdraw(k.UID, k.Token) // the watch may show an earlier claim with this token
	} else {
		c.neighbours.begin(k.UID, k.Token)
	}
	for try := 1; ; try++ {
		millis, err := c.millis()
		if err != nil && open {
			c.unsettle(k, result{})
			return nil, err
		}
		if err != nil {
			return nil, c.abandon(ctx, k, err)
		}
		if try == 1 && !open && !claimed(job) {
			if err := c.overtaken(job); err != nil {
				return nil, c.abandon(ctx, k, err)
			}
		}
		next := job.DeepCopy()
		setClaim(next, millis, k.Token)
		api.SetAnnotation(next, api.AnnoNotBefore, "")
		api.SetAnnotation(next, api.AnnoAgent, c.o.Agent)
		setStatus(next, api.JobStatus{State: api.StateWorking, Started: millis, Message: "job started"})
		sent := c.host.now()
		out, err := c.server.putJob(ctx, next)
		if err == nil {
			c.step(failpoint.Claimed, a)
			c.o.Meter.Claim(driverOf(ctx), ClaimWon)
			c.rivalry.win()
			h, err := c.confirm(ctx, out, k, sent, millis)
			if err == nil {
				c.waited(h)
				status, _, _ := unstructured.NestedString(job.Object, "status", "state")
				h.again = status != "" || a.attempt > 1
			}
			return h, err
		}
		took := time.Since(sent.Time)
		if apierrors.IsConflict(err) {
			c.o.Meter.Claim(driverOf(ctx), ClaimConflict)
			if try == claimTries {
				c.o.Meter.Claim(driverOf(ctx), ClaimContended)
				return nil, c.abandon(ctx, k, errBusy)
			}
			if job, err = c.server.job(ctx, a.key); err == nil && string(job.GetUID()) == a.uid && free(job) {
				continue
			}
		} else {
			c.o.Meter.Claim(driverOf(ctx), ClaimError)
		}
		if apierrors.IsNotFound(err) || err == nil && (claimed(job) || string(job.GetUID()) != a.uid) {
			c.rivalry.lose(took, err != nil || string(job.GetUID()) != a.uid || agentOf(api.Label(job, api.LabelClaimOwner)) != "")
			c.crew.lose(time.Now())
		}
		switch {
		case err == nil && owned(job, k.UID, k.Token):
			c.unsettle(k, result{})
			return nil, errArrived
		case err == nil, stale(err):
			c.o.Meter.Claim(driverOf(ctx), ClaimContended)
			return nil, c.abandon(ctx, k, errTaken)
		case certain(err) && !open:
			return nil, c.abandon(ctx, k, err)
		}
		// The write may have arrived. The intent stays, and the next look at the
		// job tells by the token.
		c.unsettle(k, result{})
		return nil, err
	}
}

// overtaken returns an error when the watch has shown another claim since the job
// was read, on the job or on its repository: then a request would be in vain.
func (c *Controller) overtaken(job *unstructured.Unstructured) error {
	seen, ok := c.jobs.Get(job.GetNamespace(), job.GetName())
	switch {
	case ok && seen.GetUID() == job.GetUID() && claimed(seen):
		return errTaken
	case c.occupied(laneOf(job)) > 0 && cancelReason(job) == "":
		return errOccupied
	}
	return nil
}

// certain says that an error came from the server and that nothing was written.
func certain(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsTooManyRequests(err) || apierrors.IsMethodNotSupported(err) ||
		apierrors.IsRequestEntityTooLargeError(err)
}

// openIntent returns an intent whose request may still arrive.
func (c *Controller) openIntent(uid string) (state.Claim, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u, ok := c.unsettled[uid]
	return u.claim, ok && u.claim.Phase == state.PhaseIntent
}

// abandon forgets an intent that did not come to pass.
func (c *Controller) abandon(ctx context.Context, k state.Claim, cause error) error {
	ctx = context.WithoutCancel(ctx)
	c.neighbours.withdraw(k.UID, k.Token)
	c.mu.Lock()
	delete(c.unsettled, k.UID)
	c.mu.Unlock()
	err := c.store.DropClaim(ctx, k.UID)
	if before, ok := c.rested(k.UID); ok && err == nil {
		err = c.store.PutClaim(ctx, before)
	}
	if err != nil {
		c.unsettle(k, result{})
	}
	return cause
}

// confirm keeps the claim as confirmed and begins to renew it.
func (c *Controller) confirm(ctx context.Context, job *unstructured.Unstructured, k state.Claim, sent moment, started int64) (*held, error) {
	k.Phase, k.Claimed, k.ResourceVersion = state.PhaseHeld, c.host.now().wall, job.GetResourceVersion()
	h := c.hold(ctx, job, k, sent)
	h.started, h.run = started, started
	if err := c.store.PutClaim(h.ctx, k); err != nil {
		c.release(h, "the claim cannot be kept in the state file: "+err.Error())
		c.drop(h)
		return nil, fmt.Errorf("keep the claim: %w: %w", err, errReleased)
	}
	c.step(failpoint.Confirmed, h.about)
	return h, nil
}
