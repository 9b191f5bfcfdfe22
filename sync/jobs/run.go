package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/failpoint"
)

// What happens between the claim and the end of a job: the worker is called,
// waited for, and what it returned is turned into an outcome.

// serve runs a job that is held already, if this agent still can.
func (c *Controller) serve(ctx context.Context, h *held, job *unstructured.Unstructured) verdict {
	repo, err := c.repositoryOf(ctx, job)
	if err != nil {
		return c.release(h, "the repository cannot be read: "+err.Error())
	}
	j := c.judge(job, repo)
	if j.worker != nil {
		if err := c.ready(ctx, j); err != nil {
			j = leave("not ready to run it: %s", err)
		}
	}
	switch {
	case j.leave != "":
		return c.release(h, j.leave)
	case j.end != nil:
		return c.finish(ctx, h, newProgress(time.Now()), *j.end)
	}
	j.task.Attempt = h.attempt
	return c.run(ctx, h, j)
}

// run lets the worker do a held job and ends the job as the worker's return and
// the cause of its end say.
func (c *Controller) run(ctx context.Context, h *held, j judgement) verdict {
	t, p := j.task, newProgress(time.Now())
	t.Attempt, t.Last, t.Progress, t.Log = h.attempt, h.attempt >= c.o.MaxAttempts, p, c.live.logger(h.about, c.log)
	p.ended = func() error { return context.Cause(h.ctx) }
	p.tell = func(typ, text string) { c.tell(typ, h.about, text) }
	p.meter, p.action = c.o.Meter, h.action
	p.put = func(ctx context.Context, mark json.RawMessage) error { return c.keepMark(ctx, h, mark) }
	t.Mark = p.resume(h.claim.Mark)
	h.setProgress(p)
	if job, ok := c.jobs.Get(h.Namespace, h.Name); ok && string(job.GetUID()) == h.uid {
		c.watch(job) // the wish to stop may have come before there was a worker
	}

	work, cancel := h.work, context.CancelFunc(func() {})
	if c.o.Timeout > 0 {
		work, cancel = context.WithTimeoutCause(work, c.o.Timeout, tooLong(c.o.Timeout))
	}
	defer cancel()
	reporting, stopReporting := context.WithCancel(h.ctx)
	defer stopReporting()
	h.group.Go(func() { h.report(reporting, p) })
	c.step(failpoint.Working, h.about)
	err, returned := c.work(ctx, work, h, j.worker, &t)
	stopReporting()
	c.step(failpoint.Worked, h.about)
	return c.after(ctx, h, p, err, returned, context.Cause(work))
}

// work calls the worker and waits for it: without limit as long as the agent
// runs, because a job must not be ended while something still works on it, and
// for the grace period once the agent stops.
func (c *Controller) work(ctx, work context.Context, h *held, w Worker, t *Task) (err error, returned bool) {
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
	timer := time.NewTimer(c.o.Grace)
	defer timer.Stop()
	select {
	case err := <-done:
		return err, true
	case <-timer.C:
		return ErrShutdown, false
	}
}

// after decides what the end of the work means.
func (c *Controller) after(ctx context.Context, h *held, p *Progress, err error, returned bool, cause error) verdict {
	reason, gone := h.seal()
	if gone {
		return c.withdrawn(ctx, h, p, reason)
	}
	if lost, _ := h.lost(); lost != nil {
		return c.forfeited(h)
	}
	switch {
	case !returned:
		return c.release(h, "the agent stops and the worker did not return in time")
	case err == nil:
		return c.finish(ctx, h, p, p.Outcome(nil))
	case reason != "":
		out := p.Outcome(fmt.Errorf("cancelled: %s", reason))
		out.cancelled = true
		return c.finish(ctx, h, p, out)
	case ctx.Err() != nil:
		return c.release(h, "the agent stops")
	}
	if s, ok := setbackOf(err, cause); ok {
		return c.postpone(ctx, h, p, s)
	}
	return c.finish(ctx, h, p, p.Outcome(err))
}

// finish ends a job with an outcome.
func (c *Controller) finish(ctx context.Context, h *held, p *Progress, out Outcome) verdict {
	finished := c.nowMillis()
	status := fullStatus(h.last(), p.finalStatus(out, h.started, finished))
	return c.complete(ctx, h, out, status, c.newRecord(h, out, status, finished, p.look()))
}

// fullStatus is the final status of a job with the members that are not ours.
func fullStatus(job *unstructured.Unstructured, s api.JobStatus) map[string]any {
	setStatus(job, s)
	return job.Object["status"].(map[string]any)
}

// withdrawn ends a job that a person has deleted while it ran. There is nothing
// left in the API to write to; the local history says what happened.
func (c *Controller) withdrawn(ctx context.Context, h *held, p *Progress, reason string) verdict {
	out := p.Outcome(fmt.Errorf("cancelled: %s", reason))
	out.cancelled = true
	finished := c.nowMillis()
	status := fullStatus(h.last(), p.finalStatus(out, h.started, finished))
	h.quiet()
	ctx = context.WithoutCancel(ctx)
	err := c.store.Complete(ctx, h.uid, c.newRecord(h, out, status, finished, p.look()))
	if err != nil {
		c.tell(EventNote, h.about, "no history of a deleted job: "+err.Error())
		c.dropClaim(ctx, h)
		return verdict{calm: true}
	}
	c.processed(h, out, status)
	c.tellState(EventCompleted, h.about, out.shown(), out.Message)
	return c.endClaim(ctx, h, skipped)
}

// keepMark keeps a resume mark and remembers it for a resume in this process.
func (c *Controller) keepMark(ctx context.Context, h *held, mark json.RawMessage) error {
	err := c.store.PutMark(ctx, h.uid, mark)
	if errors.Is(err, state.ErrNotFound) { // the state file was rebuilt under us
		h.mu.Lock()
		k := h.claim
		h.mu.Unlock()
		k.Mark = mark
		err = c.store.PutClaim(ctx, k)
	}
	if err == nil {
		h.mu.Lock()
		h.claim.Mark = mark
		h.mu.Unlock()
		c.step(failpoint.Marked, h.about)
	}
	return err
}
