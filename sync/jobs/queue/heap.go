package queue

import stdheap "container/heap"

// heap is a heap of pointers that know their index in it, so that each of them
// can be moved or taken out of the middle.
type heap[T any] struct{ list[T] }

// list is what container/heap works on.
type list[T any] struct {
	items  []*T
	before func(a, b *T) bool
	place  func(*T) *int // where an item keeps its index; outside of the heap that is absent
}

const absent = -1

func (l *list[T]) Len() int           { return len(l.items) }
func (l *list[T]) Less(i, j int) bool { return l.before(l.items[i], l.items[j]) }

func (l *list[T]) Swap(i, j int) {
	l.items[i], l.items[j] = l.items[j], l.items[i]
	*l.place(l.items[i]), *l.place(l.items[j]) = i, j
}

func (l *list[T]) Push(x any) {
	*l.place(x.(*T)) = len(l.items)
	l.items = append(l.items, x.(*T))
}

func (l *list[T]) Pop() any {
	last := len(l.items) - 1
	x := l.items[last]
	*l.place(x), l.items[last] = absent, nil
	l.items = l.items[:last]
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
		stdheap.Fix(&h.list, *h.place(x))
	} else {
		stdheap.Push(&h.list, x)
	}
}

// remove removes an item; one that is not in the heap is left as it is.
func (h *heap[T]) remove(x *T) {
	if h.holds(x) {
		stdheap.Remove(&h.list, *h.place(x))
	}
}
