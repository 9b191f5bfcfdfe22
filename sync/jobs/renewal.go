package jobs

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/jobs/lease"
	"limpet/sync/kube"
)

// renewTries is how often one renewal is tried when others write the same job.
const renewTries = 10

// renewUntilEnd renews the lease until the job is done or lost. It is the only goroutine that
// renews, over connections of its own, so that a renewal never waits behind other traffic.
func (h *heldJob) renewUntilEnd() {
	for {
		var next time.Time
		h.change(func() { next = h.lease.Next() })
		_ = kube.Sleep(h.renewing, next.Sub(h.env.clock.host.now().Time))
		if h.renewing.Err() != nil {
			return
		}
		h.renew()
	}
}

// renew renews once and records the result.
func (h *heldJob) renew() {
	err := h.takeTurn(h.ctx)
	if err == nil {
		if h.renewing.Err() == nil {
			err = h.renewInTurn(h.ctx)
		}
		h.endTurn()
	}
	var next time.Duration
	h.change(func() {
		now := h.env.clock.host.now().Time
		if err != nil {
			after, _ := kube.RetryAfter(err)
			h.lease.Failed(now, after)
		}
		next = h.lease.Next().Sub(now).Round(100 * time.Millisecond)
	})
	switch {
	case h.renewing.Err() != nil:
	case err != nil:
		h.env.events.emit(EventRenewal, h.ref, fmt.Sprintf("lease not renewed, next try in %s: %s", next, err))
	default:
		h.env.events.emit(EventRenewed, h.ref, "lease renewed")
	}
}

// renewInTurn reads the job, checks that it is ours and writes the new claim time. A conflicting
// write of others is tried again at once. The caller has the turn.
func (h *heldJob) renewInTurn(ctx context.Context) error {
	for try := 1; ; try++ {
		if err := context.Cause(h.ctx); err != nil {
			return err
		}
		if err := h.reread(ctx, h.env.renewals); err != nil {
			return err
		}
		millis, err := h.env.clock.millis()
		if err != nil {
			return err
		}
		if h.lease.Lapsed(claimTime(h.job), millis) {
			// The host slept. The claim may still be ours, but others may work on the repository by now.
			err := fmt.Errorf("%w: it had ended before it could be renewed", ErrLost)
			h.lose(err)
			return err
		}
		next := h.job.DeepCopy()
		setClaim(next, millis, h.token)
		sent := h.env.clock.host.now()
		out, err := h.env.renewals.putJob(ctx, next)
		switch {
		case err == nil:
			h.job = out
			h.renewed(sent)
			return nil
		case apierrors.IsNotFound(err):
			return h.loseTo("the job is gone")
		case !apierrors.IsConflict(err) || try == renewTries:
			return err
		}
	}
}

// renewed records a renewal that was sent at the given time.
func (h *heldJob) renewed(sent lease.Reading) {
	h.change(func() {
		h.lease.Renewed(sent)
		if h.renewing.Err() == nil {
			h.watchdog.Stop()
			h.watchdog = h.env.clock.host.after(h.lease.Deadline().Sub(h.env.clock.host.now().Time), h.expire)
		}
	})
}
