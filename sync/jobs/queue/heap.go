package queue

import (
	"cmp"
	stdheap "container/heap"
)

// heap is a heap of pointers that know their index in it, so that each of them can be moved or
// taken out of the middle. Its exported methods are for container/heap.
type heap[T any] struct {
	items  []*T
	before func(a, b *T) bool
	place  func(*T) *int // where an item keeps its index; outside of the heap that is absent
}

const absent = -1

func (h *heap[T]) Len() int           { return len(h.items) }
func (h *heap[T]) Less(i, j int) bool { return h.before(h.items[i], h.items[j]) }

func (h *heap[T]) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	*h.place(h.items[i]), *h.place(h.items[j]) = i, j
}

func (h *heap[T]) Push(x any) {
	*h.place(x.(*T)) = len(h.items)
	h.items = append(h.items, x.(*T))
}

func (h *heap[T]) Pop() any {
	last := len(h.items) - 1
	x := h.items[last]
	*h.place(x), h.items[last] = absent, nil
	h.items = h.items[:last]
	return x
}

// first returns the item that comes before all others, or nil.
func (h *heap[T]) first() *T {
	if len(h.items) == 0 {
		return nil
	}
	return h.items[0]
}

func (h *heap[T]) holds(x *T) bool { return *h.place(x) != absent }

// put adds an item, or moves it after it has changed.
func (h *heap[T]) put(x *T) {
	if h.holds(x) {
		stdheap.Fix(h, *h.place(x))
	} else {
		stdheap.Push(h, x)
	}
}

// remove removes an item; one that is not in the heap is left as it is.
func (h *heap[T]) remove(x *T) {
	if h.holds(x) {
		stdheap.Remove(h, *h.place(x))
	}
}

// rankedItems orders the keys of a repository: own claims, then by priority, then by arrival.
//
// The heaps of the queue. Each order ends with the arrival, which no two keys share, so none leaves
// anything to chance.
func rankedItems() heap[item] {
	return heap[item]{place: func(s *item) *int { return &s.ranked }, before: func(a, b *item) bool {
		switch {
		case a.urgent != b.urgent:
			return a.urgent
		case a.priority != b.priority:
			return a.priority > b.priority
		}
		return a.arrival < b.arrival
	}}
}

// agedItems orders the keys of a repository by arrival.
func agedItems() heap[item] {
	return heap[item]{place: func(s *item) *int { return &s.aged }, before: func(a, b *item) bool { return a.arrival < b.arrival }}
}

// rankedRepos orders repositories by their best key: own claims, then by priority, then by round,
// then as this agent favours them.
func rankedRepos() heap[repoQueue] {
	return heap[repoQueue]{place: func(r *repoQueue) *int { return &r.ranked }, before: func(a, b *repoQueue) bool {
		s, t := a.items.first(), b.items.first()
		if s.urgent != t.urgent {
			return s.urgent
		}
		return cmp.Or(cmp.Compare(t.priority, s.priority), cmp.Compare(a.round, b.round), cmp.Compare(b.favour, a.favour),
			cmp.Compare(s.arrival, t.arrival)) < 0
	}}
}
