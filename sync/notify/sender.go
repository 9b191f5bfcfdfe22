package notify

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"limpet/state"
	"limpet/sync/netx"
)

const (
	firstWait = time.Second
	maxWait   = 5 * time.Minute
	giveUp    = 24 * time.Hour // after the event
)

// sender delivers the events of one target in their order.
type sender struct {
	outbox  *Outbox
	target  *Target
	wake    chan struct{} // capacity 1: there is something to send
	wait    time.Duration // before the next try after a failure
	dropped atomic.Int64  // events that were not delivered and never will be

	mu      sync.Mutex // guards what follows
	pending int
	failing error     // of the last try; nil = it succeeded, or there was none
	since   time.Time // when the target began to fail
	sent    time.Time // the last delivery
}

// run sends until ctx ends.
func (s *sender) run(ctx context.Context) {
	for {
		var again <-chan time.Time
		if wait := s.runOnce(ctx); wait > 0 {
			again = time.After(wait)
		}
		wake := s.wake
		if again != nil {
			wake = nil // a new event does not make a target answer
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-again:
		}
	}
}

// runOnce sends what waits, and returns when to try again; 0 = with the next event. Events of an object keep their
// order: behind one that the target refuses only those of other objects are tried.
func (s *sender) runOnce(ctx context.Context) time.Duration {
	queue, err := s.outbox.Store.Queue(ctx, s.target.id)
	if err != nil {
		return s.failed(ctx, len(queue), err)
	}
	refused := map[string]bool{}
	for i, q := range queue {
		var e Event
		err := json.Unmarshal(q.Body, &e)
		if err == nil && refused[e.object()] {
			continue
		}
		if err == nil {
			err = s.target.send(ctx, s.outbox.Client, &e)
		}
		switch {
		case ctx.Err() != nil:
			return 0
		case err == nil:
			s.outbox.Count(s.target.Name, "sent")
			s.succeeded()
		case time.Since(e.Time) >= giveUp:
			s.outbox.count(s, "given_up", 1)
			s.outbox.Logger.Error("notification given up", "target", s.target.Name, "object", e.object(), "reason", e.Reason,
				"event", e.ID, "err", err)
		case netx.KindOf(err) == netx.Refused:
			refused[e.object()] = true
			s.failed(ctx, len(queue)-i, err)
			continue
		default:
			return s.failed(ctx, len(queue)-i, err)
		}
		if err := s.outbox.Store.DeleteFact(ctx, q.Key); err != nil && !errors.Is(err, state.ErrClosed) {
			return s.failed(ctx, len(queue)-i, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending = len(refused); s.pending > 0 {
		return s.backoff(nil)
	}
	return 0
}

func (s *sender) succeeded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing != nil {
		s.outbox.Logger.Info("notifications are delivered again", "target", s.target.Name)
	}
	s.failing, s.sent, s.wait = nil, time.Now(), firstWait
}

// failed notes why the target does not take n events, and returns when to try again.
func (s *sender) failed(ctx context.Context, n int, err error) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing == nil && ctx.Err() == nil {
		s.since = time.Now()
		s.outbox.Logger.Warn("notifications are not delivered, retrying", "target", s.target.Name, "waiting", n, "err", err)
	}
	s.failing, s.pending = err, n
	s.outbox.Count(s.target.Name, "error")
	return s.backoff(err)
}

// backoff returns the next wait, with jitter: what the target asked for, else twice the wait before. The caller holds mu.
func (s *sender) backoff(err error) time.Duration {
	wait := s.wait
	s.wait = min(2*s.wait, maxWait)
	if e, ok := errors.AsType[*netx.Error](err); ok && e.RetryAfter > 0 {
		wait = e.RetryAfter
	}
	return wait + rand.N(wait/4)
}
