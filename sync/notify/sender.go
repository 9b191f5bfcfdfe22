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
	"limpet/sync/kube"
	"limpet/sync/netx"
	"limpet/sync/text"
)

const (
	firstWait = time.Second
	maxWait   = 5 * time.Minute
	giveUp    = 24 * time.Hour // after the event

	// mostRefusals objects without a success between them mean that the target is down, whatever it
	// answers.
	mostRefusals = 3

	// refusedJob is the wait after Loki has refused a job, and jobsApart that between two looks for
	// those whose wait is over.
	refusedJob = time.Hour
	jobsApart  = time.Minute
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

	// Of run alone.
	wait    backoff            // of the target
	refused map[string]backoff // by object
	since   map[string]bool    // objects that were refused since an event was taken

	mu     sync.Mutex // guards what follows
	status Status
}

// queued is an event of the queue, or why it cannot be read.
type queued struct {
	Event
	key string
	err error
}

func (s *sender) change(f func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.status)
}

func (s *sender) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
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
		case <-time.After(wait):
		}
	}
}

// runOnce sends what waits. It returns how long to wait for an event, and whether the target is
// down. Events of an object keep their order: one that the target refuses waits, with those behind
// it.
func (s *sender) runOnce(ctx context.Context) (wait time.Duration, down bool) {
	queue, err := s.outbox.Store.Facts(ctx, state.QueuePrefix+s.target.id+"/")
	if err != nil {
		return s.failed(ctx, err, &s.wait), true
	}
	var events []queued
	for _, key := range slices.Sorted(maps.Keys(queue)) {
		e := queued{key: key}
		e.err = json.Unmarshal(queue[key], &e.Event)
		events = append(events, e)
	}
	// Those of objects that were refused come last.
	slices.SortStableFunc(events, func(a, b queued) int { return cmp.Compare(s.refused[a.object()].wait, s.refused[b.object()].wait) })
	now := time.Now()
	for _, e := range events {
		s.change(func(t *Status) { t.Pending = len(queue) })
		object, err := e.object(), e.err
		if now.Before(s.refused[object].until) {
			continue
		}
		if err == nil {
			err = s.send(ctx, &e.Event)
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return giveUp, true
		case err == nil:
			s.wait = backoff{}
			clear(s.since)
			s.change(func(t *Status) {
				if t.Error != "" {
					s.outbox.Logger.Info("notifications are delivered again", "target", t.Target)
				}
				t.Error, t.Since, t.LastSent = "", time.Time{}, time.Now().Round(0)
				t.Sent++
			})
		case s.gaveUp(&e.Event, err):
			delete(s.refused, object)
			delete(s.since, object)
			s.change(func(t *Status) { t.Dropped++ })
			s.outbox.Logger.Error("notification given up", "target", s.target.Name, "object", object, "reason", e.Reason,
				"event", e.ID, "err", err)
		case netx.KindOf(err) == netx.Refused:
			b := s.refused[object]
			s.failed(ctx, err, &b)
			if s.target.loki != nil { // it is about this job alone: too old, or too long
				b.until = now.Add(refusedJob)
				s.refused[object] = b
				continue
			}
			s.refused[object], s.since[object] = b, true
			if len(s.since) >= mostRefusals {
				return s.wait.after(err), true
			}
			continue
		default:
			return s.failed(ctx, err, &s.wait), true
		}
		if err := s.outbox.Store.DeleteFact(context.WithoutCancel(ctx), e.key); err != nil {
			return s.failed(ctx, err, &s.wait), true
		}
		delete(queue, e.key)
	}
	s.change(func(t *Status) { t.Pending = len(queue) })
	if len(s.since) >= mostRefusals {
		return s.wait.after(nil), true
	}
	// What may go was taken, or is gone.
	maps.DeleteFunc(s.refused, func(_ string, b backoff) bool { return !now.Before(b.until) })
	wait = giveUp
	for _, b := range s.refused {
		wait = min(wait, time.Until(b.until))
	}
	if s.target.loki != nil {
		wait = max(wait, jobsApart)
	}
	return wait, false
}

// send sends an event, with the record that it stands for.
func (s *sender) send(ctx context.Context, e *Event) error {
	if s.target.loki != nil {
		found, err := s.outbox.Store.History(ctx, state.Query{UID: e.UID})
		switch {
		case err != nil:
			return err
		case len(found) == 0:
			return errTrimmed
		}
		e.record = &found[0]
	}
	return s.target.send(ctx, s.outbox.Client, s.outbox.Logger, e)
}

// errTrimmed is that of a record which the history has lost to its bounds.
var errTrimmed = errors.New("the history has no such record any more")

// gaveUp reports whether an event is not tried again after this error. A job waits for its target as
// long as it is in the history.
func (s *sender) gaveUp(e *Event, err error) bool {
	if s.target.loki == nil {
		return time.Since(e.Time) >= giveUp
	}
	first := s.refused[e.object()].first
	return errors.Is(err, errTrimmed) || netx.KindOf(err) == netx.Refused && !first.IsZero() && time.Since(first) >= giveUp
}

// failed notes an attempt that failed and returns the wait before the next one.
func (s *sender) failed(ctx context.Context, err error, b *backoff) time.Duration {
	s.change(func(t *Status) {
		if t.Error == "" && ctx.Err() == nil {
			t.Since = time.Now().Round(0)
			s.outbox.Logger.Warn("notification not delivered, retrying", "target", s.target.Name, "waiting", t.Pending, "err", err)
		}
		t.Error = text.Redact(err.Error())
		t.Failed++
	})
	return b.after(err)
}

// backoff is the wait of a target, or of an object with a refused event.
type backoff struct {
	wait  time.Duration // without jitter
	until time.Time
	first time.Time // the attempt that began it
}

// after returns the wait before the next attempt, with jitter: what the target asked for, else
// twice the wait before.
func (b *backoff) after(err error) time.Duration {
	b.wait = min(max(2*b.wait, firstWait), maxWait)
	wait := b.wait
	if e, ok := errors.AsType[*netx.Error](err); ok && e.RetryAfter > 0 {
		wait = e.RetryAfter
	}
	wait += rand.N(wait/4 + 1)
	b.first = cmp.Or(b.first, time.Now())
	b.until = time.Now().Add(wait)
	return wait
}

const heartbeatEvery = time.Minute

// Heartbeat calls a webhook once a minute while nothing fails, until ctx ends (a dead man's
// switch): a missing call means that something fails or that the host is down. healthy returns why
// something fails.
func Heartbeat(ctx context.Context, t *Target, client *netx.Client, healthy func(context.Context) error, log *slog.Logger) error {
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
		if kube.Sleep(ctx, heartbeatEvery) != nil {
			return nil
		}
	}
}
