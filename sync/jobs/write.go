package jobs

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/jobs/lease"
)

// A held job is written by several parts: renewals, progress, completion, release.
// They take turns, so that they never conflict with each other, and all of them
// obey the same law: before a write the lease is trusted, after a conflict the job
// is read again and must still carry our UID and our token. Once the lease is lost
// no write leaves any more.

// Tries of one write when others write the same job. Source: Grafana's driver
// for progress; the end of a job matters more.
const (
	progressTries = 3
	endTries      = 8
)

// takeTurn waits for the turn to write; endTurn gives it back.
func (h *heldJob) takeTurn(ctx context.Context) error {
	select {
	case h.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *heldJob) endTurn() { <-h.turn }

// mayWrite returns nil when a write may leave now. The caller has the turn.
func (h *heldJob) mayWrite(ctx context.Context) error {
	for {
		if err := context.Cause(h.ctx); err != nil {
			return err
		}
		switch h.trust() {
		case lease.Good:
			return context.Cause(ctx)
		case lease.Ceased:
			h.expire()
			return context.Cause(h.ctx)
		}
		// The host may sleep over the answer, so the lease is judged again.
		if err := h.renewInTurn(ctx); err != nil {
			return err
		}
	}
}

// read reads the job again. gone, when not empty, is how it has ended.
func (h *heldJob) read(ctx context.Context, s server) (job *unstructured.Unstructured, gone string, err error) {
	job, err = s.job(ctx, h.Key)
	switch {
	case apierrors.IsNotFound(err):
		return nil, "the job is gone", nil
	case err != nil:
		return nil, "", err
	case string(job.GetUID()) != h.uid:
		return nil, "the job was deleted and its name is used by another one", nil
	}
	return job, "", nil
}

// reread reads the job again. The lease is lost when the job is not ours.
func (h *heldJob) reread(ctx context.Context, s server) error {
	job, gone, err := h.read(ctx, s)
	if gone != "" {
		return h.loseTo(gone)
	}
	return h.accept(job, err)
}

// accept takes the job as it was read. The lease is lost when the claim is not ours.
func (h *heldJob) accept(job *unstructured.Unstructured, err error) error {
	switch {
	case err != nil:
		return err
	case !owned(job, h.uid, h.token):
		return h.loseTo("the claim is in other hands")
	}
	h.job = job
	return nil
}

// stale reports that the object has changed or gone since it was read.
func stale(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }

// put writes the job as edit leaves it, and repeats that on the newest object after
// a conflict.
func (h *heldJob) put(ctx context.Context, tries int, edit func(job *unstructured.Unstructured)) error {
	if err := h.takeTurn(ctx); err != nil {
		return err
	}
	defer h.endTurn()
	for try := 1; ; try++ {
		if err := h.mayWrite(ctx); err != nil {
			return err
		}
		next := h.job.DeepCopy()
		edit(next)
		out, err := h.env.server.putJob(ctx, next)
		if err == nil {
			h.job = out
			return nil
		}
		if !stale(err) || try == tries {
			return err
		}
		if err := h.reread(ctx, h.env.server); err != nil {
			return err
		}
	}
}

// remove deletes the job under UID and resourceVersion. A job that is already
// gone is nil, its name in use again or not: it was ours when it was last read.
func (h *heldJob) remove(ctx context.Context) error {
	if err := h.takeTurn(ctx); err != nil {
		return err
	}
	defer h.endTurn()
	for try := 1; ; try++ {
		if err := h.mayWrite(ctx); err != nil {
			return err
		}
		err := h.env.server.deleteJob(ctx, h.Key, h.uid, h.job.GetResourceVersion())
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err) || try == endTries:
			return err
		}
		job, gone, err := h.read(ctx, h.env.server)
		if gone != "" {
			return nil
		}
		if err := h.accept(job, err); err != nil {
			return err
		}
	}
}

// writable returns the job as seen last, when something may be written about it.
func (h *heldJob) writable(ctx context.Context) (*unstructured.Unstructured, error) {
	if err := h.takeTurn(ctx); err != nil {
		return nil, err
	}
	defer h.endTurn()
	if err := h.mayWrite(ctx); err != nil {
		return nil, err
	}
	return h.job.DeepCopy(), nil
}

// last returns the job as seen last, or as it was claimed when the lease is lost.
func (h *heldJob) last() *unstructured.Unstructured {
	if h.takeTurn(h.ctx) != nil {
		return h.origin.DeepCopy()
	}
	defer h.endTurn()
	return h.job.DeepCopy()
}

// reportProgress writes progress as often as the throttle allows until ctx ends,
// which does not interrupt a write that is under way: of an interrupted one it
// would not be known whether it was done.
func (h *heldJob) reportProgress(ctx context.Context, p *Progress) {
	for ctx.Err() == nil {
		at, some := p.due()
		if !some || time.Now().Before(at) {
			wait(ctx, p.changed, at, some)
			continue
		}
		// A write that does not arrive is repeated with the next change or after the
		// longer interval, whichever is first.
		status := p.begin(time.Now())
		status.Started = h.started
		if err := h.put(h.ctx, progressTries, func(job *unstructured.Unstructured) { setStatus(job, status) }); err != nil {
			p.again()
		}
	}
}
