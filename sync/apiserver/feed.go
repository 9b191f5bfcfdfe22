package apiserver

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"limpet/state"
)

// A feed keeps the newest events of one resource, in the order of their
// commits. Watches read it at their own pace by a cursor: there is no buffer per
// watch, and a watch that falls behind the window gets an error.
//
// Events hold the stored bytes of objects, not maps: a burst of 12,000 objects
// leaves a window of some hundred kilobytes behind.

// Bounds of a feed beside the number of its events.
const (
	// feedBytes bounds the objects of one feed. Dashboards of 40 kB are the
	// largest objects that change in bursts: 50 changes of them are kept.
	feedBytes = 4 << 20
	// feedAge is the time for which an event is kept. Source: the five minutes
	// after which the real server compacts its store. An idle server holds no
	// events.
	feedAge = 5 * time.Minute
	// feedBatch limits the events that a watch takes at a time, so that a watch
	// from an old revision does not copy the whole window.
	feedBatch = 256
)

// event is one committed change of one object.
type event struct {
	revision  uint64
	kind      string // of state.ObjectEvent: ADDED, MODIFIED, DELETED
	namespace string
	name      string
	object    []byte // after the change; the last state, at this revision, for DELETED
	previous  []byte // before the change; nil for ADDED
	at        time.Time
}

func (e event) size() int {
	return len(e.object) + len(e.previous) + len(e.namespace) + len(e.name) + 96
}

const (
	added    = "ADDED"
	modified = "MODIFIED"
	deleted  = "DELETED"
)

type feed struct {
	window int

	mu     sync.Mutex
	events []event // guarded by mu; oldest first
	bytes  int     // guarded by mu; sum of their sizes
	// floor, guarded by mu, is the revision of the newest change that is no
	// longer held: all changes after it are.
	floor uint64
	moved chan struct{} // guarded by mu; closed when events arrive, made by waiters
}

func newFeed(window int, floor uint64) *feed { return &feed{window: window, floor: floor} }

// add appends events and drops those beyond the bounds.
func (f *feed) add(events []event, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, events...)
	for _, e := range events {
		f.bytes += e.size()
	}
	f.trim(now)
	if f.moved != nil {
		close(f.moved)
		f.moved = nil
	}
}

// expire drops events that are too old and reports whether any are left.
func (f *feed) expire(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trim(now)
	return len(f.events) > 0
}

// trim is called with mu held. The newest event stays until it is too old, so
// that a watch that is up to date never falls behind by one large object.
func (f *feed) trim(now time.Time) {
	n := 0
	for n < len(f.events) {
		surplus := n < len(f.events)-1 && (len(f.events)-n > f.window || f.bytes > feedBytes)
		if !surplus && now.Sub(f.events[n].at) < feedAge {
			break
		}
		f.bytes -= f.events[n].size()
		f.floor = f.events[n].revision
		n++
	}
	clear(f.events[:n]) // otherwise the backing array keeps the old objects alive
	f.events = f.events[n:]
	if len(f.events) == 0 {
		f.events = nil
	}
}

// after returns the next events with a higher revision, oldest first, and ok =
// false when some of them are no longer held. When there are none, moved is
// closed when the next one arrives.
func (f *feed) after(revision uint64) (events []event, moved <-chan struct{}, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if revision < f.floor {
		return nil, nil, false
	}
	from, _ := slices.BinarySearchFunc(f.events, revision+1, func(e event, r uint64) int { return cmp.Compare(e.revision, r) })
	if rest := f.events[from:]; len(rest) > 0 {
		return slices.Clone(rest[:min(len(rest), feedBatch)]), nil, true
	}
	if f.moved == nil {
		f.moved = make(chan struct{})
	}
	return nil, f.moved, true
}

// since returns all held events after one revision up to another, and ok =
// false when some of them are no longer held.
func (f *feed) since(after, upTo uint64) (events []event, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if after < f.floor {
		return nil, false
	}
	for _, e := range f.events {
		if e.revision > after && e.revision <= upTo {
			events = append(events, e)
		}
	}
	return events, true
}

// oldest returns the oldest revision at which a watch may begin.
func (f *feed) oldest() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.floor
}

