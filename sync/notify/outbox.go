// Package notify sends events of objects to webhooks, Slack, Alertmanager and programs, and ended
// jobs to Loki. An event is kept in the state file until each target has taken it, so that neither a
// restart nor a target that is down loses one.
//
// Bounds: mostQueued events for a target, maxMessage bytes in each; an event is given up after a
// day; a job is, a day after Loki has begun to refuse it. Of answers only the status counts; a wait after a failure is at most 5 minutes unless the
// answer asks for more (Retry-After, bounded by package netx), and new events do not shorten it. A
// program has 30 s and 2 KiB of output.
package notify

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"limpet/state"
	"limpet/sync/netx"
	"limpet/sync/text"
)

const (
	mostQueued = 1000 // events that wait for one target
	maxMessage = 4 << 10
)

// Options configure an Outbox. All are required.
type Options struct {
	Store   *state.Store
	Targets []*Target
	Client  *netx.Client
	Logger  *slog.Logger
}

// Outbox keeps events until each target has taken them. Use Open, then Run once. Without targets it
// does nothing.
type Outbox struct {
	Options
	senders []*sender
}

// Open opens the outbox of a state file. Events for targets that are no longer among those given
// are deleted.
func Open(ctx context.Context, o Options) (*Outbox, error) {
	b := &Outbox{Options: o}
	ids := map[string]bool{}
	for _, t := range o.Targets {
		ids[t.id] = true
		b.senders = append(b.senders, &sender{outbox: b, target: t, wake: make(chan struct{}, 1), refused: map[string]backoff{},
			since:  map[string]bool{},
			status: Status{Target: t.Name}})
	}
	all, err := o.Store.Facts(ctx, state.OutboxPrefix)
	if err != nil {
		return nil, fmt.Errorf("open the outbox: %w", err)
	}
	var forget []string
	deleted := map[string]int{}
	for key := range all {
		target, isQueue := strings.CutPrefix(key, state.QueuePrefix)
		if target, _, _ = strings.Cut(target, "/"); isQueue && !ids[target] || len(ids) == 0 {
			deleted[target]++
			forget = append(forget, key)
		}
	}
	if len(forget) > 0 {
		o.Logger.Warn("notifications dropped: their targets are not configured any more", "counts", deleted)
	}
	if err := o.Store.ChangeFacts(ctx, nil, forget); err != nil {
		return nil, fmt.Errorf("open the outbox: %w", err)
	}
	return b, nil
}

// Add queues an event for all targets that want it. When it returns nil the event is in the state
// file, unless there is nothing to send: no target, a failure that was sent already, a quiet event
// of an object that does not fail.
func (b *Outbox) Add(ctx context.Context, e Event) error {
	if len(b.senders) == 0 {
		return nil
	}
	e.Message = text.Redact(text.Line(e.Message, maxMessage))
	e.Time, e.ID = cmp.Or(e.Time, time.Now()).Round(0), rand.Text()
	kept, err := b.Store.Fact(ctx, state.FailingPrefix+e.object())
	if err == nil || errors.Is(err, state.ErrNotFound) {
		if notice, err := b.decide(e, kept); notice == nil { // most of them, which cost no write
			return err
		}
	}
	dropped, err := b.Store.Notify(ctx, e.object(), mostQueued, func(kept []byte) (*state.Notice, error) { return b.decide(e, kept) })
	if err != nil {
		return fmt.Errorf("keep notification: %w", err)
	}
	for _, s := range b.senders {
		if n := dropped[s.target.id]; n > 0 {
			s.change(func(t *Status) { t.Dropped += n })
			b.Logger.Warn("notifications dropped: too many wait for their target", "target", s.target.Name, "count", n, "most", mostQueued)
		}
		s.wakeUp()
	}
	return nil
}

// RecordQueued notes that the history queue has grown, which jobs write to themselves.
func (b *Outbox) RecordQueued() {
	for _, s := range b.senders {
		if s.target.loki != nil {
			s.wakeUp()
		}
	}
}

// Failing returns the names and topics of the objects whose last notification was a failure.
func (b *Outbox) Failing(ctx context.Context) (out []Event, err error) {
	kept, err := b.Store.Facts(ctx, state.FailingPrefix)
	for key := range kept {
		parts := strings.SplitN(strings.TrimPrefix(key, state.FailingPrefix), "/", 4)
		out = append(out, Event{Kind: parts[0], Namespace: parts[1], Name: parts[2], Topic: parts[3]})
	}
	return out, err
}

