package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/failpoint"
)

// Claims whose owner has died. A claim counts as dead when its label is older
// than the expiry plus a margin by the server's clock AND has not changed for one
// expiry while this agent looked on, by its own monotonic clock: so neither a
// wrong clock here nor one at the owner gets a live claim taken away. A claim
// whose label cannot be compared (not a number, far in the future) is dead when
// it has not changed for so long. What follows is written under the UID and the
// resourceVersion that showed the claim: a renewal in between wins.

// Bounds of the interval between two passes. Source: Grafana's cleanup.
const (
	minCleanup = 30 * time.Second
	maxCleanup = 5 * time.Minute
)

// suspect is a claim that looks dead.
type suspect struct {
	claim, owner string    // labels as first seen so
	since        time.Time // when
}

// cleaner is the memory of the cleanup loop.
type cleaner struct {
	c        *Controller
	suspects map[string]suspect // by UID
}

// cleanupResult is what one pass has done.
type cleanupResult struct {
	Seen, Requeued, Failed, Finished int
	Next                             time.Duration // until the next pass
}

// clean runs the passes: the first at once, then every three expiries, and
// sooner when a suspect is about to be certain.
func (c *Controller) clean(ctx context.Context) {
	if c.o.Cleanup == CleanupOff {
		return
	}
	k := &cleaner{c: c, suspects: map[string]suspect{}}
	for ctx.Err() == nil {
		if c.await(ctx) != nil {
			return
		}
		r, err := k.runOnce(ctx)
		if err != nil && ctx.Err() == nil {
			c.once("cleanup", EventNote, about{}, "expired claims cannot be looked for: "+err.Error())
		}
		pause(ctx, c.host.jitter(r.Next))
	}
}

func (k *cleaner) interval() time.Duration {
	return min(max(3*k.c.o.Expiry, minCleanup), maxCleanup)
}

