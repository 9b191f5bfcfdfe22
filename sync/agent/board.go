package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"limpet/sync/snapshot"
)

const (
	// boardGap is the least time between two pictures. A person cannot read
	// faster, and a burst of events costs one picture.
	boardGap = 100 * time.Millisecond
	// boardIdle is the longest time between two pictures, so that the figures
	// of the process stay fresh.
	boardIdle = 5 * time.Second
	// boardRest is how long pictures are made after somebody has looked at one. A
	// daemon that nobody looks at makes none: of a thousand Repositories each costs
	// more than all that is done for them meanwhile.
	boardRest = 10 * time.Second
	// doneFor is how long a finished job stays in the list of live ones.
	doneFor = 60 * time.Second
	// eventsKept, doneKept and leftKept bound the lists of events, of finished
	// jobs with their logs, and of jobs that this agent does not take.
	eventsKept = 200
	doneKept   = 200
	leftKept   = 2 * mostJobs
	// boardShare bounds the part of a processor that pictures take: after one
	// that took long the next may come later. A hundred thousand jobs take some
	// 20 ms.
	boardShare = 20
)

// board holds the newest picture and the events, and wakes who waits for them.
type board struct {
	dirty chan struct{} // capacity 1: "something changed"
	eyes  chan struct{} // capacity 1: "somebody looks"
	ended chan struct{} // closed when no more pictures come
	drop  func()        // what painting keeps, when nobody looks any more; nil = nothing

	mu      sync.Mutex // guards all below
	lookers int        // who wait for a picture
	looked  time.Time  // when the last of them went
	stale   bool       // current is of a time since when nobody looked
	current *snapshot.Snapshot
	changed chan struct{}      // closed when current is replaced
	events  []snapshot.Event   // oldest first
	done    []snapshot.Job     // the last finished jobs, oldest first
	ends    []time.Time        // when jobs have finished, oldest first
	left    map[string]leaving // by UID: why jobs that wait are not taken
}

// newBoard has no picture yet: the first comes with run. It starts counting
// pictures at the wall clock in milliseconds, so that a dashboard which outlives
// a restart of its daemon sees the numbers go on.
func newBoard() *board {
	return &board{
		dirty:   make(chan struct{}, 1),
		eyes:    make(chan struct{}, 1),
		ended:   make(chan struct{}),
		looked:  time.Now(),
		current: &snapshot.Snapshot{Seq: uint64(time.Now().UnixMilli())},
		changed: make(chan struct{}),
		left:    map[string]leaving{},
	}
}

// touch says that the picture is out of date. It never blocks.
func (b *board) touch() {
	select {
	case b.dirty <- struct{}{}:
	default:
	}
}

// note adds one line to the event list.
func (b *board) note(e snapshot.Event) {
	b.mu.Lock()
	b.events = append(b.events, e)
	if len(b.events) > eventsKept {
		b.events = append([]snapshot.Event(nil), b.events[len(b.events)-eventsKept:]...)
	}
	b.mu.Unlock()
	b.touch()
}

// finish keeps a finished job on the board for doneFor.
func (b *board) finish(j snapshot.Job) {
	b.mu.Lock()
	b.expire(time.Now())
	b.ends = append(b.ends, j.Finished)
	b.done = append(b.done, j)
	if len(b.done) > doneKept {
		b.done = append([]snapshot.Job(nil), b.done[len(b.done)-doneKept:]...)
	}
	b.mu.Unlock()
	b.touch()
}

// leaving is why a job is not taken.
type leaving struct{ namespace, name, why string }

// leave notes why a job is not taken. Of very many it keeps some.
func (b *board) leave(uid string, l leaving) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.left[uid]; known || len(b.left) < leftKept {
		b.left[uid] = l
	}
}

// take notes that a job is taken.
func (b *board) take(uid string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.left, uid)
}

// waits returns why a job is not taken, "" when nothing is known.
func (b *board) waits(uid string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left[uid].why
}

