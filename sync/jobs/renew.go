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

// renewUntilEnd renews the lease until the job is done or lost. It is the only
// goroutine that renews, over connections of its own, so that a renewal never waits
// behind other traffic.
func (h *heldJob) renewUntilEnd() {
	for {
		var next time.Time
		h.change(func() { next = h.lease.Next() })
		timer := time.NewTimer(next.Sub(h.env.clock.host.now().Time))
		select {
		case <-timer.C:
		case <-h.afterRenew:
			timer.Stop()
			return
		case <-h.ctx.Done():
			timer.Stop()
			return
		}
		h.renew()
	}
}

// renew renews once and records the result.
func (h *heldJob) renew() {
	err := h.takeTurn(h.ctx)
	if err == nil {
		if !h.closing() {
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
		next = h.lease.Next().Sub(now)
	})
	switch {
	case h.ctx.Err() != nil || h.closing():
	case err != nil:
		h.env.events.emit(EventRenewal, h.jobRef, fmt.Sprintf("lease not renewed, next try in %s: %s", next.Round(100*time.Millisecond), err))
	default:
		h.env.events.emit(EventRenewed, h.jobRef, "lease renewed")
	}
}

func (h *heldJob) closing() bool {
	select {
	case <-h.afterRenew:
		return true
	default:
		return false
	}
}

// renewInTurn reads the job, checks that it is ours and writes the new claim
// time. A conflicting write of others is tried again at once. The caller has the
// turn.
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
			// The host slept. The claim may still be ours, but others may work on the
			// repository by now.
			err := fmt.Errorf("%w: it had ended before it could be renewed", ErrLost)
			h.lose(err)
			return err
		}
		next := h.job.DeepCopy()
		setClaim(next, millis, h.token)
		sent := h.env.clock.host.now()
		out, err := h.env.renewals.putJob(ctx, next)
		if err == nil {
			h.job = out
			h.renewed(sent)
			return nil
		}
		if apierrors.IsNotFound(err) {
			return h.loseTo("the job is gone")
		}
		if !apierrors.IsConflict(err) || try == renewTries {
			return err
		}
	}
}

// renewed records a renewal that was sent at the given time.
func (h *heldJob) renewed(sent lease.Moment) {
	h.change(func() {
		h.lease.Renewed(sent)
		if !h.ended && h.ctx.Err() == nil {
			h.watchdog.Stop()
			h.watchdog = h.env.clock.host.after(h.lease.Deadline().Sub(h.env.clock.host.now().Time), h.expire)
		}
	})
}
