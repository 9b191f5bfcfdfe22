package jobs

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/failpoint"
	"limpet/sync/jobs/lease"
	"limpet/sync/jobs/queue"
)

// recoverer settles pending claims (claims.go):
//
//	the job does not exist, has another UID or another owner   forget the claim, "lost"
//	no owner, intent                 its request may still arrive: claim again with the same token
//	it is ours, intent or held       renew, then resume from the mark
//	it is ours, completing           renew, then go on with the completion
type recoverer struct {
	env       *env
	exclusion *exclusion
	runner    *runner
	finisher  *finisher
	queue     *workQueue
	wake      chan struct{} // holds one token when there are deletions

	mu        sync.Mutex // guards deletions
	deletions []*unstructured.Unstructured
}

// load takes over the claims that the last process left.
func (r *recoverer) load(ctx context.Context) error {
	claims, err := r.env.store.Claims(ctx)
	if err != nil {
		return fmt.Errorf("read own claims: %w", err)
	}
	for _, k := range claims {
		if k.Phase == state.PhaseResting {
			r.env.claims.addKnown(k.UID)
			continue
		}
		r.env.claims.addPending(pendingClaim{claim: k, restarted: true, result: r.resultOf(ctx, k)})
		ref := refOfClaim(k)
		r.queue.add(ref.Key, ref.repo(), true, queue.Unranked)
	}
	return nil
}

// resultOf reads how the work of a claim has ended that the last process left.
func (r *recoverer) resultOf(ctx context.Context, k state.Claim) result {
	if k.Phase != state.PhaseCompleting {
		return result{}
	}
	out := result{at: k.Claimed, undelivered: true}
	// Without the record the next look at the job finds that out.
	if found, err := r.env.store.History(ctx, state.Query{UID: k.UID, Limit: 1}); err == nil && len(found) == 1 {
		out.state, out.at = found[0].State, found[0].Finished
	}
	return out
}

// settle settles the pending claims of a key. job is nil when it does not exist. done reports that
// the key needs no other look now.
func (r *recoverer) settle(ctx context.Context, job *unstructured.Unstructured, pending []pendingClaim) (result queue.Result, done bool) {
	for _, p := range pending {
		why := "the job is gone"
		switch {
		case job == nil:
		case owned(job, p.claim.UID, p.claim.Token):
			if result, ended := r.removeEnded(ctx, job); ended {
				return result, true
			}
			return r.resume(ctx, job, p), true
		case string(job.GetUID()) == p.claim.UID && p.claim.Phase == state.PhaseIntent && !claimed(job):
			continue // its request may still arrive; claim uses the same token
		case string(job.GetUID()) == p.claim.UID:
			why = "the claim is in other hands or was removed"
		}
		if err := r.forget(ctx, p.claim, job == nil, why); err != nil {
			return queue.Result{Retry: true}, true
		}
	}
	return queue.Result{}, false
}

// endedHere reports whether this agent has ended a job and delivered that to the API. Such a job
// comes back with its UID when a server is restored from a backup, or the state file was rebuilt
// after damage.
func (e *env) endedHere(ctx context.Context, uid string) (bool, error) {
	found, err := e.store.History(ctx, state.Query{UID: uid, Limit: 1})
	return err == nil && len(found) > 0 && (found[0].HistoricJob == archivePosted || found[0].HistoricJob == archiveUnavailable), err
}

// discard takes a job out of the queue that has ended before, and forgets what there is of a claim.
func (e *env) discard(ctx context.Context, job *unstructured.Unstructured, typ, text string) error {
	ref := refOf(job)
	err := e.server.delete(ctx, api.Jobs, job)
	if err == nil || apierrors.IsNotFound(err) {
		err = e.store.DropClaim(ctx, ref.uid)
	}
	if err == nil {
		e.claims.dropPending(ref.uid)
		e.events.emit(typ, ref, text)
	}
	return err
}

// removeEnded discards a job that has ended before, if it has.
func (r *recoverer) removeEnded(ctx context.Context, job *unstructured.Unstructured) (queue.Result, bool) {
	ended, err := r.env.endedHere(ctx, api.Meta(job, "uid"))
	if err == nil && !ended {
		return queue.Result{}, false
	}
	if err == nil {
		err = r.env.discard(ctx, job, EventNote, "removed from the queue: its end is in the history already")
	}
	if err != nil {
		return r.env.retryLater(err), true
	}
	return queue.Result{NotUrgent: true}, true
}

