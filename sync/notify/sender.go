package notify

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"limpet/state"
	"limpet/sync/netx"
	"limpet/sync/text"
)

const (
	firstWait = time.Second
	maxWait   = 5 * time.Minute
	giveUp    = 24 * time.Hour // after the event
)

// Status describes a target. The counts are those of this process.
type Status struct {
	Target   string    `json:"target"`
	Pending  int       `json:"pending"` // events that wait
	Sent     int       `json:"sent"`
	Failed   int       `json:"failed"`  // attempts
	Dropped  int       `json:"dropped"` // events that were never delivered: too many, or given up after a day
	LastSent time.Time `json:"lastSent,omitzero"`
	Error    string    `json:"error,omitempty"` // of the last attempt; "" = it succeeded, or there was none
	Since    time.Time `json:"since,omitzero"`  // when attempts began to fail
}

// sender delivers the events of one target in their order.
type sender struct {
	outbox *Outbox
	target *Target
	wake   chan struct{} // capacity 1: there is something to send
	wait   time.Duration // before the next attempt after a failure; of run alone

	mu     sync.Mutex // guards what follows
	status Status
}

func (s *sender) change(f func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.status)
}

// run sends until ctx ends.
func (s *sender) run(ctx context.Context) {
	for {
		wait, down := s.runOnce(ctx)
		wake := s.wake
		if down {
			wake = nil // a new event does not make a target answer
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-time.After(cmp.Or(wait, giveUp)):
		}
	}
}

// runOnce sends what waits. It returns when to try again, 0 = with the next event, and whether the target is down. Events
// of an object keep their order: after one that the target refuses, only those of other objects are sent.
func (s *sender) runOnce(ctx context.Context) (wait time.Duration, down bool) {
	queue, err := s.outbox.Store.Facts(ctx, state.QueuePrefix+s.target.id+"/")
	if err != nil {
		return s.failed(ctx, err), true
	}
	refused := map[string]bool{}
	for i, key := range slices.Sorted(maps.Keys(queue)) {
		s.change(func(t *Status) { t.Pending = len(queue) - i + len(refused) })
		var e Event
		err := json.Unmarshal(queue[key], &e)
		if err == nil && refused[e.object()] {
			continue
		}
		if err == nil {
			err = s.target.send(ctx, s.outbox.Client, s.outbox.Logger, &e)
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return 0, true
		case err == nil:
			s.wait = firstWait
			s.change(func(t *Status) {
				if t.Error != "" {
					s.outbox.Logger.Info("notifications are delivered again", "target", t.Target)
				}
				t.Error, t.Since, t.LastSent = "", time.Time{}, time.Now().Round(0)
				t.Sent++
			})
		case time.Since(e.Time) >= giveUp:
			s.change(func(t *Status) { t.Dropped++ })
			s.outbox.Logger.Error("notification given up", "target", s.target.Name, "object", e.object(), "reason", e.Reason,
				"event", e.ID, "err", err)
		case netx.KindOf(err) == netx.Refused:
			refused[e.object()] = true
			wait = s.failed(ctx, err)
			continue
		default:
			return s.failed(ctx, err), true
		}
		if err := s.outbox.Store.DeleteFact(context.WithoutCancel(ctx), key); err != nil {
			return s.failed(ctx, err), true
		}
	}
	if len(refused) == 0 {
		s.change(func(t *Status) { t.Pending = 0 })
	}
	return wait, false
}

// failed notes an attempt that failed, and returns the wait before the next one, with jitter: what the target asked for,
// else twice the wait before.
func (s *sender) failed(ctx context.Context, err error) time.Duration {
	s.change(func(t *Status) {
		if t.Error == "" && ctx.Err() == nil {
			t.Since = time.Now().Round(0)
			s.outbox.Logger.Warn("notification not delivered, retrying", "target", s.target.Name, "waiting", t.Pending, "err", err)
		}
		t.Error = text.Redact(err.Error())
		t.Failed++
	})
	wait := s.wait
	s.wait = min(2*s.wait, maxWait)
	if e, ok := errors.AsType[*netx.Error](err); ok && e.RetryAfter > 0 {
		wait = e.RetryAfter
	}
	return wait + rand.N(wait/4+1)
}

const heartbeatEvery = time.Minute

// Heartbeat calls a webhook once a minute while nothing fails, until ctx ends (a dead man's switch): a missing call means
// that something fails or that the host is down. healthy returns why something fails.
func Heartbeat(ctx context.Context, t *Target, client *netx.Client, healthy func(context.Context) error, log *slog.Logger) error {
	tick := time.NewTicker(heartbeatEvery)
	defer tick.Stop()
	said := ""
	for {
		err, why := healthy(ctx), ""
		if err == nil {
			err = t.call(ctx, client, "GET", map[string]string{}, nil)
		}
		if err != nil {
			why = err.Error()
		}
		switch {
		case why == said || ctx.Err() != nil:
			why = said
		case why == "":
			log.Info("heartbeats are sent", "target", t.Name)
		default:
			log.Warn("no heartbeat is sent", "target", t.Name, "err", why)
		}
		said = why
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
