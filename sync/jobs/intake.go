package jobs

import (
	"context"
	"sync"
	"time"
)

// intake is the queue as drivers and event handlers see it: safe for concurrent
// use, with a take that waits. Handlers only add names to it.
type intake struct {
	mu     sync.Mutex // guards the next four
	queue  *queue
	pace   pace
	closed bool // see gate.go
	out    int  // names that drivers have
	// wake holds one token when a waiting driver should look again. A driver
	// that leaves something behind passes the token on.
	wake chan struct{}
	// short holds one token when the queue should be filled up.
	short chan struct{}
}

// newIntake makes the queue of the agent of that name.
func newIntake(limit int, agent string) *intake {
	q := newQueue(limit)
	q.favour = func(l lane) uint64 { return favour(agent, l) }
	i := &intake{queue: q, pace: newPace(), wake: make(chan struct{}, 1), short: make(chan struct{}, 1)}
	if limit == queueLimit {
		q.reserve = queueReserve
	}
	q.came = i.pace.came
	return i
}

func (i *intake) signal() {
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

// add brings in a name whose priority is not known or stays as it is.
func (i *intake) add(k key, l lane, urgent bool) {
	i.mu.Lock()
	i.queue.add(k, l, urgent, unranked)
	i.mu.Unlock()
	i.signal()
}

// rank brings in a name with its priority.
func (i *intake) rank(k key, l lane, priority int) {
	i.mu.Lock()
	i.queue.add(k, l, false, priority)
	i.mu.Unlock()
	i.signal()
}

// addAfter brings in a name that must not be served before the delay is over.
func (i *intake) addAfter(k key, l lane, delay time.Duration) {
	i.mu.Lock()
	i.queue.addAt(k, l, time.Now().Add(delay), unranked)
	i.mu.Unlock()
	i.signal()
}

// hurry brings a name in at once, whatever keeps it out.
func (i *intake) hurry(k key, l lane) {
	i.mu.Lock()
	i.queue.hurry(k, l)
	i.mu.Unlock()
	i.signal()
}

// free ends the rest of a lane.
func (i *intake) free(l lane) {
	i.mu.Lock()
	i.queue.free(l)
	i.mu.Unlock()
	i.signal()
}

func (i *intake) done(k key, v verdict) {
	i.mu.Lock()
	l := i.pace.left(k)
	i.queue.done(k, time.Now(), v)
	i.out--
	short := i.queue.wants()
	i.mu.Unlock()
	i.signal()
	if short {
		i.shortage()
	}
	i.pace.meter.Looked(l.waited, time.Since(l.began), v.retry)
}

// take waits for the next name. It returns false when ctx has ended.
func (i *intake) take(ctx context.Context) (key, lane, bool) {
	for ctx.Err() == nil {
		i.mu.Lock()
		now := time.Now()
		k, l, ok := i.next(now)
		if ok {
			i.pace.took(i.queue.slots[k])
		}
		more := ok && i.ready(now)
		until, barred := i.queue.due()
		i.mu.Unlock()
		if more {
			i.signal()
		}
		if ok {
			return k, l, true
		}
		wait(ctx, i.wake, until, barred)
	}
	return key{}, lane{}, false
}

// wait returns at until (when timed), at a signal, or when ctx ends.
func wait(ctx context.Context, signal <-chan struct{}, until time.Time, timed bool) {
	var tick <-chan time.Time
	if timed {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		tick = timer.C
	}
	select {
	case <-ctx.Done():
	case <-signal:
	case <-tick:
	}
}

// load returns how many names are known and how many were refused since the
// last call for want of room.
func (i *intake) load() (known, refused int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.queue.len(), i.queue.overflow()
}
