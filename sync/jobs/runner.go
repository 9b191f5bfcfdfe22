package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/failpoint"
	"limpet/sync/jobs/queue"
	"limpet/sync/kube"
	"limpet/sync/resources"
	"limpet/sync/text"
)

// runner runs held jobs: it calls the worker, waits for it, and turns what it returned into an
// outcome, a retry or a release.
type runner struct {
	env       *env
	admission *admission
	finisher  *finisher
}

// resume runs a job that is held already, if this agent still can.
func (r *runner) resume(ctx context.Context, h *heldJob, job *unstructured.Unstructured) queue.Result {
	var d decision
	repo, err := r.admission.current(ctx, job)
	if err == nil {
		d, err = r.admission.decide(ctx, job, repo)
	}
	if err != nil {
		return r.finisher.release(h, "the repository cannot be read: "+err.Error())
	}
	if d.skip != "" {
		return r.finisher.release(h, d.skip)
	}
	return r.run(ctx, h, d)
}

// run does a held job as decided, and ends it as the return of the worker and the cause of its end
// demand.
func (r *runner) run(ctx context.Context, h *heldJob, d decision) queue.Result {
	p := newProgress(h)
	if d.end != nil {
		return r.finisher.finish(h, p, *d.end)
	}
	t := d.task
	t.Attempt = h.ref.attempt
	t.Last = h.ref.attempt >= r.env.o.MaxAttempts
	t.Progress = p
	t.Log = r.env.events.logger(h.ref)
	t.Mark = p.resume(h.claim.Mark)
	h.change(func() { h.progress = p })
	if job, ok := r.admission.jobs.Get(h.ref.Namespace, h.ref.Name); ok && string(job.GetUID()) == h.ref.uid {
		if reason := cancelReason(job); reason != "" { // the request may have come before there was a worker
			h.cancelOnRequest(reason, false)
		}
	}
	work, cancel := h.work, context.CancelFunc(func() {})
	if r.env.o.Timeout > 0 {
		work, cancel = context.WithTimeoutCause(work, r.env.o.Timeout, timeoutError(r.env.o.Timeout))
	}
	defer cancel()
	reporting, stopReporting := context.WithCancel(h.ctx)
	defer stopReporting()
	h.group.Go(func() { h.reportProgress(reporting, p) })
	h.group.Go(func() { h.reportTransfer(reporting, p.Transfer) })
	r.env.pass(failpoint.Working, h.ref)
	err, returned := r.work(ctx, work, h, d.worker, &t)
	stopReporting()
	r.env.pass(failpoint.Worked, h.ref)
	return r.end(ctx, h, p, err, returned, context.Cause(work))
}

// work calls the worker and waits for it: without limit as long as the agent runs, because a job
// must not be ended while its worker still runs, and for half of the grace period once the agent
// stops.
func (r *runner) work(ctx, work context.Context, h *heldJob, w Worker, t *Task) (err error, returned bool) {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				t.Log.Error("worker panicked", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
				done <- fmt.Errorf("worker panicked: %v", r)
			}
		}()
		done <- w.Run(work, t)
	}()
	select {
	case err := <-done:
		return err, true
	case <-ctx.Done():
	}
	h.stop(ErrShutdown)
	timer := time.NewTimer(r.env.o.Grace / 2) // the rest is for the release
	defer timer.Stop()
	select {
	case err := <-done:
		return err, true
	case <-timer.C:
		return ErrShutdown, false
	}
}

// end decides what the end of the work means. cause is why the context of the worker ended, if it
// did.
func (r *runner) end(ctx context.Context, h *heldJob, p *Progress, err error, returned bool, cause error) queue.Result {
	reason, gone := h.seal()
	if gone {
		return r.finisher.finishDeleted(ctx, h, p, reason)
	}
	if lost, _ := h.lost(); lost != nil {
		return r.finisher.leaseLost(h)
	}
	switch {
	case !returned:
		return r.finisher.release(h, "the agent stops and the worker did not return in time")
	case err == nil:
		return r.finisher.finish(h, p, p.Outcome(nil))
	case reason != "":
		out := p.Outcome(fmt.Errorf("cancelled: %s", reason))
		out.cancelled = true
		return r.finisher.finish(h, p, out)
	case ctx.Err() != nil:
		return r.finisher.release(h, "the agent stops")
	}
	if late := timeoutError(0); errors.As(cause, &late) {
		err = late
	}
	if Transient(err) {
		return r.retry(h, p, err)
	}
	return r.finisher.finish(h, p, p.Outcome(err))
}

