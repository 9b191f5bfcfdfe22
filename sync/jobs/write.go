package jobs

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A held job is written by several parts of its driver: renewals, progress,
// completion, release. They take turns, so that they never conflict with each
// other, and all of them obey the same law: before a write the lease is
// trusted, after a conflict the job is read again and must still carry our UID
// and our token. Once the lease is lost no write leaves any more.

// Tries of one write when others write the same job. Source: Grafana's driver
// for progress; a renewal and the end of a job matter more.
const (
	progressTries = 3
	renewTries    = 10
	endTries      = 8
)

// enter waits for the turn to write; leave gives it back.
func (h *held) enter(ctx context.Context) error {
	select {
	case h.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *held) leave() { <-h.turn }

// read reads the job again. gone, when not empty, says how it has ended.
func (h *held) read(ctx context.Context, s server) (job *unstructured.Unstructured, gone string, err error) {
	job, err = s.job(ctx, h.key)
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

// look reads the job again. It forfeits the lease when the job is not ours.
func (h *held) look(ctx context.Context, s server) error {
	job, gone, err := h.read(ctx, s)
	if gone != "" {
		return h.forfeit(gone)
	}
	return h.accept(job, err)
}

// accept takes the job as it was read. It forfeits the lease when another has it.
func (h *held) accept(job *unstructured.Unstructured, err error) error {
	switch {
	case err != nil:
		return err
	case !owned(job, h.uid, h.token):
		return h.forfeit("the claim is in other hands")
	}
	h.job = job
	return nil
}

// stale says that the object has changed or gone since it was read.
func stale(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }

// put writes the job as edit leaves it, repeating it on the newest object when
// somebody else was quicker.
func (h *held) put(ctx context.Context, tries int, edit func(job *unstructured.Unstructured)) error {
	if err := h.enter(ctx); err != nil {
		return err
	}
	defer h.leave()
	for try := 1; ; try++ {
		if err := h.guard(ctx); err != nil {
			return err
		}
		next := h.job.DeepCopy()
		edit(next)
		out, err := h.server.putJob(ctx, next)
		if err == nil {
			h.job = out
			return nil
		}
		if !stale(err) || try == tries {
			return err
		}
		if err := h.look(ctx, h.server); err != nil {
			return err
		}
	}
}

// remove deletes the job under UID and resourceVersion. A job that is already
// gone is nil, its name in use again or not: it was ours until the last look.
func (h *held) remove(ctx context.Context) error {
	if err := h.enter(ctx); err != nil {
		return err
	}
	defer h.leave()
	for try := 1; ; try++ {
		if err := h.guard(ctx); err != nil {
			return err
		}
		err := h.server.deleteJob(ctx, h.key, h.uid, h.job.GetResourceVersion())
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err) || try == endTries:
			return err
		}
		job, gone, err := h.read(ctx, h.server)
		if gone != "" {
			return nil
		}
		if err := h.accept(job, err); err != nil {
			return err
		}
	}
}

// writable returns the job as seen last, when something may be written about it.
func (h *held) writable(ctx context.Context) (*unstructured.Unstructured, error) {
	if err := h.enter(ctx); err != nil {
		return nil, err
	}
	defer h.leave()
	if err := h.guard(ctx); err != nil {
		return nil, err
	}
	return h.job.DeepCopy(), nil
}

// last returns the job as seen last, or as it was claimed if that is not to be
// had because the lease is lost.
func (h *held) last() *unstructured.Unstructured {
	if h.enter(h.ctx) != nil {
		return h.origin.DeepCopy()
	}
	defer h.leave()
	return h.job.DeepCopy()
}

// report writes progress as often as the throttle allows until ctx ends, which
// does not interrupt a write that is under way: an interrupted one would leave
// open whether it was done.
func (h *held) report(ctx context.Context, p *Progress) {
	for ctx.Err() == nil {
		at, some := p.due()
		if some && !time.Now().Before(at) {
			h.send(h.ctx, p)
			continue
		}
		wait(ctx, p.changed, at, some)
	}
}

// send writes the progress once. What does not arrive is sent again with the
// next change or after the longer interval, whichever is first.
func (h *held) send(ctx context.Context, p *Progress) {
	status := p.begin(time.Now())
	status.Started = h.started
	if err := h.put(ctx, progressTries, func(job *unstructured.Unstructured) { setStatus(job, status) }); err != nil {
		p.again()
	}
}
