package jobs

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/failpoint"
	"limpet/sync/jobs/queue"
)

// A held job that does not end goes one of three ways: it is released to the queue of
// the API (release, yield, and retry in runner.go), its claim is left pending until
// the API or the state file can be written (suspend), or the lease is lost and nothing
// is written (leaseLost).

// releaseTime bounds the whole release of one job, all tries included.
const releaseTime = 10 * time.Second

// releaser lets go of held jobs.
type releaser struct {
	*env
	backoffs  *backoffs
	exclusion *exclusion
}

// release returns a held job to the queue: without claim, pending, and not counted
// as an attempt. The key is delayed for one interval, so that others come first. When
// the API cannot be written, the claim stays in the state file and the next look at
// the job, now or at the next start, takes it up again.
func (r *releaser) release(h *heldJob, why string) queue.Result {
	return r.giveBack(h, EventReleased, why, queue.Result{After: r.o.Interval, Requeue: true, NotUrgent: true}, func(*unstructured.Unstructured) {})
}

// yield releases a job whose repository another agent had claimed before. It is no
// attempt. The repository is in backoff until the other agent is done; where both may
// have yielded the job is delayed too, each time by another duration.
func (r *releaser) yield(h *heldJob, to *rival) queue.Result {
	var after time.Duration
	if to.unordered {
		after = time.Duration(queue.Hash(r.o.Agent, h.token) % uint64(maxYield))
	}
	result := queue.Result{Requeue: true, NotUrgent: true, After: after}
	text := "another agent works on the repository: it has job " + to.job
	out := r.giveBack(h, EventReleased, text, result, func(job *unstructured.Unstructured) {
		setNotBefore(job, r.clock.roughMillis()+after.Milliseconds())
	})
	if out == result {
		out.RepoAfter = max(time.Millisecond, r.exclusion.occupied(h.repo()))
	}
	return out
}

// giveBack takes the claim off a job, with what edit adds to that, and returns done.
// When it does not succeed it returns what becomes of the job instead.
func (r *releaser) giveBack(h *heldJob, typ, text string, done queue.Result, edit func(*unstructured.Unstructured)) queue.Result {
	h.seal()
	h.stopRenewing()
	ctx, cancel := context.WithTimeout(h.ctx, releaseTime)
	defer cancel()
	err := h.put(ctx, endTries, func(job *unstructured.Unstructured) {
		stripClaim(job)
		setState(job, api.StatePending)
		edit(job)
	})
	if err != nil {
		if cause, _ := h.lost(); cause != nil {
			return r.leaseLost(h)
		}
		return r.suspend(h, "the job could not be released ("+err.Error()+"); it is taken up again later")
	}
	r.pass(failpoint.Released, h.jobRef)
	ctx = context.WithoutCancel(h.ctx)
	if !r.backoffs.keep(ctx, h) {
		r.dropClaim(ctx, h)
	}
	r.events.emit(typ, h.jobRef, text)
	return done
}

// suspend leaves the claim pending: it is looked at again.
func (r *releaser) suspend(h *heldJob, why string) queue.Result {
	if why != "" {
		r.events.emit(EventWaiting, h.jobRef, why)
	}
	k, result := h.stored()
	r.claims.addPending(pendingClaim{claim: k, result: result})
	// Nothing works on the job now, so if the process stops before the next look
	// the job is not the reason: the next start, which counts every claim that it
	// finds as an attempt, must not count this one twice.
	k.Attempt--
	if err := r.store.PutClaim(context.WithoutCancel(h.ctx), k); err != nil {
		r.events.once("suspend "+h.uid, EventNote, h.jobRef, "the claim cannot be written to the state file: "+err.Error())
	}
	return queue.Result{Retry: true, Urgent: true}
}

// leaseLost ends a job whose lease is lost. Nothing is written about it. A job
// that is not known to be claimed by others (the API was away for too long) may
// still carry our claim: it is looked at again.
func (r *releaser) leaseLost(h *heldJob) queue.Result {
	cause, taken := h.lost()
	r.events.emit(EventLost, h.jobRef, cause.Error())
	if !taken {
		// A lease ends no sooner than it would be renewed, so this makes no hot loop.
		result := r.suspend(h, "")
		result.Progressed = true
		return result
	}
	r.dropClaim(context.WithoutCancel(h.ctx), h)
	return queue.Result{NotUrgent: true}
}

// stopped leaves a job whose end could not be written: the lease is lost, or the
// claim is left pending.
func (r *releaser) stopped(h *heldJob, why string) queue.Result {
	if cause, _ := h.lost(); cause != nil {
		return r.leaseLost(h)
	}
	return r.suspend(h, why)
}

// dropClaim forgets a claim in the state file. One that cannot be forgotten is
// looked at again: the job does not carry its token any more.
func (r *releaser) dropClaim(ctx context.Context, h *heldJob) {
	if err := r.store.DropClaim(ctx, h.uid); err != nil {
		r.events.once("drop "+h.uid, EventNote, h.jobRef, "an ended claim stays in the state file for now: "+err.Error())
		k, _ := h.stored()
		r.claims.addPending(pendingClaim{claim: k})
	}
}
