package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"limpet/state"
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

// What is stored of a job in backoff between two attempts. Its mark stays in the
// state file: if this agent gets the job again, also after a restart, the work
// goes on from it. And so do its attempts: when the job is deleted while it has no
// claim, the record with its attempts is made by the agent that had it last. Both are
// dropped where keeping them would cost too much.

// Bounds of what is stored: a mark may be as large as the texts of its job
// (textBudget), the attempts are small.
const (
	maxBackoffs = 4096
	maxMarks    = 256
)

// backoffs are the jobs that this agent has released between two attempts.
type backoffs struct {
	*env
	archiver *archiver
	pruner   *pruner

	mu   sync.Mutex            // guards jobs
	jobs map[string]backoffJob // by UID
}

type backoffJob struct {
	claim state.Claim
	token string // of the claim that was released: the watch may show it late
	// elsewhere reports that another agent has claimed the job since, and reports its
	// end.
	elsewhere bool
	// unwatched reports that the watch has begun anew since: a claim may have been
	// missed.
	unwatched bool
}

// keep turns the claim of a job that was released into one in backoff, or reports
// that there is nothing to keep.
func (b *backoffs) keep(ctx context.Context, h *heldJob) (kept bool) {
	k, _ := h.stored()
	job := h.last()
	k.Phase, k.Token, k.Doomed, k.Attempts = state.PhaseResting, "", false, attemptsEnded(job)
	b.mu.Lock()
	known := len(b.jobs)
	b.mu.Unlock()
	if known >= maxMarks {
		k.Mark = nil
	} else if len(k.Attempts) > 0 {
		k.Spec, k.Status = raw(job, "spec"), raw(job, "status")
	}
	if known >= maxBackoffs || len(k.Mark) == 0 && len(k.Attempts) == 0 || b.store.PutClaim(ctx, k) != nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.jobs[k.UID] = backoffJob{claim: k, token: h.token}
	return true
}

// restore takes over a job in backoff that an earlier process has left.
func (b *backoffs) restore(k state.Claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.jobs[k.UID] = backoffJob{claim: k, unwatched: true}
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

// see records that another agent has claimed a job in backoff: by the claim, or by
// the attempt that came of it.
func (b *backoffs) see(job *unstructured.Unstructured) {
	uid := api.Meta(job, "uid")
	b.mu.Lock()
	defer b.mu.Unlock()
	j, ok := b.jobs[uid]
	if !ok || j.elsewhere {
		return
	}
	known := 0
	if n := len(j.claim.Attempts); n > 0 {
		known = j.claim.Attempts[n-1].N
	}
	if claimed(job) && api.Label(job, api.LabelClaimOwner) != j.token || attemptsOf(job) > known {
		j.elsewhere = true
		b.jobs[uid] = j
	}
}

// relisted records that the watch begins anew.
func (b *backoffs) relisted() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for uid, j := range b.jobs {
		j.unwatched = true
		b.jobs[uid] = j
	}
}

// sweep forgets the jobs that have left the queue while they were in backoff. Of
// those that were deleted it makes the record.
func (b *backoffs) sweep(ctx context.Context, jobs lister) {
	for _, j := range b.gone(jobs) {
		if b.claims.isOwn(j.claim.UID) {
			continue // its record is that of the claim now
		}
		if err := b.forget(ctx, j); err != nil {
			return // the next sweep tries again
		}
		b.drop(j.claim.UID)
	}
}

// gone returns the jobs in backoff that the watch does not show, ordered by UID.
func (b *backoffs) gone(jobs lister) (out []backoffJob) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, j := range b.jobs {
		job, ok := jobs.Get(j.claim.Namespace, j.claim.Name)
		if !ok || api.Meta(job, "uid") != j.claim.UID {
			out = append(out, j)
		}
	}
	slices.SortFunc(out, func(x, y backoffJob) int { return strings.Compare(x.claim.UID, y.claim.UID) })
	return out
}

// forget forgets a job that has left the queue, as far as the watch shows. It was
// deleted if no agent has claimed it since and none has archived it. What the
// watch may have missed and no HistoricJob can tell is not known, and then there
// is no record: it might call a job cancelled that others have done.
func (b *backoffs) forget(ctx context.Context, j backoffJob) error {
	k := j.claim
	if j.elsewhere || len(k.Attempts) == 0 {
		return b.store.DropClaim(ctx, k.UID)
	}
	switch job, err := b.server.job(ctx, queue.Key{Namespace: k.Namespace, Name: k.Name}); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return err
	case string(job.GetUID()) == k.UID: // the watch was behind, or is of another namespace now
		return b.store.DropClaim(ctx, k.UID)
	}
	unknown := j.unwatched
	if !b.archiver.unavailableNow() {
		switch found, err := b.server.archived(ctx, k.Namespace, k.UID); {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err):
		case err != nil:
			return err
		case found:
			return b.store.DropClaim(ctx, k.UID)
		default:
			unknown = false
		}
	}
	if unknown {
		return b.store.DropClaim(ctx, k.UID)
	}
	r := b.deletedRecord(k)
	if err := storeRecord(ctx, b.store, k, r); err != nil {
		return err
	}
	b.pruner.recordAdded()
	b.events.emitState(EventCompleted, refOfClaim(k), r.State, r.Message, nil)
	return b.store.EndClaim(ctx, k.UID, archiveSkipped)
}

// deletedRecord is the record of a job that was deleted between two attempts.
func (b *backoffs) deletedRecord(k state.Claim) state.Record {
	last, now := k.Attempts[len(k.Attempts)-1], b.clock.roughMillis()
	text := clip(fmt.Sprintf("cancelled: the job was deleted after attempt %d: %s", last.N, last.Message), maxMessage)
	status := map[string]any{}
	if utiljson.Unmarshal(k.Status, &status) != nil || status == nil {
		status = map[string]any{}
	}
	status["state"], status["message"], status["finished"] = api.StateError, text, now
	data, _ := json.Marshal(status) // plain data
	return state.Record{
		UID: k.UID, Namespace: k.Namespace, Name: k.Name, Repository: k.Repository, Action: k.Action,
		State: stateCancelled, Message: text, Agent: b.o.Agent, Started: last.Started, Finished: time.UnixMilli(now),
		Spec: k.Spec, Status: data, Attempts: k.Attempts,
	}
}

// refOfClaim names the job of a stored claim.
func refOfClaim(k state.Claim) jobRef {
	return jobRef{
		Key: queue.Key{Namespace: k.Namespace, Name: k.Name}, uid: k.UID,
		repository: k.Repository, action: k.Action, attempt: k.Attempt,
	}
}
