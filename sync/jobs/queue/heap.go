package queue

// heap is a heap of pointers that know their index in it, so that each of them
// can be moved or taken out of the middle.
type heap[T any] struct {
	items  []*T
	before func(a, b *T) bool
	place  func(*T) *int // where an item keeps its index; outside of the heap that is absent
}

const absent = -1

func (h *heap[T]) len() int { return len(h.items) }

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
	if !h.holds(x) {
		*h.place(x) = len(h.items)
		h.items = append(h.items, x)
	}
	if i := *h.place(x); !h.down(i) {
		h.up(i)
	}
}

// remove removes an item; one that is not in the heap is left as it is.
func (h *heap[T]) remove(x *T) {
	if !h.holds(x) {
		return
	}
	i, last := *h.place(x), len(h.items)-1
	h.swap(i, last)
	h.items[last] = nil
	h.items = h.items[:last]
	*h.place(x) = absent
	if i < last && !h.down(i) {
		h.up(i)
	}
}

func (h *heap[T]) swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	*h.place(h.items[i]), *h.place(h.items[j]) = i, j
}

func (h *heap[T]) up(i int) {
	for i > 0 && h.before(h.items[i], h.items[(i-1)/2]) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

// down returns whether the item has moved.
func (h *heap[T]) down(i int) (moved bool) {
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			return moved
		}
		if right := child + 1; right < len(h.items) && h.before(h.items[right], h.items[child]) {
			child = right
		}
		if !h.before(h.items[child], h.items[i]) {
			return moved
		}
		h.swap(i, child)
		i, moved = child, true
	}
}
