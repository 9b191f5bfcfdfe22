package jobs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"limpet/sync/jobs/queue"
)

// workQueue is the queue as drivers and event handlers see it: safe for concurrent use, with a take
// that waits.
type workQueue struct {
	events *emitter

	mu       sync.Mutex // guards the next five
	queue    *queue.Queue
	closed   bool // keys come in, wait and age as ever, but only those with a claim of this agent to settle go out
	inFlight map[queue.Key]taken
	lastPoll time.Time // when a driver last looked for a key
	lastScan time.Time // when the scanner last came round; zero = the drivers do not run yet
	// wake holds one token when a waiting driver should look again. A driver that leaves something
	// behind passes the token on.
	wake chan struct{}
	// short holds one token when the queue should be filled up.
	short chan struct{}
}

// taken is a key that a driver has.
type taken struct {
	waited     time.Duration // before it was taken
	at         time.Time
	progressed time.Time // when the driver last began something that has a deadline
}

// newWorkQueue makes the queue of the agent of that name.
func newWorkQueue(events *emitter, agent string) *workQueue {
	favour := func(r queue.RepoKey) uint64 { return queue.Favour(agent, r) }
	return &workQueue{
		events: events, queue: queue.New(queue.Limit, favour),
		inFlight: map[queue.Key]taken{}, wake: make(chan struct{}, 1), short: make(chan struct{}, 1),
	}
}

// change changes the queue and wakes a driver.
func (w *workQueue) change(fn func(q *queue.Queue, now time.Time)) {
	w.mu.Lock()
	fn(w.queue, time.Now())
	w.mu.Unlock()
	notify(w.wake)
}

// add brings in a key; its priority is queue.Unranked when it is not known or stays as it is.
func (w *workQueue) add(k queue.Key, r queue.RepoKey, urgent bool, priority int) {
	w.change(func(q *queue.Queue, now time.Time) { q.Add(now, k, r, urgent, priority) })
}

// addAfter brings in a key that must not be served before the delay is over.
func (w *workQueue) addAfter(k queue.Key, r queue.RepoKey, delay time.Duration) {
	w.change(func(q *queue.Queue, now time.Time) { q.AddAfter(now, k, r, delay) })
}

// release ends the backoff of a repository.
func (w *workQueue) release(r queue.RepoKey) {
	w.change(func(q *queue.Queue, _ time.Time) { q.Release(r) })
}

// done gives a key back.
func (w *workQueue) done(k queue.Key, r queue.Result) {
	var t taken
	var short bool
	w.change(func(q *queue.Queue, now time.Time) {
		t = w.inFlight[k]
		delete(w.inFlight, k)
		q.Done(now, k, r)
		short = q.Short()
	})
	if short {
		notify(w.short)
	}
	w.events.measure(KeyDone{t.waited, time.Since(t.at), r.Retry})
}

// take waits for the next key. It returns false when ctx has ended.
func (w *workQueue) take(ctx context.Context) (queue.Key, queue.RepoKey, bool) {
	for ctx.Err() == nil {
		w.mu.Lock()
		now := time.Now()
		w.lastPoll = now
		k, r, since, ok := w.queue.Next(now, w.closed)
		if ok {
			w.inFlight[k] = taken{now.Sub(since), now, now}
		}
		more := ok && w.queue.Ready(now, w.closed)
		until, timed := w.queue.Due()
		w.mu.Unlock()
		if more {
			notify(w.wake)
		}
		if ok {
			return k, r, true
		}
		wait(ctx, w.wake, until, timed)
	}
	return queue.Key{}, queue.RepoKey{}, false
}

// progressed records that the driver of a key tries once more to end its job, which it does without
// limit.
func (w *workQueue) progressed(k queue.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t, ok := w.inFlight[k]; ok {
		t.progressed = time.Now()
		w.inFlight[k] = t
	}
}

// scanned records that the scanner has come round.
func (w *workQueue) scanned() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastScan = time.Now()
}

// stuck returns one line for each key whose driver has not moved for longer than work, and for the
// loops of the scanner and of the drivers that have no key when they have not moved for idle. While
// the API is away these wait for it.
func (w *workQueue) stuck(work, idle time.Duration, drivers int, away bool) (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, t := range w.inFlight {
		if busy := time.Since(t.progressed); busy > work {
			out = append(out, fmt.Sprintf("driver: busy with job %s for %s, its deadline is %s", k, busy.Round(time.Second), work))
		}
	}
	slices.Sort(out)
	if still := time.Since(w.lastScan); !w.lastScan.IsZero() && still > idle {
		out = append(out, fmt.Sprintf("scanner: no scan of the jobs for %s, its deadline is %s", still.Round(time.Second), idle))
	}
	if still := time.Since(w.lastPoll); !w.lastPoll.IsZero() && !away && len(w.inFlight) < drivers && still > idle {
		out = append(out, fmt.Sprintf("drivers: none has looked for a job for %s, their deadline is %s", still.Round(time.Second), idle))
	}
	return out
}

func (w *workQueue) running() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.inFlight)
}

// count adds what the queue holds now, and returns how many keys were refused since the last fill.
func (w *workQueue) count(b *Backlog) (refused int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b.Queued, b.Added = w.queue.Len(), w.queue.Added()
	b.Waiting = b.Queued - w.queue.Delayed() - len(w.inFlight)
	for _, t := range w.inFlight {
		b.Looking = append(b.Looking, time.Since(t.at))
	}
	return w.queue.Refused()
}