// runOnce looks at all claims once.
func (k *cleaner) runOnce(ctx context.Context) (cleanupResult, error) {
	r := cleanupResult{Next: k.interval()}
	now, err := k.c.millis()
	if err != nil {
		// An answer tells the time. An agent that has nothing else to ask, because
		// the claim of a dead one keeps its jobs from it, would not come to know it.
		_, _, _ = k.c.server.expiredJobs(ctx, k.c.o.Namespace, 0, "")
		if now, err = k.c.millis(); err != nil {
			r.Next = minCleanup
			return r, err
		}
	}
	found, err := k.candidates(ctx, now)
	if err != nil {
		return r, err
	}
	r.Seen = len(found)
	for uid := range k.suspects {
		if found[uid] == nil {
			delete(k.suspects, uid)
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(found)) {
		job := found[uid]
		wait := k.patience(uid, job)
		if wait > 0 {
			r.Next = min(r.Next, max(wait, time.Second))
			continue
		}
		if err := k.settle(ctx, job, now, &r); err != nil {
			k.c.once("cleanup "+uid, EventNote, aboutOf(job), "the expired claim could not be settled: "+err.Error())
			r.Next = min(r.Next, minCleanup)
		}
		if ctx.Err() != nil {
			return r, context.Cause(ctx)
		}
	}
	return r, nil
}

// candidates returns the jobs whose claim looks dead now, by UID.
func (k *cleaner) candidates(ctx context.Context, now int64) (map[string]*unstructured.Unstructured, error) {
	c := k.c
	found := map[string]*unstructured.Unstructured{}
	consider := func(job *unstructured.Unstructured) {
		if uid := string(job.GetUID()); !c.isOwn(uid) {
			found[uid] = job
		}
	}
	before := now - c.o.Expiry.Milliseconds() - c.terms.clockError().Milliseconds()
	for page := ""; ; {
		jobs, next, err := c.server.expiredJobs(ctx, c.o.Namespace, before, page)
		if apierrors.IsResourceExpired(err) && page != "" {
			page = ""
			continue
		}
		if err != nil {
			return nil, err
		}
		for i := range jobs {
			consider(&jobs[i])
		}
		if page = next; page == "" {
			break
		}
	}
	for _, seen := range c.jobs.Objects() {
		if !claimedSight(seen) {
			continue
		}
		if job := seen.Unstructured(); !readable(job, now+c.o.Expiry.Milliseconds()) {
			consider(job)
		}
	}
	return found, nil
}

// readable says whether the claim label of a job will ever be found by age.
func readable(job *unstructured.Unstructured, latest int64) bool {
	at, err := strconv.ParseInt(api.Label(job, api.LabelClaim), 10, 64)
	return err == nil && at <= latest
}

// patience returns how long a suspect has to be watched before it is certain.
func (k *cleaner) patience(uid string, job *unstructured.Unstructured) time.Duration {
	seen := suspect{claim: api.Label(job, api.LabelClaim), owner: api.Label(job, api.LabelClaimOwner), since: time.Now()}
	if old, ok := k.suspects[uid]; ok && old.claim == seen.claim && old.owner == seen.owner {
		return k.c.o.Expiry - time.Since(old.since)
	}
	k.suspects[uid] = seen
	return k.c.o.Expiry
}

// settle ends the dead claim of one job.
func (k *cleaner) settle(ctx context.Context, job *unstructured.Unstructured, now int64, r *cleanupResult) error {
	c, a := k.c, aboutOf(job)
	dead := k.suspects[a.uid]
	fresh, err := c.server.job(ctx, a.key)
	if err != nil || string(fresh.GetUID()) != a.uid || api.Label(fresh, api.LabelClaim) != dead.claim || api.Label(fresh, api.LabelClaimOwner) != dead.owner {
		delete(k.suspects, a.uid)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	// An owner that died between the HistoricJob and the DELETE has done the job,
	// and so has this agent where its history says so.
	done, err := c.server.archived(ctx, a.Namespace, a.uid)
	if err != nil || !done {
		done, err = c.endedHere(ctx, a.uid)
	}
	if err == nil && done {
		if err := c.server.deleteJob(ctx, a.key, a.uid, fresh.GetResourceVersion()); err != nil && !stale(err) {
			return err
		}
		r.Finished++
		c.tell(EventCompleted, a, "removed from the queue: it was finished before its claim expired")
		delete(k.suspects, a.uid)
		return nil
	}
	switch {
	case c.o.Cleanup == CleanupRequeue && a.attempt < c.o.MaxAttempts:
		err = k.requeue(ctx, fresh, now, r)
	case c.draining():
		return nil // to end the job is to claim it; the suspicion stays
	default:
		err = k.fail(ctx, fresh, r)
	}
	if err == nil || stale(err) {
		delete(k.suspects, a.uid)
		return nil
	}
	return err
}

// requeue makes a job eligible again and counts the attempt.
func (k *cleaner) requeue(ctx context.Context, job *unstructured.Unstructured, now int64, r *cleanupResult) error {
	a := aboutOf(job)
	rest := attemptDelay(a.attempt + 1)
	endAttempt(job, crashedAttempt(job, a.attempt, expiredText))
	stripClaim(job)
	api.SetAnnotation(job, api.AnnoNotBefore, strconv.FormatInt(now+rest.Milliseconds(), 10))
	setState(job, api.StatePending)
	if _, err := k.c.server.putJob(ctx, job); err != nil {
		return err
	}
	k.c.step(failpoint.Requeued, a)
	r.Requeued++
	k.c.tell(EventRequeued, a, fmt.Sprintf("the claim of attempt %d of %d has expired, the job is eligible again", a.attempt, k.c.o.MaxAttempts))
	k.c.queue.addAfter(a.key, laneOf(job), rest)
	return nil
}

// fail takes a job over and ends it as error by the way every job of this agent
// ends, so that it gets its history exactly once.
func (k *cleaner) fail(ctx context.Context, job *unstructured.Unstructured, r *cleanupResult) error {
	c, a := k.c, aboutOf(job)
	crashed := crashedAttempt(job, a.attempt, expiredText)
	doomed := c.o.Cleanup == CleanupFail
	h, err := c.claim(ctx, job, doomed, func(*unstructured.Unstructured) bool { return false })
	if err != nil {
		if errors.Is(err, errTaken) || errors.Is(err, errBusy) {
			return nil
		}
		return err
	}
	defer c.drop(h)
	c.tell(EventFailed, a, deathMessage)
	h.before = addAttempt(h.before, crashed)
	out := death()
	if !doomed {
		out = dead(out, attemptCrashed, a.attempt)
	}
	if v := c.finish(ctx, h, newProgress(time.Now()), out); v.retry {
		c.queue.add(a.key, laneOf(job), true)
	}
	r.Failed++
	return nil
}

// expiredText is what the list of attempts says of one whose claim has expired.
const expiredText = "its claim has expired; the agent may have stopped or lost its connection"
