package jobs

import "time"

// The gate of the queue: while it is closed names come in, wait and age as ever,
// but only those with a claim of this agent to settle go out.

// gate closes or opens the queue. Names that are out stay out.
func (i *intake) gate(closed bool) {
	i.mu.Lock()
	i.closed = closed
	i.mu.Unlock()
	i.signal()
}

// next takes a name that may go out. The caller holds the lock.
func (i *intake) next(now time.Time) (key, lane, bool) {
	if !i.ready(now) {
		return key{}, lane{}, false
	}
	k, l, ok := i.queue.next(now)
	if ok {
		i.out++
	}
	return k, l, ok
}

// ready says whether next would return a name. The caller holds the lock.
func (i *intake) ready(now time.Time) bool {
	return i.queue.ready(now) && (!i.closed || i.queue.turn.first().slots.first().urgent)
}

// taken returns how many names drivers have.
func (i *intake) taken() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.out
}
