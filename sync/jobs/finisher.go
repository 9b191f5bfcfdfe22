package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/failpoint"
	"limpet/sync/jobs/queue"
	"limpet/sync/kube"
	"limpet/sync/text"
)

// The end of a held job is one of these:
//
//	finish     its result is recorded together with the phase "completing" in one
//	           transaction of the state file; then come the HistoricJob, the DELETE and the
//	           end of the claim. Whatever stops this, the next start goes on there.
//	giveBack   it is released to the queue of the API (release, yield, retry in runner.go)
//	suspend    its claim is left pending until the API or the state file can be written
//	leaseLost  nothing is written about it any more

type finisher struct {
	env       *env
	exclusion *exclusion
	archiver  *archiver
	pruner    *pruner
	queue     *workQueue
	ending    sync.WaitGroup // claims of completed jobs that are being forgotten
}

// finish ends a held job with an outcome. After Run was told to stop, the grace period is left to
// get things done.
func (f *finisher) finish(h *heldJob, p *Progress, out Outcome) queue.Result {
	h.seal()
	status, record := f.finalState(h, p, out)
	ctx, cancel := f.env.within(h.ctx)
	defer cancel()
	if result, ok := f.record(ctx, h, record); !ok {
		return result
	}
	f.env.pass(failpoint.Recorded, h.ref)
	h.change(func() {
		h.claim.Phase, h.result = state.PhaseCompleting, result{state: record.State, at: record.Finished}
	})
	return f.deliver(ctx, h, status, out)
}

// finishDeleted ends a job that was deleted while it ran. There is nothing left in the API to write
// to; the local history has the result.
func (f *finisher) finishDeleted(ctx context.Context, h *heldJob, p *Progress, reason string) queue.Result {
	out := p.Outcome(fmt.Errorf("cancelled: %s", reason))
	out.cancelled = true
	status, record := f.finalState(h, p, out)
	h.stopRenewing()
	ctx = context.WithoutCancel(ctx)
	if err := f.env.store.Complete(ctx, h.ref.uid, record); err != nil {
		f.env.events.emit(EventNote, h.ref, "no history of a deleted job: "+err.Error())
		f.dropClaim(ctx, h)
		return queue.Result{NotUrgent: true}
	}
	f.completed(h, out, status)
	return f.endClaim(ctx, h, archiveSkipped, true)
}

// finalState makes the final status of a job, with the members that are not ours, and its record.
func (f *finisher) finalState(h *heldJob, p *Progress, out Outcome) (map[string]any, state.Record) {
	finished := f.env.clock.roughMillis()
	job := h.last()
	setStatus(job, p.finalStatus(out, h.started, finished))
	status, res := statusOf(job), p.look()
	data, _ := json.Marshal(status) // plain data
	r := state.Record{
		UID: h.ref.uid, Namespace: h.ref.Namespace, Name: h.ref.Name, Repository: h.ref.repository, Action: h.ref.action,
		State: out.shown(), Message: out.Message, Agent: f.env.o.Agent,
		Started: api.TimeOfMillis(h.started), Finished: time.UnixMilli(finished),
		Spec: raw(h.origin, "spec"), Status: data, Labels: h.origin.GetLabels(),
		RefFrom: res.RefFrom, RefTo: res.RefTo, Created: api.Time(h.created), Commit: res.Commit,
		Steps: finishedSteps(res.Steps, time.Now()), Attempts: h.before, DeadLetter: out.dead,
		Issues: res.Issues, IssuesLeft: res.IssuesLeft,
	}
	delete(r.Labels, api.LabelClaim)
	delete(r.Labels, api.LabelClaimOwner)
	last := state.Attempt{
		N: h.ref.attempt, Agent: r.Agent, State: r.State, Message: r.Message, Started: api.TimeOfMillis(h.run), Finished: r.Finished,
	}
	if out.dead != nil {
		last.State, last.Message = out.dead.Reason, out.dead.LastError
	}
	if last.State != attemptCrashed { // else no worker has run in this one
		r.Attempts = addAttempt(r.Attempts, last)
	}
	return status, r
}

// freeTries is how often history makes space for one result. When the disk is full of other files,
// more would cost history and gain nothing.
const freeTries = 3

// record stores the result. A full disk keeps the job until there is space; a state file that
// cannot be written at all releases the job, because a result that is not stored does not count. A
// state file that was rebuilt under us has lost the claim.
func (f *finisher) record(ctx context.Context, h *heldJob, r state.Record) (queue.Result, bool) {
	for try := 1; ; try++ {
		f.queue.progressed(h.ref.Key)
		err := f.env.store.Complete(ctx, h.ref.uid, r)
		if errors.Is(err, state.ErrNotFound) {
			k, _ := h.stored()
			if err = f.env.store.PutClaim(ctx, k); err == nil {
				err = f.env.store.Complete(ctx, h.ref.uid, r)
			}
		}
		switch {
		case err == nil:
			return queue.Result{}, true
		case ctx.Err() != nil:
			return f.stopped(h, "the result could not be stored, the job is taken up again: "+err.Error()), false
		case errors.Is(err, state.ErrReadOnly), errors.Is(err, state.ErrClosed):
			return f.release(h, "the result cannot be stored: "+err.Error()), false
		}
		f.env.events.once("record "+h.ref.uid, EventWaiting, h.ref, "the result cannot be stored yet: "+err.Error())
		if try <= freeTries && (errors.Is(err, state.ErrFull) || errors.Is(err, syscall.ENOSPC)) {
			f.pruner.freeSpace(ctx)
		}
		_ = kube.Sleep(ctx, queue.RetryDelay(try))
	}
}