// Status describes all targets.
func (b *Outbox) Status() (out []Status) {
	for _, s := range b.senders {
		s.change(func(t *Status) { out = append(out, *t) })
	}
	return out
}

// Result is what a target has answered to a test.
type Result struct {
	Target string `json:"target"`
	Error  string `json:"error,omitempty"` // "" = it has taken the event
}

// TestNotify sends an event at once to those targets whose names contain only, past the queues. It
// needs no Store.
func (o Options) TestNotify(ctx context.Context, only string) (out []Result, _ error) {
	e := &Event{Kind: "Agent", Name: hostName(), Severity: Info, Reason: "Test", Message: "a test by limpet notify test",
		Time: time.Now(), ID: rand.Text(),
		Recovered: []string{"Test"}}
	for _, t := range o.Targets {
		if !strings.Contains(t.Name, only) {
			continue
		}
		r := Result{Target: t.Name}
		if err := t.send(ctx, o.Client, o.Logger, e); err != nil {
			r.Error = text.Redact(err.Error())
		}
		out = append(out, r)
	}
	return out, nil
}

// decide returns what to write for an event of an object about which something is kept; nil for
// nothing.
func (b *Outbox) decide(e Event, kept []byte) (n *state.Notice, err error) {
	n = &state.Notice{Queue: map[string][]byte{}}
	var f failing
	_ = json.Unmarshal(kept, &f) // what cannot be read counts as empty
	switch {
	case e.Severity == Error:
		if !f.add(&e) {
			return nil, nil
		}
		if n.Failing, err = json.Marshal(f); err != nil {
			return nil, err
		}
	case kept == nil && e.Quiet:
		return nil, nil
	default:
		e.Recovered = f.reasons()
	}
	body, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	for _, t := range b.Targets {
		if t.wants(&e) {
			n.Queue[t.id] = body
		}
	}
	return n, nil
}

// Run sends to all targets until ctx ends.
func (b *Outbox) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, s := range b.senders {
		all.Go(func() { s.run(ctx) })
	}
	all.Wait()
	return nil
}

// Values of Event.Severity.
const (
	Info  = "info"
	Error = "error"
)

// Event is one thing that happened to an object.
type Event struct {
	Kind            string `json:"kind"`
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name"`
	UID             string `json:"uid,omitempty"`
	APIVersion      string `json:"apiVersion,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Topic is what of the object the event is about; a failure ends with the next Info event of the
	// same topic. "" is the one topic of an object that has no more.
	Topic    string            `json:"topic,omitempty"`
	Severity string            `json:"severity"` // Info or Error
	Reason   string            `json:"reason"`   // in CamelCase
	Message  string            `json:"message"`  // a repeated failure is sent once in repeatAfter
	Time     time.Time         `json:"time"`
	Metadata map[string]string `json:"metadata,omitempty"`
	// Quiet sends an Info event only when it ends a failure.
	Quiet bool `json:"-"`

	ID        string   `json:"id"`                  // set by Add
	Recovered []string `json:"recovered,omitempty"` // reasons of the failures that it ends; set by Add

	record *state.Record // that it stands for; nil = none
}

// object is the name of what fails and recovers as one.
func (e *Event) object() string {
	return e.Kind + "/" + e.Namespace + "/" + e.Name + "/" + e.Topic
}

const (
	repeatAfter  = 24 * time.Hour // between two notifications of the same failure
	mostFailures = 16             // of an object that are remembered as sent
)

// failing is the failures that were sent for an object since its last recovery, the oldest first.
type failing []sentFailure

type sentFailure struct {
	Failure string    `json:"failure"` // hash of reason and message
	Reason  string    `json:"reason"`
	At      time.Time `json:"at"`
}

// add adds a failure; it returns false when it was sent within repeatAfter.
func (f *failing) add(e *Event) bool {
	sum := sha256.Sum256([]byte(e.Reason + "\x00" + e.Message))
	next := sentFailure{hex.EncodeToString(sum[:8]), e.Reason, e.Time}
	same := func(t sentFailure) bool { return t.Failure == next.Failure }
	if at := slices.IndexFunc(*f, same); at >= 0 && e.Time.Sub((*f)[at].At).Abs() < repeatAfter { // a clock may jump back
		return false
	}
	all := append(slices.DeleteFunc(*f, same), next)
	*f = all[max(0, len(all)-mostFailures):]
	return true
}

// reasons returns those of all failures, each once.
func (f failing) reasons() (out []string) {
	for _, t := range f {
		if !slices.Contains(out, t.Reason) {
			out = append(out, t.Reason)
		}
	}
	return out
}