// forget forgets the jobs that wait no more because they are gone.
func (b *board) forget(gone func(namespace, name, uid string) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for uid, l := range b.left {
		if gone(l.namespace, l.name, uid) {
			delete(b.left, uid)
		}
	}
}

// ended are the jobs that have finished in the last minute: how many, and the
// last ones of them.
type ended struct {
	count int
	rows  []snapshot.Job
}

// recent returns the events and the finished jobs that are still to be shown.
func (b *board) recent(now time.Time) ([]snapshot.Event, ended) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire(now)
	return append([]snapshot.Event(nil), b.events...), ended{len(b.ends), append([]snapshot.Job(nil), b.done...)}
}

// expire drops the finished jobs that are not to be shown any more. It needs the
// lock.
func (b *board) expire(now time.Time) {
	old := func(at time.Time) bool { return now.Sub(at) >= doneFor }
	b.done = slices.DeleteFunc(b.done, func(j snapshot.Job) bool { return old(j.Finished) })
	b.ends = slices.DeleteFunc(b.ends, old)
}

// publish makes s the current picture.
func (b *board) publish(s *snapshot.Snapshot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Seq = b.current.Seq + 1
	b.current, b.stale = s, false
	close(b.changed)
	b.changed = make(chan struct{})
}

// snapshot is the newest picture; its At is zero before the first.
func (b *board) snapshot() *snapshot.Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.current
}

// look begins to wait for a picture newer than seq; away ends it. The picture
// that nobody has looked at for a while is not it.
func (b *board) look(seq uint64) (newer uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lookers++
	select {
	case b.eyes <- struct{}{}:
	default:
	}
	if b.stale {
		seq = max(seq, b.current.Seq)
	}
	return seq
}

// away ends a look; again says that the same one may look again soon.
func (b *board) away(again bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lookers--
	if again {
		b.looked = time.Now()
	}
}

// watched says whether somebody looks, or did so just now. When not, the picture
// is stale from now on.
func (b *board) watched() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stale = b.lookers == 0 && time.Since(b.looked) >= boardRest
	return !b.stale
}

// next blocks until there is a picture newer than seq.
func (b *board) next(ctx context.Context, seq uint64) (*snapshot.Snapshot, error) {
	seq = b.look(seq)
	defer b.away(true)
	return b.await(ctx, seq)
}

// glance is next for who takes one picture and goes: no others are made for it.
func (b *board) glance(ctx context.Context) (*snapshot.Snapshot, error) {
	seq := b.look(0)
	defer b.away(false)
	return b.await(ctx, seq)
}

func (b *board) await(ctx context.Context, seq uint64) (*snapshot.Snapshot, error) {
	for {
		b.mu.Lock()
		cur, changed := b.current, b.changed
		b.mu.Unlock()
		if cur.Seq > seq && !cur.At.IsZero() {
			return cur, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// run makes a picture with paint when something changed and somebody looks, at
// most one each boardGap and at least one each boardIdle, until ctx ends. The last
// one is of that time.
func (b *board) run(ctx context.Context, paint func() *snapshot.Snapshot) {
	defer close(b.ended)
	idle := time.NewTicker(boardIdle)
	defer idle.Stop()
	gap := time.NewTimer(0)
	defer gap.Stop()
	b.touch() // the first picture does not wait for an event
	for {
		if !b.step(ctx, idle.C, gap.C) {
			b.publish(paint())
			return
		}
		began := time.Now()
		b.publish(paint())
		gap.Reset(max(boardGap, boardShare*time.Since(began)))
	}
}

// step waits until the next picture is wanted; false says that ctx has ended.
func (b *board) step(ctx context.Context, idle, gap <-chan time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-b.dirty:
	case <-idle:
	}
	select {
	case <-ctx.Done():
		return false
	case <-gap:
	}
	for !b.watched() {
		if b.drop != nil {
			b.drop()
		}
		select {
		case <-ctx.Done():
			return false
		case <-b.eyes:
		}
	}
	select { // what was asked for until now is in the picture
	case <-b.dirty:
	default:
	}
	return true
}