// deleted has a job recorded that was deleted between two attempts, when the last of them was this
// agent's: the watch shows all that the record needs.
func (r *recoverer) deleted(job *unstructured.Unstructured) {
	list := attemptsEnded(job)
	if claimed(job) || len(list) == 0 || list[len(list)-1].Agent != r.env.o.Agent {
		return
	}
	r.mu.Lock()
	r.deletions = append(r.deletions, job)
	r.mu.Unlock()
	notify(r.wake)
}

// Run records deleted jobs, not in the way of the watch, until ctx ends.
func (r *recoverer) Run(ctx context.Context) {
	for ctx.Err() == nil {
		wait(ctx, r.wake, time.Time{}, false)
		r.mu.Lock()
		jobs := r.deletions
		r.deletions = nil
		r.mu.Unlock()
		for _, job := range jobs {
			if err := r.recordDeleted(context.WithoutCancel(ctx), job); err != nil {
				r.env.events.emit(EventNote, refOf(job), "no history of a deleted job: "+err.Error())
			}
		}
	}
}

func (r *recoverer) recordDeleted(ctx context.Context, job *unstructured.Unstructured) error {
	ref, list := refOf(job), attemptsEnded(job)
	found, err := r.env.store.History(ctx, state.Query{UID: ref.uid, Limit: 1})
	if err != nil || len(found) > 0 {
		return err
	}
	rec := state.Record{
		UID: ref.uid, Namespace: ref.Namespace, Name: ref.Name, Repository: ref.repository, Action: ref.action, Agent: r.env.o.Agent,
		State: stateCancelled, Message: "the job was deleted between two attempts", HistoricJob: archiveSkipped,
		Created: api.Time(job.GetCreationTimestamp().Time), Started: list[0].Started, Finished: time.UnixMilli(r.env.clock.roughMillis()),
		Spec: raw(job, "spec"), Status: raw(job, "status"), Labels: job.GetLabels(), Attempts: list,
	}
	write := r.env.store.PutRecord
	if r.env.o.QueueHistory {
		write = r.env.store.PutQueued
	}
	if err := write(ctx, rec); err != nil {
		return err
	}
	r.env.queued(true)
	r.finisher.pruner.recordAdded()
	r.env.events.emitState(EventCompleted, ref, rec.State, rec.Message, nil)
	return nil
}

// forget settles a claim whose job is gone or claimed by others.
func (r *recoverer) forget(ctx context.Context, k state.Claim, gone bool, why string) error {
	var err error
	if k.Phase == state.PhaseCompleting {
		historic := archiveSkipped
		if found, lookErr := r.env.archived(ctx, k.Namespace, k.UID); lookErr == nil && found {
			historic = archivePosted
		}
		err = r.env.endClaim(ctx, k.UID, historic, gone)
	} else {
		err = r.env.store.DropClaim(ctx, k.UID)
	}
	if err != nil {
		return fmt.Errorf("forget a claim: %w", err)
	}
	r.env.claims.dropPending(k.UID)
	switch k.Phase {
	case state.PhaseCompleting:
		r.env.events.emit(EventCompleted, refOfClaim(k), "the job had left the queue already: "+why)
	case state.PhaseHeld:
		r.env.events.emit(EventLost, refOfClaim(k), "lost while no driver worked on it: "+why)
	}
	return nil
}

