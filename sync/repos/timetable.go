package repos

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// timetable says when each Repository is to be looked at without any event.
type timetable struct {
	changed chan struct{} // capacity 1: the first entry may be another

	mu      sync.Mutex // guards the fields below
	entries entries
	known   map[Key]*entry // those that were taken off too, until they are set again
	often   int64          // looks of all that are known in an era
}

// era is a time in which even rare looks are many, so that their number is exact
// enough to be kept up to date by adding and taking away.
const era = 1_000_000 * time.Hour

// often is how many looks of such a period there are in an era.
func often(period time.Duration) int64 { return int64(era / max(period, time.Second)) }

// entry is the next look at one Repository.
type entry struct {
	key    Key
	at     time.Time
	period time.Duration // of its looks, for the pace
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

func newTimetable() *timetable {
	return &timetable{changed: make(chan struct{}, 1), known: map[Key]*entry{}}
}

// reset forgets all.
func (t *timetable) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries, t.known, t.often = nil, map[Key]*entry{}, 0
}

// set has a Repository looked at at a time, in place of the time before; the
// zero time is never. period is how often that is going to happen.
func (t *timetable) set(k Key, at time.Time, period time.Duration) {
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
		t.often -= often(e.period)
	}
}

// call has a Repository looked at as soon as its pace allows.
func (t *timetable) call(k Key) {
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

// put puts a Repository in. t.mu is held.
func (t *timetable) put(k Key, at time.Time, period time.Duration) {
	e := t.known[k]
	if e == nil {
		e = &entry{key: k, index: -1}
		t.known[k] = e
	} else {
		t.often -= often(e.period)
	}
	e.at, e.period = at, period
	t.often += often(period)
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

// next is when a Repository is looked at; zero is never, or now.
func (t *timetable) next(k Key) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.known[k]; e != nil && e.index >= 0 {
		return e.at
	}
	return time.Time{}
}

// take takes the first entry off that is due at now. Otherwise wait is how long
// the first one has still to wait, for company too, below zero for none at all.
func (t *timetable) take(now time.Time) (k Key, ok bool, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.entries) == 0 {
		return Key{}, false, -1
	}
	e := t.entries[0]
	if wait = e.at.Sub(now); wait > 0 {
		return Key{}, false, wait + t.inPair(e.at)
	}
	heap.Pop(&t.entries)
	return e.key, true, 0
}

// inPair is how much longer an entry waits so that the next one goes with it: that a
// process wakes which has nothing else to do is a large part of what a look costs.
// Nobody waits in vain, or longer than longestGap. t.mu is held.
func (t *timetable) inPair(at time.Time) time.Duration {
	later := longestGap + 1
	for _, e := range t.entries[1:min(3, len(t.entries))] { // of a heap, one of these is the next
		later = min(later, e.at.Sub(at))
	}
	if later > longestGap {
		return 0
	}
	return later
}

// longestGap bounds what the pace costs a few Repositories.
const longestGap = 100 * time.Millisecond

// gap is the least time between two looks that became due: what is due in the
// same moment goes out at less than twice the mean rate of all.
func (t *timetable) gap() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.often == 0 {
		return 0
	}
	return min(longestGap, time.Duration(float64(era)/(pace*float64(t.often))))
}

// pace is how much faster than the mean looks may follow one another.
const pace = 1.5

// run calls due for each Repository whose time has come, until ctx ends.
func (t *timetable) run(ctx context.Context, due func(Key)) {
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
			if k, ok, _ := t.take(time.Now()); ok { // see inPair
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
