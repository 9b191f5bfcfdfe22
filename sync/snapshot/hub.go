package snapshot

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"
)

const (
	// buildGap is the least time between two snapshots. A person cannot read faster, and a burst of
	// events costs one snapshot.
	buildGap = 100 * time.Millisecond
	// buildIdle is the longest time between two snapshots, so that the figures of the process stay
	// fresh.
	buildIdle = 5 * time.Second
	// readerGrace is how long snapshots are built after the last reader has left. A daemon without
	// readers builds none: of a thousand Repositories one costs more than all other work at rest.
	readerGrace = 10 * time.Second
	// buildShare bounds the part of a processor that building takes, in percent: after a slow one the
	// next comes later, by buildIdle at most. A hundred thousand jobs take 20 ms.
	buildShare = 5
)

// Hub publishes the newest snapshot and wakes its readers. All methods are safe for concurrent use;
// Run is called once.
type Hub struct {
	dirty   chan struct{} // capacity 1: something changed
	arrived chan struct{} // capacity 1: a reader came
	done    chan struct{} // closed when no more snapshots come

	mu      sync.Mutex // guards all below
	readers int        // that wait for a snapshot
	left    time.Time  // when the last of them left
	stale   bool       // current was built before the readers left
	current *Snapshot
	changed chan struct{} // closed when current is replaced
}

// NewHub returns a Hub without a snapshot: the first comes with Run. Sequence numbers begin at the
// wall clock in milliseconds, so that a dashboard that outlives a restart of its daemon sees them
// grow.
func NewHub() *Hub {
	return &Hub{
		dirty:   make(chan struct{}, 1),
		arrived: make(chan struct{}, 1),
		done:    make(chan struct{}),
		left:    time.Now(),
		current: &Snapshot{Seq: uint64(time.Now().UnixMilli())},
		changed: make(chan struct{}),
	}
}

// Invalidate marks the current snapshot as out of date. It never blocks.
func (h *Hub) Invalidate() { signal(h.dirty) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Latest returns the newest snapshot without waiting; its At is zero before the first.
func (h *Hub) Latest() *Snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current
}

// Done is closed after the last snapshot.
func (h *Hub) Done() <-chan struct{} { return h.done }

// Next blocks until there is a fresh snapshot newer than seq, or ctx ends. More are built for a
// while after it, because the reader is expected to come again.
func (h *Hub) Next(ctx context.Context, seq uint64) (*Snapshot, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readers++
	defer func() { h.readers, h.left = h.readers-1, time.Now() }()
	signal(h.arrived)
	if h.stale {
		seq = max(seq, h.current.Seq)
	}
	for h.current.Seq <= seq || h.current.At.IsZero() {
		changed := h.changed
		h.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		h.mu.Lock()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return h.current, nil
}

func (h *Hub) publish(s *Snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.Seq = h.current.Seq + 1
	h.current, h.stale = s, false
	close(h.changed)
	h.changed = make(chan struct{})
}

// watched reports whether there is a reader, or was one just now. Without one the current snapshot
// is stale from now on.
func (h *Hub) watched() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stale = h.readers == 0 && time.Since(h.left) >= readerGrace
	return !h.stale
}

// Run builds a snapshot when something changed and there is a reader, at most one each buildGap and
// at least one each buildIdle, until ctx ends; the last one is of that time. Without readers it
// calls idle once and builds nothing.
func (h *Hub) Run(ctx context.Context, build func() *Snapshot, idle func()) {
	defer close(h.done)
	tick := time.NewTicker(buildIdle)
	defer tick.Stop()
	gap := time.NewTimer(0)
	defer gap.Stop()
	h.Invalidate() // the first snapshot does not wait for an event
	for h.wait(ctx, tick.C, gap.C, idle) {
		began := time.Now()
		h.publish(build())
		gap.Reset(min(max(buildGap, time.Since(began)*100/buildShare), buildIdle))
	}
	h.publish(build())
}