// deliver takes a recorded job out of the queue of the API.
func (f *finisher) deliver(ctx context.Context, h *heldJob, status map[string]any, out Outcome) queue.Result {
	historic := ""
	lookFirst := h.ranBefore
	refusals := 0
	for try := 1; ; try++ {
		f.queue.progressed(h.ref.Key)
		var err error
		if historic == "" {
			historic, err = f.archiver.archive(ctx, h, status, lookFirst)
			lookFirst = true                              // it may have arrived
			if errors.As(err, new(apierrors.APIStatus)) { // an answer of the server
				refusals++
			}
			if err != nil && refusals >= archiveTries && ctx.Err() == nil {
				f.env.events.emit(EventNote, h.ref, "no HistoricJob could be made: "+err.Error())
				historic, err = archiveSkipped, nil
			}
			if err == nil {
				f.env.pass(failpoint.Posted, h.ref)
			}
		}
		if err == nil {
			if err = h.remove(ctx); err == nil {
				break
			}
		}
		if ctx.Err() != nil {
			return f.undelivered(ctx, h, historic, err)
		}
		h.change(func() { h.result.undelivered = true })
		f.env.events.once("deliver "+h.ref.uid, EventWaiting, h.ref, "the job is done, but the API does not accept the result yet: "+err.Error())
		_ = kube.Sleep(ctx, max(f.env.clock.retryAfter(err), queue.RetryDelay(try)))
	}
	f.env.pass(failpoint.Deleted, h.ref)
	h.stopRenewing()
	// Only the end of Run waits for it, so that this write shares its fsync with the first one of the
	// next job.
	f.ending.Go(func() {
		if f.endClaim(ctx, h, historic, true).Retry {
			f.queue.add(h.ref.Key, h.ref.repo(), true, queue.Unranked)
		}
		f.env.pass(failpoint.Ended, h.ref)
	})
	if out.dead != nil {
		f.env.events.emitState(EventDead, h.ref, out.dead.Reason,
			"no attempt is left after "+text.Plural(out.dead.Attempts, "attempt")+"; limpet job retry "+h.ref.uid+" begins anew", nil)
	}
	f.completed(h, out, status)
	return queue.Result{NotUrgent: true}
}

// undelivered leaves a job whose end could not be written. When it is known to be claimed by others
// its claim is dropped, otherwise it is looked at again when the API is back, in this process or
// the next.
func (f *finisher) undelivered(ctx context.Context, h *heldJob, historic string, err error) queue.Result {
	if cause, taken := h.lost(); taken {
		f.env.events.emit(EventLost, h.ref, cause.Error()+"; its result is in the local history only")
		return f.endClaim(ctx, h, cmp.Or(historic, archiveSkipped), false)
	}
	h.change(func() { h.result.undelivered = true })
	return f.suspend(h, "the result is stored and sent when the API is back: "+err.Error())
}

// endClaim forgets the claim of a completed job. If that fails the job is looked at again, found to
// be gone, and forgotten then. ours is false for a job that another agent ends too.
func (f *finisher) endClaim(ctx context.Context, h *heldJob, historic string, ours bool) queue.Result {
	if err := f.env.endClaim(context.WithoutCancel(ctx), h.ref.uid, historic, ours); err != nil {
		f.env.events.once("end "+h.ref.uid, EventNote, h.ref, "the claim of a completed job stays in the state file: "+err.Error())
		return f.suspend(h, "")
	}
	return queue.Result{NotUrgent: true}
}

// completed reports a job that is in history and gone from the queue.
func (f *finisher) completed(h *heldJob, out Outcome, status map[string]any) {
	f.pruner.recordAdded()
	outcome, changed := out.State, int64(0)
	if outcome != api.StateSuccess && outcome != api.StateWarning {
		outcome = api.StateError
	}
	summary, _ := status["summary"].([]any)
	for _, part := range summary {
		kind, _ := part.(map[string]any)
		changed += number(kind["create"]) + number(kind["update"]) + number(kind["delete"])
	}
	took := time.Duration(max(number(status["finished"])-number(status["started"]), 0)) * time.Millisecond
	f.env.events.measure(Processed{h.ref.action, outcome, changed, took})
	last := h.running()
	last.Job = h.last()
	f.env.events.emitState(EventCompleted, h.ref, out.shown(), out.Message, &last)
}