// resume goes on with a job that still carries our claim.
func (r *recoverer) resume(ctx context.Context, job *unstructured.Unstructured, p pendingClaim) queue.Result {
	k := p.claim
	crashed := k.Began
	if p.restarted && k.Phase == state.PhaseHeld && !k.Doomed { // no worker has run under a doomed one
		k.Attempt++
		k.Began = time.UnixMilli(r.env.clock.roughMillis())
	}
	if k.Phase == state.PhaseIntent {
		k.Phase, k.Claimed = state.PhaseHeld, r.env.clock.host.now().Wall
	}
	h := r.env.hold(ctx, job, k, r.env.clock.host.now())
	defer h.drop()
	h.ranBefore = true
	h.change(func() { h.result = p.result })
	completing := k.Phase == state.PhaseCompleting
	if completing {
		h.seal()
	}
	r.setTimes(h, job, crashed)
	if err := r.renew(h); err != nil {
		switch _, taken := h.lost(); {
		case taken && completing:
			return r.finisher.undelivered(ctx, h, "", err)
		case taken:
			return r.finisher.leaseLost(h)
		}
		return r.finisher.suspend(h, "")
	}
	if completing {
		return r.complete(ctx, h)
	}
	if err := r.env.store.PutClaim(ctx, k); err != nil {
		return r.finisher.release(h, "the claim cannot be written to the state file: "+err.Error())
	}
	r.env.pass(failpoint.Confirmed, h.ref)
	text := "own claim found again, the work goes on from the last mark"
	if len(k.Mark) == 0 {
		text = "own claim found again, the work begins anew"
	}
	r.env.events.emit(EventResumed, h.ref, text)
	if k.Doomed && r.env.o.Cleanup == CleanupFail {
		return r.finisher.finish(h, newProgress(h), expiredOutcome())
	}
	if k.Doomed || k.Attempt > r.env.o.MaxAttempts {
		return r.finisher.finish(h, newProgress(h), dead(expiredOutcome(), attemptCrashed, r.env.o.MaxAttempts))
	}
	first, err := r.exclusion.rival(h, false)
	switch {
	case err != nil:
		return r.finisher.leaseLost(h)
	case first != nil:
		return r.finisher.yield(h, first)
	}
	return r.runner.resume(ctx, h, job)
}

// setTimes sets when the job and this attempt began, and adds the attempt that the crash of this
// agent has ended.
func (r *recoverer) setTimes(h *heldJob, job *unstructured.Unstructured, crashed time.Time) {
	if view, err := api.JobView(job); err == nil {
		h.started = view.Status.Started
	}
	if h.started == 0 {
		h.started = r.env.clock.roughMillis()
	}
	if h.run = h.started; !h.claim.Began.IsZero() {
		h.run = h.claim.Began.UnixMilli()
	}
	if h.ref.attempt-1 > attemptsOf(job) {
		ended := crashedAttempt(job, h.ref.attempt-1, "the agent stopped while it worked on the job")
		if !crashed.IsZero() {
			ended.Started = crashed
		}
		h.before = addAttempt(h.before, ended)
	}
}

// renew renews the claim and writes the count of attempts into the job, both in one write under the
// resourceVersion that showed the job to be ours.
func (r *recoverer) renew(h *heldJob) error {
	millis, err := r.env.clock.millis()
	if err != nil {
		return err
	}
	var sent lease.Reading
	err = h.put(h.ctx, progressTries, func(job *unstructured.Unstructured) {
		if now, err := r.env.clock.millis(); err == nil { // of this try, not of the first one
			millis = now
		}
		sent = r.env.clock.host.now()
		setClaim(job, millis, h.token)
		for _, ended := range h.before {
			endAttempt(job, ended)
		}
		api.SetAnnotation(job, api.AnnoAgent, r.env.o.Agent)
	})
	if err == nil {
		h.renewed(sent)
	}
	return err
}

// complete goes on where a completion was stopped. The record of the state file is the result; the
// HistoricJob may exist already.
func (r *recoverer) complete(ctx context.Context, h *heldJob) queue.Result {
	found, err := r.env.store.History(ctx, state.Query{UID: h.ref.uid, Limit: 1})
	if err != nil || len(found) == 0 {
		// Without its record the result is unknown: do the work again.
		return r.finisher.release(h, "the result of the job is not in the state file any more")
	}
	record := found[0]
	status := map[string]any{}
	if err := utiljson.Unmarshal(record.Status, &status); err != nil {
		return r.finisher.release(h, "the result of the job cannot be read any more")
	}
	out := Outcome{State: record.State, Message: record.Message, cancelled: record.State == stateCancelled}
	if record.State == stateDead {
		out.dead = cmp.Or(record.DeadLetter, &state.DeadLetter{})
	}
	ctx, cancel := r.env.within(h.ctx)
	defer cancel()
	return r.finisher.deliver(ctx, h, status, out)
}

// sweep forgets the marks of released jobs that have left the queue.
func (r *recoverer) sweep(ctx context.Context, jobs lister) {
	claims, err := r.env.store.Claims(ctx)
	for _, k := range claims {
		job, ok := jobs.Get(k.Namespace, k.Name)
		_, own := r.env.claims.token(k.UID)
		if err == nil && k.Phase == state.PhaseResting && !own && (!ok || api.Meta(job, "uid") != k.UID) {
			err = r.env.store.DropClaim(ctx, k.UID)
		}
	}
}
