package repos

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// schedule holds when each object is reconciled without any event.
type schedule struct {
	changed chan struct{} // capacity 1: the first entry may be another

	mu      sync.Mutex // guards the fields below
	entries entries
	known   map[Key]*entry // those that were taken off too, until they are set again
	perEra  int64          // reconciles of all that are known in an era
}

// era is a time in which even rare reconciles are many, so that their number can be kept
// up to date by adding and subtracting.
const era = 1_000_000 * time.Hour

// perEra returns how many reconciles of such a period there are in an era.
func perEra(period time.Duration) int64 { return int64(era / max(period, time.Second)) }

// entry is the next reconcile of one object.
type entry struct {
	key    Key
	at     time.Time
	period time.Duration // between its reconciles, for the pace
	index  int           // below zero when it was taken off
}

// entries are a heap by time.
type entries []*entry

func (e entries) Len() int           { return len(e) }
func (e entries) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e entries) Swap(i, j int)      { e[i], e[j] = e[j], e[i]; e[i].index, e[j].index = i, j }
func (e *entries) Push(x any)        { n := x.(*entry); n.index = len(*e); *e = append(*e, n) }
func (e *entries) Pop() any {
	last := (*e)[len(*e)-1]
	last.index = -1
	(*e)[len(*e)-1] = nil
	*e = (*e)[:len(*e)-1]
	return last
}

func newSchedule() *schedule {
	return &schedule{changed: make(chan struct{}, 1), known: map[Key]*entry{}}
}

// reset forgets all.
func (t *schedule) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries, t.known, t.perEra = nil, map[Key]*entry{}, 0
}

// set schedules an object for a time, in place of the time before; the zero time is
// never. period is how often that is going to happen.
func (t *schedule) set(k Key, at time.Time, period time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !at.IsZero() {
		t.put(k, at, period)
		return
	}
	if e := t.known[k]; e != nil {
		if e.index >= 0 {
			heap.Remove(&t.entries, e.index)
		}
		delete(t.known, k)
		t.perEra -= perEra(e.period)
	}
}

// expedite schedules an object for as soon as the pace allows.
func (t *schedule) expedite(k Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, period := time.Now(), unhealthyFor
	if e := t.known[k]; e != nil {
		period = e.period
		if e.index >= 0 && e.at.Before(at) {
			return
		}
	}
	t.put(k, at, period)
}

// put inserts or moves an entry. t.mu is held.
func (t *schedule) put(k Key, at time.Time, period time.Duration) {
	e := t.known[k]
	if e == nil {
		e = &entry{key: k, index: -1}
		t.known[k] = e
	} else {
		t.perEra -= perEra(e.period)
	}
	e.at, e.period = at, period
	t.perEra += perEra(period)
	if e.index < 0 {
		heap.Push(&t.entries, e)
	} else {
		heap.Fix(&t.entries, e.index)
	}
	if e.index > 0 {
		return // run waits for an earlier one
	}
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// next returns when an object is reconciled; zero is never, or now.
func (t *schedule) next(k Key) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.known[k]; e != nil && e.index >= 0 {
		return e.at
	}
	return time.Time{}
}

// take removes the first entry that is due at now. Otherwise wait is how long the first
// one has still to wait, to be paired too, below zero for none at all.
func (t *schedule) take(now time.Time) (k Key, ok bool, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.entries) == 0 {
		return Key{}, false, -1
	}
	e := t.entries[0]
	if wait = e.at.Sub(now); wait > 0 {
		return Key{}, false, wait + t.pairDelay(e.at)
	}
	heap.Pop(&t.entries)
	return e.key, true, 0
}

// pairDelay returns how much longer an entry waits so that the next one goes with it: the
// wake-up of an idle process is a large part of what a reconcile costs. None waits longer
// than maxGap. t.mu is held.
func (t *schedule) pairDelay(at time.Time) time.Duration {
	later := maxGap + 1
	for _, e := range t.entries[1:min(3, len(t.entries))] { // of a heap, one of these is the next
		later = min(later, e.at.Sub(at))
	}
	if later > maxGap {
		return 0
	}
	return later
}

// maxGap bounds what the pace costs a few objects.
const maxGap = 100 * time.Millisecond

// gap returns the least time between two reconciles that became due: what is due in the
// same moment goes out at less than twice the mean rate of all.
func (t *schedule) gap() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.perEra == 0 {
		return 0
	}
	return min(maxGap, time.Duration(float64(era)/(pace*float64(t.perEra))))
}

// pace is how much faster than the mean reconciles may follow one another.
const pace = 1.5

// run calls due for each object whose time has come, until ctx ends.
func (t *schedule) run(ctx context.Context, due func(Key)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		k, ok, wait := t.take(time.Now())
		var alarm <-chan time.Time
		changed := t.changed
		switch {
		case ok:
			due(k)
			rest := t.gap()
			if k, ok, _ := t.take(time.Now()); ok { // see pairDelay
				due(k)
				rest *= 2
			}
			timer.Reset(rest)
			alarm, changed = timer.C, nil // the pace holds, whatever comes
		case wait >= 0:
			timer.Reset(wait)
			alarm = timer.C
		}
		select {
		case <-ctx.Done():
			return
		case <-alarm:
		case <-changed:
		}
	}
}