// within returns a context that ends with the lease, or with the grace period after Run was told to
// stop.
func (e *env) within(lease context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(lease)
	stop := context.AfterFunc(e.life, func() { cancel(ErrShutdown) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}

// release returns a held job to the queue: without claim, pending, and not counted as an attempt.
// The key is delayed for one interval, so that others come first.
func (f *finisher) release(h *heldJob, why string) queue.Result {
	result := queue.Result{After: f.env.o.Interval, Requeue: true, NotUrgent: true}
	return f.giveBack(h, EventReleased, why, result, func(*unstructured.Unstructured) {})
}

// yield releases a job whose repository another agent had claimed before. It is no attempt. The
// repository is in backoff until the other agent is done; where both may have yielded the job is
// delayed too, each time by another duration.
func (f *finisher) yield(h *heldJob, to *rival) queue.Result {
	var after time.Duration
	if to.unordered {
		after = time.Duration(queue.Hash(f.env.o.Agent, h.token) % uint64(maxYield))
	}
	result := queue.Result{Requeue: true, NotUrgent: true, After: after}
	text := "another agent works on the repository: it has job " + to.job
	out := f.giveBack(h, EventReleased, text, result, func(job *unstructured.Unstructured) {
		setNotBefore(job, f.env.clock.roughMillis()+after.Milliseconds())
	})
	if out == result {
		out.RepoAfter = max(time.Millisecond, f.exclusion.occupied(h.ref.repo()))
	}
	return out
}

// releaseTime bounds the whole release of one job, all tries included.
const releaseTime = 10 * time.Second

// giveBack takes the claim off a job, with what edit adds to that, and returns done. When it does
// not succeed it returns what becomes of the job instead. The mark stays in the state file, for the
// case that this agent gets the job again, and so does the name of a job with an attempt, for the
// case that it is deleted before the next one.
func (f *finisher) giveBack(h *heldJob, typ, text string, done queue.Result, edit func(*unstructured.Unstructured)) queue.Result {
	h.seal()
	h.stopRenewing()
	ctx, end := f.env.within(h.ctx)
	defer end()
	ctx, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	err := h.put(ctx, endTries, func(job *unstructured.Unstructured) {
		stripClaim(job)
		setState(job, api.StatePending)
		edit(job)
	})
	if err != nil {
		return f.stopped(h, "the job could not be released ("+err.Error()+"); it is taken up again later")
	}
	f.env.pass(failpoint.Released, h.ref)
	ctx = context.WithoutCancel(h.ctx)
	k, _ := h.stored()
	k.Phase, k.Token = state.PhaseResting, ""
	if len(k.Mark) == 0 && typ != EventRetry || f.env.store.PutClaim(ctx, k) != nil {
		f.dropClaim(ctx, h)
	}
	f.env.events.emit(typ, h.ref, text)
	return done
}

// suspend leaves the claim pending: it is looked at again.
func (f *finisher) suspend(h *heldJob, why string) queue.Result {
	if why != "" {
		f.env.events.emit(EventWaiting, h.ref, why)
	}
	k, result := h.stored()
	f.env.claims.addPending(pendingClaim{claim: k, result: result})
	// Nothing works on the job now, so if the process stops before the next look the job is not the
	// reason: the next start, which counts every claim that it finds as an attempt, must not count
	// this one twice.
	k.Attempt--
	if err := f.env.store.PutClaim(context.WithoutCancel(h.ctx), k); err != nil {
		f.env.events.once("suspend "+h.ref.uid, EventNote, h.ref, "the claim cannot be written to the state file: "+err.Error())
	}
	return queue.Result{Retry: true, Urgent: true}
}

// leaseLost ends a job whose lease is lost. Nothing is written about it. A job that is not known to
// be claimed by others (the API was away for too long) may still carry our claim: it is looked at
// again.
func (f *finisher) leaseLost(h *heldJob) queue.Result {
	cause, taken := h.lost()
	f.env.events.emit(EventLost, h.ref, cause.Error())
	if !taken {
		result := f.suspend(h, "")
		result.Progressed = true // a lease ends no sooner than it would be renewed, so this makes no hot loop
		return result
	}
	f.dropClaim(context.WithoutCancel(h.ctx), h)
	return queue.Result{NotUrgent: true}
}

// stopped leaves a job whose end could not be written: the lease is lost, or the claim is left
// pending.
func (f *finisher) stopped(h *heldJob, why string) queue.Result {
	if cause, _ := h.lost(); cause != nil {
		return f.leaseLost(h)
	}
	return f.suspend(h, why)
}

// dropClaim forgets a claim in the state file. One that cannot be forgotten is looked at again: the
// job does not carry its token any more.
func (f *finisher) dropClaim(ctx context.Context, h *heldJob) {
	if err := f.env.store.DropClaim(ctx, h.ref.uid); err != nil {
		f.env.events.once("drop "+h.ref.uid, EventNote, h.ref, "an ended claim stays in the state file for now: "+err.Error())
		k, _ := h.stored()
		f.env.claims.addPending(pendingClaim{claim: k})
	}
}
