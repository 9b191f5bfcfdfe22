package jobs

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/git/transfer"
	"limpet/sync/jobs/lease"
	"limpet/sync/kube"
)

// Renewals, progress, completion and release take turns to write a held job. Before a write the
// lease is trusted; after a conflict the job is read again and must still carry our UID and our
// token. Once the lease is lost no write leaves any more.

// inTurn does something to the job in turn, when a write may leave now.
func (h *heldJob) inTurn(ctx context.Context, do func() error) error {
	if err := h.takeTurn(ctx); err != nil {
		return err
	}
	defer h.endTurn()
	if err := h.mayWrite(ctx); err != nil {
		return err
	}
	return do()
}

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
		case lease.Valid:
			return context.Cause(ctx)
		case lease.Expired:
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
	job, err = s.get(ctx, api.Jobs, h.ref.Namespace, h.ref.Name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, "the job is gone", nil
	case err == nil && string(job.GetUID()) != h.ref.uid:
		return nil, "the job was deleted and its name is used by another one", nil
	}
	return job, "", err
}

// reread reads the job again. The lease is lost when the job or its claim is not ours.
func (h *heldJob) reread(ctx context.Context, s server) error {
	job, gone, err := h.read(ctx, s)
	switch {
	case err != nil:
		return err
	case gone == "" && !owned(job, h.ref.uid, h.token):
		gone = "the claim is in other hands"
	}
	if gone != "" {
		return h.loseTo(gone)
	}
	h.job = job
	return nil
}

// stale reports that the object has changed or gone since it was read.
func stale(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }

// write makes a write in turn, and repeats it on the newest object after a conflict.
func (h *heldJob) write(ctx context.Context, tries int, do func() error) error {
	return h.inTurn(ctx, func() error {
		for try := 1; ; try++ {
			if err := do(); err == nil || !stale(err) || try == tries {
				return err
			}
			if err := h.reread(ctx, h.env.server); err != nil {
				return err
			}
			if err := h.mayWrite(ctx); err != nil {
				return err
			}
		}
	})
}

// put writes the job as edit leaves it.
func (h *heldJob) put(ctx context.Context, tries int, edit func(job *unstructured.Unstructured)) error {
	return h.write(ctx, tries, func() error {
		next := h.job.DeepCopy()
		edit(next)
		out, err := h.env.server.putJob(ctx, next)
		if err == nil {
			h.job = out
		}
		return err
	})
}

// remove deletes the job under UID and resourceVersion. A job that is already gone is nil, its name
// in use again or not: it was ours when it was last read.
func (h *heldJob) remove(ctx context.Context) error {
	return h.write(ctx, endTries, func() error {
		err := h.env.server.delete(ctx, api.Jobs, h.job)
		if apierrors.IsConflict(err) {
			if _, gone, readErr := h.read(ctx, h.env.server); readErr == nil && gone != "" {
				return nil
			}
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// last returns the job as seen last, or as it was claimed when the lease is lost.
func (h *heldJob) last() *unstructured.Unstructured {
	if h.takeTurn(h.ctx) != nil {
		return h.origin.DeepCopy()
	}
	defer h.endTurn()
	return h.job.DeepCopy()
}

// reportProgress writes progress as often as the throttle allows until ctx ends, which does not
// interrupt a write that is under way: of an interrupted one it would not be known whether it was
// done.
func (h *heldJob) reportProgress(ctx context.Context, p *Progress) {
	for ctx.Err() == nil {
		at, some := p.due()
		if !some || time.Now().Before(at) {
			wait(ctx, p.changed, at, some)
			continue
		}
		// A write that does not arrive is repeated with the next change or after the longer interval,
		// whichever is first.
		status := p.begin(time.Now())
		status.Started = h.started
		if err := h.put(h.ctx, progressTries, func(job *unstructured.Unstructured) { setStatus(job, status) }); err != nil {
			p.set(func() { p.record = true })
		}
	}
}

// reportTransfer emits an event each second in which a transfer has moved, until ctx ends. Without
// one it sleeps.
func (h *heldJob) reportTransfer(ctx context.Context, m *transfer.Meter) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.Began():
		}
		m.Tick(time.Now())
		for going := true; going; {
			_ = kube.Sleep(ctx, transferInterval)
			if ctx.Err() != nil {
				return
			}
			now, moved := m.Tick(time.Now())
			if going = now.Phase != ""; going && moved {
				h.env.events.emit(EventTransfer, h.ref, now.Text(time.Now()))
			}
		}
	}
}

// transferInterval is how often a transfer is measured.
const transferInterval = time.Second

// Tries of one write when others write the same job. Source: Grafana's driver for progress; the end
// of a job matters more.
const (
	progressTries = 3
	endTries      = 8
)
