package jobs

import "hash/fnv"

// The order in which names leave the queue is kept in piles, so that every
// operation costs the logarithm of their size.

// pile is a heap of pointers that know their place in it, so that each of them
// can be moved or taken out of the middle.
type pile[T any] struct {
	items  []*T
	before func(a, b *T) bool
	place  func(*T) *int // where an item keeps its place; outside of the pile it is absent
}

const absent = -1

func (p *pile[T]) len() int { return len(p.items) }

// first returns the item that comes before all others, or nil.
func (p *pile[T]) first() *T {
	if len(p.items) == 0 {
		return nil
	}
	return p.items[0]
}

func (p *pile[T]) holds(x *T) bool { return *p.place(x) != absent }

// put adds an item, or moves it after it has changed.
func (p *pile[T]) put(x *T) {
	if !p.holds(x) {
		*p.place(x) = len(p.items)
		p.items = append(p.items, x)
	}
	if i := *p.place(x); !p.down(i) {
		p.up(i)
	}
}

// take removes an item; one that is not in the pile is left as it is.
func (p *pile[T]) take(x *T) {
	if !p.holds(x) {
		return
	}
	i, last := *p.place(x), len(p.items)-1
	p.swap(i, last)
	p.items[last] = nil
	p.items = p.items[:last]
	*p.place(x) = absent
	if i < last && !p.down(i) {
		p.up(i)
	}
}

func (p *pile[T]) swap(i, j int) {
	p.items[i], p.items[j] = p.items[j], p.items[i]
	*p.place(p.items[i]), *p.place(p.items[j]) = i, j
}

func (p *pile[T]) up(i int) {
	for i > 0 && p.before(p.items[i], p.items[(i-1)/2]) {
		p.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

// down returns whether the item has moved.
func (p *pile[T]) down(i int) (moved bool) {
	for {
		child := 2*i + 1
		if child >= len(p.items) {
			return moved
		}
		if right := child + 1; right < len(p.items) && p.before(p.items[right], p.items[child]) {
			child = right
		}
		if !p.before(p.items[child], p.items[i]) {
			return moved
		}
		p.swap(i, child)
		i, moved = child, true
	}
}

// The piles of the queue. Each order ends with the arrival, which no two names
// share, so none leaves anything to chance.

// rankedSlots orders the names of a lane: own claims, then by priority, then by
// arrival.
func rankedSlots() pile[slot] {
	return pile[slot]{place: func(s *slot) *int { return &s.ranked }, before: func(a, b *slot) bool {
		switch {
		case a.urgent != b.urgent:
			return a.urgent
		case a.priority != b.priority:
			return a.priority > b.priority
		}
		return a.arrival < b.arrival
	}}
}

// agedSlots orders the names of a lane by arrival.
func agedSlots() pile[slot] {
	return pile[slot]{place: func(s *slot) *int { return &s.aged }, before: func(a, b *slot) bool { return a.arrival < b.arrival }}
}

// barredSlots orders names by the end of their bar.
func barredSlots() pile[slot] {
	return pile[slot]{place: func(s *slot) *int { return &s.ranked }, before: func(a, b *slot) bool {
		if !a.until.Equal(b.until) {
			return a.until.Before(b.until)
		}
		return a.arrival < b.arrival
	}}
}

// rankedLines orders lanes by their best name: own claims, then by priority,
// then by round, then as this agent favours them.
func rankedLines() pile[line] {
	return pile[line]{place: func(l *line) *int { return &l.ranked }, before: func(a, b *line) bool {
		s, t := a.slots.first(), b.slots.first()
		switch {
		case s.urgent != t.urgent:
			return s.urgent
		case s.priority != t.priority:
			return s.priority > t.priority
		case a.round != b.round:
			return a.round < b.round
		case a.favour != b.favour:
			return a.favour > b.favour
		}
		return s.arrival < t.arrival
	}}
}

// agedLines orders lanes by the name that has waited longest in each.
func agedLines() pile[line] {
	return pile[line]{place: func(l *line) *int { return &l.aged }, before: func(a, b *line) bool {
		return a.old.first().arrival < b.old.first().arrival
	}}
}

// restingLines orders lanes by the end of their rest.
func restingLines() pile[line] {
	return pile[line]{place: func(l *line) *int { return &l.resting }, before: func(a, b *line) bool { return a.until.Before(b.until) }}
}

// favour is how much an agent prefers a repository to others of equal rank:
// rendezvous hashing, so that agents which drain one backlog begin at different
// ends of it, and each comes back to the repositories whose mirrors it has. It
// goes by the repository and not by the job, because agents exclude each other
// by repository.
func favour(agent string, l lane) uint64 {
	return hashOf(agent, l.Namespace, l.Repository)
}

// hashOf mixes texts into a number whose every bit depends on all of them.
func hashOf(texts ...string) uint64 {
	h := fnv.New64a()
	for _, text := range texts {
		_, _ = h.Write([]byte(text)) // never fails
		_, _ = h.Write([]byte{0})
	}
	x := h.Sum64() // FNV alone leaves similar texts near each other; this is the finalizer of MurmurHash3
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