// wait blocks until the next snapshot is wanted; it returns false when ctx ends.
func (h *Hub) wait(ctx context.Context, tick, gap <-chan time.Time, idle func()) bool {
	select {
	case <-ctx.Done():
	case <-h.dirty:
	case <-tick:
	}
	select {
	case <-ctx.Done():
	case <-gap:
	}
	for ctx.Err() == nil && !h.watched() {
		idle()
		select {
		case <-ctx.Done():
		case <-h.arrived:
		}
	}
	select { // changes until now are in the next snapshot
	case <-h.dirty:
	default:
	}
	return ctx.Err() == nil
}

// Delta turns the snapshot From into another one. Of the lists it contains only changed rows: for a
// quiet agent one kilobyte instead of a megabyte.
type Delta struct {
	From    uint64       `json:"from"`
	Head    Snapshot     `json:"head"` // all but the lists below
	Jobs    List[Job]    `json:"jobs,omitempty"`
	Repos   List[Repo]   `json:"repos,omitempty"`
	Sources List[Source] `json:"sources,omitempty"`
	Events  List[Event]  `json:"events,omitempty"`
}

// List is a list in parts.
type List[T any] []Part[T]

// Part is either N rows of the old list or new rows.
type Part[T any] struct {
	At   int `json:"at,omitempty"` // index in the old list
	N    int `json:"n,omitempty"`
	Rows []T `json:"rows,omitempty"`
}

// Diff returns the delta from was to is.
func Diff(was, is *Snapshot) *Delta {
	d := &Delta{From: was.Seq, Head: *is}
	d.Head.Jobs, d.Head.Repos, d.Head.Sources, d.Head.Events = nil, nil, nil, nil
	d.Jobs = diffList(was.Jobs, is.Jobs, func(j *Job) string { return j.UID })
	d.Repos = diffList(was.Repos, is.Repos, func(r *Repo) string { return r.Namespace + "/" + r.Name })
	d.Sources = diffList(was.Sources, is.Sources, func(s *Source) string { return s.UID })
	d.Events = diffList(was.Events, is.Events, func(e *Event) string { return e.At.String() + e.Text })
	return d
}

// diffList finds the old version of a row by its key. Rows that are equal and neighbours in both
// lists become one part.
func diffList[T any](was, is []T, key func(*T) string) (out List[T]) {
	old := make(map[string]int, len(was))
	for i := range was {
		old[key(&was[i])] = i
	}
	for i := range is {
		at, known := old[key(&is[i])]
		same := known && reflect.DeepEqual(&was[at], &is[i])
		var last *Part[T]
		if len(out) > 0 {
			last = &out[len(out)-1]
		}
		switch {
		case same && last != nil && last.N > 0 && last.At+last.N == at:
			last.N++
		case same:
			out = append(out, Part[T]{At: at, N: 1})
		case last != nil && last.N == 0:
			last.Rows = append(last.Rows, is[i])
		default:
			out = append(out, Part[T]{Rows: []T{is[i]}})
		}
	}
	return out
}

// Apply returns s changed by d. s stays as it is; both share rows. It returns an error when d is
// for another snapshot.
func Apply(s *Snapshot, d *Delta) (*Snapshot, error) {
	if d.From != s.Seq {
		return nil, fmt.Errorf("the delta is for snapshot %d, this is %d", d.From, s.Seq)
	}
	out := d.Head
	err := errors.Join(applyList(&out.Jobs, s.Jobs, d.Jobs), applyList(&out.Repos, s.Repos, d.Repos),
		applyList(&out.Sources, s.Sources, d.Sources), applyList(&out.Events, s.Events, d.Events))
	if err != nil {
		return nil, err
	}
	return &out, nil
}

func applyList[T any](out *[]T, was []T, list List[T]) error {
	if len(list) == 1 && list[0].At == 0 && list[0].N == len(was) && len(list[0].Rows) == 0 {
		*out = slices.Clip(was)
		return nil
	}
	*out = nil
	for _, part := range list {
		if part.At < 0 || part.N < 0 || part.At > len(was) || part.N > len(was)-part.At {
			return fmt.Errorf("the delta has rows %d to %d of a list of %d", part.At, part.At+part.N, len(was))
		}
		*out = append(append(*out, was[part.At:part.At+part.N]...), part.Rows...)
	}
	return nil
}