// retry ends an attempt with a transient failure: the next one may do better. The job is released
// with a growing backoff and keeps its mark. When the attempts are used up it ends as error, and
// history calls it dead; but as long as the API of the jobs itself does not answer, the claim is
// kept and taken up again.
func (r *runner) retry(h *heldJob, p *Progress, err error) queue.Result {
	reason := attemptTransient
	if errors.As(err, new(timeoutError)) {
		reason = attemptTimeout
	}
	if h.ref.attempt >= r.env.o.MaxAttempts {
		if errors.As(err, new(*kube.UnavailableError)) {
			if _, away := r.env.server.get(h.ctx, api.Jobs, h.ref.Namespace, h.ref.Name); away != nil {
				return r.finisher.suspend(h, err.Error())
			}
		}
		return r.finisher.finish(h, p, dead(p.Outcome(err), reason, h.ref.attempt))
	}
	least, _ := kube.RetryAfter(err)
	if transient, ok := errors.AsType[*TransientError](err); ok {
		least = transient.After
	}
	backoff := max(r.env.clock.host.jitter(attemptDelay(h.ref.attempt+1)), least)
	message := fmt.Sprintf("attempt %d of %d: %s; tried again in %s", h.ref.attempt, r.env.o.MaxAttempts, err, backoff.Round(time.Second))
	now := r.env.clock.roughMillis()
	result := queue.Result{After: backoff, Requeue: true, NotUrgent: true}
	return r.finisher.giveBack(h, EventRetry, message, result, func(job *unstructured.Unstructured) {
		endAttempt(job, state.Attempt{
			N: h.ref.attempt, Agent: r.env.o.Agent, State: reason, Message: err.Error(),
			Started: api.TimeOfMillis(h.run), Finished: time.UnixMilli(now),
		})
		setNotBefore(job, now+backoff.Milliseconds())
		statusOf(job)["message"] = text.Clip(message, maxMessage)
	})
}

// putMark stores a resume mark and keeps it for a resume in this process.
func (h *heldJob) putMark(ctx context.Context, mark json.RawMessage) error {
	err := h.env.store.PutMark(ctx, h.ref.uid, mark)
	if errors.Is(err, state.ErrNotFound) { // the state file was rebuilt under us
		k, _ := h.stored()
		k.Mark = mark
		err = h.env.store.PutClaim(ctx, k)
	}
	if err == nil {
		h.change(func() { h.claim.Mark = mark })
		h.env.pass(failpoint.Marked, h.ref)
	}
	return err
}

// Causes with which the context of a worker ends (context.Cause). After any of them the worker
// returns as soon as it can, without beginning anything new.
var (
	// ErrLost reports that the job is no longer ours. Nothing may be written about it any more,
	// neither to the job nor to anything that it syncs.
	ErrLost = errors.New("lease lost")
	// ErrCancelled reports that the job was cancelled or deleted on request.
	ErrCancelled = errors.New("job cancelled")
	// ErrShutdown reports that the agent stops; the job goes back to the queue unless the worker
	// finishes it within the grace period.
	ErrShutdown = errors.New("agent is shutting down")
)

// Worker does the work of one job action. One Worker serves all drivers at once.
type Worker interface {
	// Action is the value of spec.action that the worker serves.
	Action() string
	// Ready returns nil when this agent can run the job, else why not (credentials missing, kind of
	// repository unknown): then the job is left alone for others. It must be quick; ctx has a deadline
	// of a few seconds. Task has no Progress and no Log here.
	Ready(ctx context.Context, job Task) error
	// Run does the work. It is at-least-once: all that it writes must be harmless when written twice.
	// It ends soon after ctx, whose cause is ErrLost, ErrCancelled, ErrShutdown or wraps
	// context.DeadlineExceeded. A returned error makes the job end as error, unless it is a
	// *TransientError or a *kube.UnavailableError: then the job is released and tried again, and ends
	// as error when no attempt is left. Single resources that went wrong are recorded in Progress
	// instead. A panic ends the job as error.
	Run(ctx context.Context, t *Task) error
}

// Task is one run of a job.
type Task struct {
	// Object and Job are the job as it was claimed; they are not kept up to date and must not be
	// changed.
	Object *unstructured.Unstructured
	Job    api.Job
	// Repo and Repository are the repository that the job names. Repo is nil for the orphan actions
	// when the repository is gone.
	Repo       *unstructured.Unstructured
	Repository api.Repository

	Namespace, Name, UID string
	// Attempt counts the claims of this job, from 1. Last reports that no other follows this one.
	Attempt int
	Last    bool
	// Mark is the last resume mark of an earlier run of this job by this agent, or nil.
	Mark     json.RawMessage
	Progress *Progress
	// Log carries the job's name; its lines also go to the dashboard.
	Log *slog.Logger
}

// Result is what happened to one resource. One with Err counts as an error, one with Warning as a
// warning, else its Action counts. Err of an Ignored result is shown but does not make the job
// fail.
type Result = resources.Result

// TransientError reports that work failed for a reason that is not the job's and may be over soon:
// a host that does not answer or is busy, a connection that broke. A worker returns it to have the
// job tried again.
type TransientError struct {
	Err error
	// After is how long the other side asked not to be called; 0 = it did not.
	After time.Duration
}

func (e *TransientError) Error() string { return e.Err.Error() }
func (e *TransientError) Unwrap() error { return e.Err }

// Transient reports whether err releases the job for another attempt, if there is one left: it is a
// *TransientError or a *kube.UnavailableError, or the run took longer than it may. Workers that
// write the state of a job elsewhere ask it.
func Transient(err error) bool {
	return errors.As(err, new(*TransientError)) || errors.As(err, new(*kube.UnavailableError)) || errors.As(err, new(timeoutError))
}

// timeoutError is the cause of a context whose job has run longer than this.
type timeoutError time.Duration

func (d timeoutError) Error() string { return "job did not end within " + time.Duration(d).String() }

// Is makes it a deadline for callers that do not know it.
func (d timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }
