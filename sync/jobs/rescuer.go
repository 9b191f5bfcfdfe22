package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/failpoint"
	"limpet/sync/jobs/queue"
	"limpet/sync/kube"
)

// A claim counts as dead when its label is older than the expiry plus a margin by the server's
// clock AND has not changed for one expiry by the monotonic clock of this agent: no wrong clock
// gets a live claim taken away. One whose label cannot be compared is dead when it has not changed
// for so long. What follows is written under the UID and the resourceVersion that showed the claim:
// a renewal in between wins.

// Bounds of the interval between two passes. Source: Grafana's cleanup.
const (
	minCleanup = 30 * time.Second
	maxCleanup = 5 * time.Minute
)

// expiredText is the message of an attempt whose claim has expired.
const expiredText = "its claim has expired; the agent may have stopped or lost its connection"

type rescuer struct {
	env      *env
	jobs     lister
	claimer  *claimer
	finisher *finisher
	queue    *workQueue
	drain    *drain
	suspects map[string]suspect // by UID
}

// suspect is a claim that looks dead.
type suspect struct {
	claim, owner string    // labels as first seen so
	since        time.Time // when
	asked        int       // how often the server could not say whether the job is finished
}

// Run makes the passes: the first at once, then every three expiries, and sooner when a suspect is
// about to be certain.
func (r *rescuer) Run(ctx context.Context, await func(context.Context) error) {
	if r.env.o.Cleanup == CleanupOff {
		return
	}
	for await(ctx) == nil && ctx.Err() == nil {
		next, err := r.runOnce(ctx)
		if err != nil && ctx.Err() == nil {
			r.env.events.once("cleanup", EventNote, jobRef{}, "expired claims cannot be settled: "+err.Error())
		}
		_ = kube.Sleep(ctx, r.env.clock.host.jitter(next))
	}
}

// runOnce looks at all claims once, and returns when to look again.
func (r *rescuer) runOnce(ctx context.Context) (next time.Duration, err error) {
	next = min(max(3*r.env.o.Expiry, minCleanup), maxCleanup)
	now, err := r.env.clock.millis()
	if err != nil {
		// An answer has the time. An agent that sends no other request, because the claim of a dead one
		// keeps its jobs from it, would not come to know it.
		_ = r.env.server.list(ctx, api.Jobs, r.env.o.Namespace, claimedBefore(0), func(*unstructured.Unstructured) error { return nil })
		if now, err = r.env.clock.millis(); err != nil {
			return minCleanup, err
		}
	}
	found := map[string]*unstructured.Unstructured{} // whose claim looks dead, by UID
	for _, seen := range r.jobs.Objects() {
		job := shown(seen)
		if _, own := r.env.claims.token(job.uid); job.claimed && !own && r.env.o.terms().Alive(job.claimedAt, now) <= 0 {
			found[job.uid] = seen.Unstructured()
		}
	}
	maps.DeleteFunc(r.suspects, func(uid string, _ suspect) bool { return found[uid] == nil })
	for _, uid := range slices.Sorted(maps.Keys(found)) {
		if wait := r.untilCertain(uid, found[uid]); wait > 0 {
			next = min(next, max(wait, time.Second))
			continue
		}
		if err := r.settle(ctx, found[uid], now); err != nil {
			r.env.events.once("cleanup "+uid, EventNote, refOf(found[uid]), "the expired claim could not be settled: "+err.Error())
			next = min(next, minCleanup)
		}
		if ctx.Err() != nil {
			return next, context.Cause(ctx)
		}
	}
	return next, nil
}

// untilCertain returns how long a suspect has to be watched before it is certain.
func (r *rescuer) untilCertain(uid string, job *unstructured.Unstructured) time.Duration {
	old, known := r.suspects[uid]
	if known && old.claim == api.Label(job, api.LabelClaim) && old.owner == api.Label(job, api.LabelClaimOwner) {
		return r.env.o.Expiry - time.Since(old.since)
	}
	r.suspects[uid] = suspect{claim: api.Label(job, api.LabelClaim), owner: api.Label(job, api.LabelClaimOwner), since: time.Now()}
	return r.env.o.Expiry
}

// settle ends the dead claim of one job.
func (r *rescuer) settle(ctx context.Context, job *unstructured.Unstructured, now int64) error {
	ref := refOf(job)
	dead := r.suspects[ref.uid]
	fresh, err := r.env.server.get(ctx, api.Jobs, ref.Namespace, ref.Name)
	if err != nil || string(fresh.GetUID()) != ref.uid ||
		api.Label(fresh, api.LabelClaim) != dead.claim || api.Label(fresh, api.LabelClaimOwner) != dead.owner {
		delete(r.suspects, ref.uid)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	ref = refOf(fresh)
	// An owner that died between the HistoricJob and the DELETE has done the job, and so has this
	// agent where its history says so.
	done, err := r.env.archived(ctx, ref.Namespace, ref.uid)
	if err != nil && !refused(err) && dead.asked < archiveTries {
		dead.asked++
		r.suspects[ref.uid] = dead
		return err // the next pass asks again
	}
	if err != nil || !done {
		done, err = r.env.endedHere(ctx, ref.uid)
	}
	switch {
	case err == nil && done:
		err = r.env.discard(ctx, fresh, EventCompleted, "removed from the queue: it was finished before its claim expired")
	case r.env.o.Cleanup == CleanupRequeue && ref.attempt < r.env.o.MaxAttempts:
		err = r.requeue(ctx, fresh, now)
	case r.drain.on():
		return nil // to end the job is to claim it; the suspicion stays
	default:
		err = r.fail(ctx, fresh)
	}
	if err == nil || stale(err) {
		delete(r.suspects, ref.uid)
		return nil
	}
	return err
}

// requeue makes a job eligible again and counts the attempt.
func (r *rescuer) requeue(ctx context.Context, job *unstructured.Unstructured, now int64) error {
	ref := refOf(job)
	backoff := attemptDelay(ref.attempt + 1)
	endAttempt(job, crashedAttempt(job, ref.attempt, expiredText))
	stripClaim(job)
	setNotBefore(job, now+backoff.Milliseconds())
	setState(job, api.StatePending)
	if _, err := r.env.server.putJob(ctx, job); err != nil {
		return err
	}
	r.env.pass(failpoint.Requeued, ref)
	text := fmt.Sprintf("the claim of attempt %d of %d has expired, the job is eligible again", ref.attempt, r.env.o.MaxAttempts)
	r.env.events.emit(EventRequeued, ref, text)
	r.queue.addAfter(ref.Key, ref.repo(), backoff)
	return nil
}

// fail takes a job over and ends it as error in the way every job of this agent ends, so that it
// gets its history exactly once.
func (r *rescuer) fail(ctx context.Context, job *unstructured.Unstructured) error {
	ref := refOf(job)
	crashed := crashedAttempt(job, ref.attempt, expiredText)
	h, _, err := r.claimer.claim(ctx, job, true)
	if h == nil {
		return err
	}
	defer h.drop()
	r.env.events.emit(EventFailed, ref, expiredMessage)
	h.before = addAttempt(h.before, crashed)
	out := expiredOutcome()
	if r.env.o.Cleanup != CleanupFail {
		out = dead(out, attemptCrashed, ref.attempt)
	}
	if done := r.finisher.finish(h, newProgress(h), out); done.Retry {
		r.queue.add(ref.Key, ref.repo(), true, queue.Unranked)
	}
	return nil
}