// publish adds the changes of a commit to the feeds. The store calls it after
// each commit, in the order of commits, before the writes return.
func (s *Server) publish(changes []state.ObjectEvent) {
	now := time.Now()
	byResource := map[string][]event{}
	last := uint64(0)
	for _, c := range changes {
		object := c.Object
		last = max(last, object.Revision)
		e := event{revision: object.Revision, kind: c.Type, namespace: object.Key.Namespace, name: object.Key.Name,
			object: object.Data, previous: c.Previous, at: now}
		if c.Type == deleted {
			e.object = atRevision(object.Data, object.Revision)
			e.previous = object.Data
		}
		byResource[object.Key.Resource] = append(byResource[object.Key.Resource], e)
	}
	for resource, events := range byResource {
		if f := s.feeds[resource]; f != nil {
			f.add(events, now)
			s.tallies[resource].apply(events)
		}
	}
	s.progress.reach(last)
	s.forgetting.arm(s.forget)
}

// forget drops old events of all feeds and reports whether any are left.
func (s *Server) forget() bool {
	now, left := time.Now(), false
	for _, f := range s.feeds {
		left = f.expire(now) || left
	}
	return left
}

// reminder calls a function once a minute for as long as it returns true, without
// a goroutine in between.
type reminder struct {
	mu    sync.Mutex
	timer *time.Timer // guarded by mu; nil = not armed
	ended bool        // guarded by mu
}

func (r *reminder) arm(fn func() bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil || r.ended {
		return
	}
	r.timer = time.AfterFunc(time.Minute, func() {
		again := fn()
		r.mu.Lock()
		r.timer = nil
		r.mu.Unlock()
		if again {
			r.arm(fn)
		}
	})
}

func (r *reminder) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
}

// A tally counts the objects of one resource by namespace, for the remaining item
// count of list pages. It is filled on first use, and follows the events from
// then on.
type tally struct {
	mu     sync.Mutex
	known  bool           // guarded by mu
	at     uint64         // guarded by mu; revision of the newest change that is counted
	counts map[string]int // guarded by mu; by namespace
}

// tallyChunk is the page size of the reads that fill a tally.
const tallyChunk = 256

// apply counts events that are not counted yet.
func (t *tally) apply(events []event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.known {
		return
	}
	for _, e := range events {
		if e.revision > t.at {
			t.at = e.revision
			t.counts[e.namespace] += growth(e)
		}
	}
}

// growth returns the change of the number of objects by an event.
func growth(e event) int {
	switch e.kind {
	case added:
		return 1
	case deleted:
		return -1
	}
	return 0
}

// count returns the number of objects in a namespace ("" = all).
func (t *tally) count(namespace string) (n int, at uint64, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for ns, count := range t.counts {
		if namespace == "" || ns == namespace {
			n += count
		}
	}
	return n, t.at, t.known
}

// left returns the number of objects of a list at a revision beyond those of the
// previous pages; ok is false when it is unknown.
func (s *Server) left(ctx context.Context, info requestInfo, at uint64, given int) (n int64, ok bool) {
	resource := resourceName(info.Kind)
	t, f := s.tallies[resource], s.feeds[resource]
	// The events up to that revision may not be in the feed yet.
	if !s.progress.wait(ctx, at, freshTimeout) {
		return 0, false
	}
	if _, _, known := t.count(""); !known && !s.fill(ctx, info, t, f) {
		return 0, false
	}
	count, counted, _ := t.count(info.Namespace)
	since, ok := f.since(at, counted)
	if !ok {
		return 0, false
	}
	for _, e := range since {
		if info.Namespace == "" || e.namespace == info.Namespace {
			count -= growth(e)
		}
	}
	return int64(count - given), true
}

// fill counts the stored objects. It reads them in pages, so that a resource with
// large objects is never in memory as a whole.
func (s *Server) fill(ctx context.Context, info requestInfo, t *tally, f *feed) bool {
	counts := map[string]int{}
	from, at := listToken{}, uint64(0)
	all := requestInfo{Kind: info.Kind}
	for {
		chunk, err := s.store.Objects(ctx, state.ObjectQuery{Resource: resourceName(info.Kind), After: from.Start, Limit: tallyChunk})
		if err != nil {
			return false
		}
		if at == 0 {
			at = chunk.Revision
		}
		items, ok := s.rolledBack(ctx, all, chunk, from, at)
		if !ok {
			return false
		}
		for _, item := range items {
			counts[item.Key.Namespace]++
		}
		if chunk.Next == "" {
			break
		}
		last := chunk.Items[len(chunk.Items)-1].Key
		from = listToken{Start: chunk.Next, Namespace: last.Namespace, Name: last.Name}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// New events wait for the lock; apply counts them.
	since, ok := f.since(at, math.MaxUint64)
	if !ok || t.known {
		return t.known
	}
	for _, e := range since {
		counts[e.namespace] += growth(e)
		at = e.revision
	}
	t.counts, t.at, t.known = counts, at, true
	return true
}
