package jobs

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/kube"
)

// keep renews the lease until the job is done or lost. It is the only goroutine
// that renews, and it has connections of its own, so that a renewal never waits
// behind other traffic.
func (h *held) keep() {
	for {
		h.mu.Lock()
		next := h.lease.next
		h.mu.Unlock()
		timer := time.NewTimer(next.Sub(h.host.now().Time))
		select {
		case <-timer.C:
		case <-h.finished:
			timer.Stop()
			return
		case <-h.ctx.Done():
			timer.Stop()
			return
		}
		h.renew()
	}
}

// renew renews once and notes how it went.
func (h *held) renew() {
	err := h.enter(h.ctx)
	if err == nil {
		if !h.closing() {
			err = h.renewInTurn(h.ctx)
		}
		h.leave()
	}
	h.mu.Lock()
	if err != nil {
		after, _ := kube.RetryAfter(err)
		h.lease.failed(h.host.now().Time, after)
	}
	next := h.lease.next
	h.mu.Unlock()
	if h.ctx.Err() == nil && !h.closing() {
		h.onRenew(err, next)
	}
}

func (h *held) closing() bool {
	select {
	case <-h.finished:
		return true
	default:
		return false
	}
}

// renewInTurn reads the job, checks that it is ours and writes the new claim
// time. Somebody else's write in between is tried again at once. The caller has
// the turn.
func (h *held) renewInTurn(ctx context.Context) error {
	for try := 1; ; try++ {
		if err := context.Cause(h.ctx); err != nil {
			return err
		}
		if err := h.look(ctx, h.renewals); err != nil {
			return err
		}
		millis, err := h.millis()
		if err != nil {
			return err
		}
		if h.lease.lapsed(h.job, millis) {
			return h.lapse()
		}
		next := h.job.DeepCopy()
		setClaim(next, millis, h.token)
		sent := h.host.now()
		out, err := h.renewals.putJob(ctx, next)
		if err == nil {
			h.job = out
			h.confirm(sent)
			return nil
		}
		if apierrors.IsNotFound(err) {
			return h.forfeit("the job is gone")
		}
		if !apierrors.IsConflict(err) || try == renewTries {
			return err
		}
	}
}

// confirm notes a renewal that was sent at the given time.
func (h *held) confirm(sent moment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lease.renewed(sent)
	if !h.ended && h.ctx.Err() == nil {
		h.watchdog.Stop()
		h.watchdog = h.host.after(h.lease.deadline().Sub(h.host.now().Time), h.expire)
	}
}

// until returns when the lease ends for others and when it is renewed next.
func (h *held) until() (end, next time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lease.confirmed.Add(h.lease.expiry), h.lease.next
}
