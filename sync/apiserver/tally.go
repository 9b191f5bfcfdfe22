package apiserver

import (
	"context"
	"math"
	"sync"

	"limpet/state"
)

// A tally counts the objects of one resource by namespace, for the number of
// objects that a page of a list leaves over. It is filled when that is first
// asked for, and follows the events from then on.
type tally struct {
	mu     sync.Mutex
	known  bool           // guarded by mu
	at     uint64         // guarded by mu; revision of the newest change that is counted
	counts map[string]int // guarded by mu; by namespace
}

// tallyChunk is how many objects are read at a time while a tally is filled.
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

// growth is by how many objects an event makes a resource larger.
func growth(e event) int {
	switch e.kind {
	case added:
		return 1
	case deleted:
		return -1
	}
	return 0
}

// count is the number of objects in a namespace ("" = all).
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

// left answers how many objects a list at a revision has beyond those already
// given; ok is false when that is not known.
func (s *Server) left(ctx context.Context, info requestInfo, at uint64, given int) (n int64, ok bool) {
	resource := resourceName(info.Kind)
	t, f := s.tallies[resource], s.feeds[resource]
	// The events up to that revision may still be on their way.
	if !s.progress.wait(ctx, at, freshWithin) {
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

// fill counts what is stored. It reads in chunks, so that a resource with large
// objects is never in memory as a whole.
func (s *Server) fill(ctx context.Context, info requestInfo, t *tally, f *feed) bool {
	counts := map[string]int{}
	from, at := token{}, uint64(0)
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
		from = token{Start: chunk.Next, Namespace: last.Namespace, Name: last.Name}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// Events that come now wait for the lock and are counted by apply.
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
