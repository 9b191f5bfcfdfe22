package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/failpoint"
	"limpet/sync/jobs/queue"
)

// A held job that does not end is released to the queue of the API (release, yield, and
// retry in runner.go), its claim is left pending until the API or the state file can be
// written (suspend), or the lease is lost and nothing is written (leaseLost).

// releaseTime bounds the whole release of one job, all tries included.
const releaseTime = 10 * time.Second

// releaser lets go of held jobs.
type releaser struct {
	*env
	backoffs  *backoffs
	exclusion *exclusion
}

// release returns a held job to the queue: without claim, pending, and not counted as an
// attempt. The key is delayed for one interval, so that others come first.
func (r *releaser) release(h *heldJob, why string) queue.Result {
	result := queue.Result{After: r.o.Interval, Requeue: true, NotUrgent: true}
	return r.giveBack(h, EventReleased, why, result, func(*unstructured.Unstructured) {})
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
		return r.stopped(h, "the job could not be released ("+err.Error()+"); it is taken up again later")
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

// What is stored of a job in backoff between two attempts: its mark, with which the
// work goes on if this agent gets the job again, also after a restart. It is dropped
// where keeping it would cost too much: a mark may be as large as the texts of its job.
const maxMarks = 256

// backoffs are the jobs that this agent has released between two attempts.
type backoffs struct {
	*env
	pruner *pruner

	mu   sync.Mutex            // guards jobs
	jobs map[string]backoffJob // by UID
}

type backoffJob struct {
	claim state.Claim
	gone  *unstructured.Unstructured // as the watch showed it last, when it was deleted
}

// keep turns the claim of a job that was released into one in backoff, or reports
// that there is nothing to keep.
func (b *backoffs) keep(ctx context.Context, h *heldJob) (kept bool) {
	k, _ := h.stored()
	k.Phase, k.Token, k.Doomed = state.PhaseResting, "", false
	b.mu.Lock()
	known := len(b.jobs)
	b.mu.Unlock()
	if known >= maxMarks {
		return false
	}
	if len(k.Mark) == 0 && attemptsOf(h.last()) == 0 || b.store.PutClaim(ctx, k) != nil {
		return false
	}
	b.restore(k)
	return true
}

// restore takes over a job in backoff, also one that an earlier process has left.
func (b *backoffs) restore(k state.Claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.jobs[k.UID] = backoffJob{claim: k}
}

// claim returns what is stored of a job in backoff.
func (b *backoffs) claim(uid string) (state.Claim, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j, ok := b.jobs[uid]
	return j.claim, ok
}

// drop forgets a job in memory.
func (b *backoffs) drop(uid string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.jobs, uid)
}

// deleted reports whether a job was deleted between two attempts: no agent had claimed
// it, and its last attempt was one of this agent.
func (b *backoffs) deleted(job *unstructured.Unstructured) bool {
	uid := api.Meta(job, "uid")
	b.mu.Lock()
	defer b.mu.Unlock()
	j, ok := b.jobs[uid]
	if ok && !claimed(job) && len(attemptsEnded(job)) > 0 && attemptsOf(job) <= j.claim.Attempt {
		j.gone = job
		b.jobs[uid] = j
	}
	return ok
}

// sweep forgets the jobs that have left the queue while they were in backoff. Of
// those that were deleted it makes the record.
func (b *backoffs) sweep(ctx context.Context, jobs lister) {
	b.mu.Lock()
	known := slices.SortedFunc(maps.Values(b.jobs), func(x, y backoffJob) int { return strings.Compare(x.claim.UID, y.claim.UID) })
	b.mu.Unlock()
	for _, j := range known {
		job, ok := jobs.Get(j.claim.Namespace, j.claim.Name)
		if ok && api.Meta(job, "uid") == j.claim.UID || b.claims.isOwn(j.claim.UID) {
			continue
		}
		if err := b.forget(ctx, j); err != nil {
			return // the next sweep tries again
		}
		b.drop(j.claim.UID)
	}
}

func (b *backoffs) forget(ctx context.Context, j backoffJob) error {
	if j.gone == nil {
		return b.store.DropClaim(ctx, j.claim.UID)
	}
	r := b.deletedRecord(j.gone)
	if err := storeRecord(ctx, b.store, j.claim, r); err != nil {
		return err
	}
	b.pruner.recordAdded()
	b.events.emitState(EventCompleted, refOfClaim(j.claim), r.State, r.Message, nil)
	return b.store.EndClaim(ctx, j.claim.UID, archiveSkipped)
}

// deletedRecord is the record of a job that was deleted between two attempts.
func (b *backoffs) deletedRecord(job *unstructured.Unstructured) state.Record {
	ref, attempts, now := refOf(job), attemptsEnded(job), b.clock.roughMillis()
	last := attempts[len(attempts)-1]
	text := clip(fmt.Sprintf("cancelled: the job was deleted after attempt %d: %s", last.N, last.Message), maxMessage)
	job = job.DeepCopy()
	status := statusOf(job)
	status["state"], status["message"], status["finished"] = api.StateError, text, now
	return state.Record{
		UID: ref.uid, Namespace: ref.Namespace, Name: ref.Name, Repository: ref.repository, Action: ref.action,
		State: stateCancelled, Message: text, Agent: b.o.Agent, Started: last.Started, Finished: time.UnixMilli(now),
		Spec: raw(job, "spec"), Status: raw(job, "status"), Attempts: attempts,
	}
}

// refOfClaim names the job of a stored claim.
func refOfClaim(k state.Claim) jobRef {
	return jobRef{
		Key: queue.Key{Namespace: k.Namespace, Name: k.Name}, uid: k.UID,
		repository: k.Repository, action: k.Action, attempt: k.Attempt,
	}
}
