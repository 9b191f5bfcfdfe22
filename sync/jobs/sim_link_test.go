package jobs

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/jobs/queue"
	"limpet/sync/kube"
)

// simCallTime is the deadline of a call, as wire has it.
const simCallTime = 10 * time.Second

// simLink is one process's way to the server: requests and answers take time, get lost, come late; a request may be
// carried out long after its caller gave up.
type simLink struct {
	p *simProcess

	mu    sync.Mutex // guards the fields below
	count map[simCall]uint64
	total int
	proof map[string]simProof // by UID
	late  map[string]func()   // writes that were given up and arrive just before the next one, by name
}

// simProof is the last confirmed claim of a job.
type simProof struct {
	label string
	sent  time.Time // by the host's monotonic clock
}

type simCall struct{ verb, resource, name string }

var errNoWay = errors.New("connection refused")

// way returns the way of ordinary calls, or that of renewals over connections of their own.
func (l *simLink) way(renewals bool) way {
	return way{&l.p.world.memory, func(ctx context.Context, c *call, do func() error) error {
		c.Agent, c.Lease = l.p.name, renewals
		began := l.p.now().Time
		if c.body != nil {
			c.sent = l.leave(uidIn(entry{call: *c, now: c.body}))
		}
		err := l.travel(ctx, c, do)
		if err == nil && c.Verb == "update" {
			l.proved(c.body, began)
		}
		return err
	}}
}

// travel carries a call to the server and its answer back. do runs at the server, under the lock of the world.
func (l *simLink) travel(ctx context.Context, c *call, do func() error) error {
	p, w := l.p, l.p.world
	l.mu.Lock()
	id := simCall{c.Verb, c.Resource, c.Name}
	l.count[id]++
	f := p.fate.of(p.nr).about(c.Verb + c.Resource).about(c.Name).of(l.count[id])
	l.mu.Unlock()
	if p.dead.Load() {
		return errDead
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l.mu.Lock()
	l.total++
	l.mu.Unlock()
	if d := p.awakeIn(); d > 0 {
		<-time.After(d + f.between(0, 50*time.Millisecond))
	}
	there, back, fault := l.trouble(f, c.Lease)
	arrive := func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		return do()
	}
	write := c.Verb == "update" || c.Verb == "delete"
	if there >= simCallTime && fault == nil { // it arrives when its caller has given up
		come := sync.OnceFunc(func() { _ = arrive() })
		if write && f.of(15).likely(500) {
			l.hold(c.Name, come)
		}
		time.AfterFunc(there, come)
		waitFor(ctx, simCallTime)
		return l.answer(ctx, context.DeadlineExceeded)
	}
	if !waitFor(ctx, there) {
		if fault == nil {
			time.AfterFunc(f.between(0, there), func() { _ = arrive() })
		}
		return l.answer(ctx, context.Cause(ctx))
	}
	if fault != nil {
		return l.answer(ctx, fault)
	}
	if _, cut := l.cutOff(c.Lease); cut {
		return l.answer(ctx, errNoWay)
	}
	if write {
		l.hold(c.Name, nil)()
	}
	err := arrive()
	if back > 0 && !waitFor(ctx, min(back, simCallTime-there)) {
		return l.answer(ctx, context.Cause(ctx))
	}
	if there+back >= simCallTime {
		return l.answer(ctx, context.DeadlineExceeded)
	}
	return l.answer(ctx, err)
}

// hold keeps a late write back until the next one of the same name is there, and returns the one that was kept back
// before.
func (l *simLink) hold(name string, come func()) (before func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before = l.late[name]
	l.late[name] = come
	if before == nil {
		return func() {}
	}
	return before
}

// answer is what the process hears, if it still can.
func (l *simLink) answer(ctx context.Context, err error) error {
	if d := l.p.awakeIn(); d > 0 {
		<-time.After(d + l.p.fate.of(uint64(time.Now().UnixNano())).between(0, 50*time.Millisecond))
	}
	if l.p.dead.Load() {
		return errDead
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) {
		l.p.clock.observe()
	}
	return err
}

// cutOff says until when nothing gets through.
func (l *simLink) cutOff(renewal bool) (time.Time, bool) {
	now := time.Now()
	if to, yes := inside(l.p.cut, now); yes {
		return to, true
	}
	if to, yes := inside(l.p.mute, now); yes && renewal {
		return to, true
	}
	return inside(l.p.world.down, now)
}

// trouble decides how a call goes.
func (l *simLink) trouble(f fate, renewal bool) (there, back time.Duration, fault error) {
	w := l.p.world
	there = f.of(10).between(time.Millisecond, 40*time.Millisecond)
	if _, cut := l.cutOff(renewal); cut {
		if f.of(11).likely(500) { // without an answer
			return simCallTime - there, 0, context.DeadlineExceeded
		}
		return there, 0, errNoWay
	}
	if time.Now().After(w.calm) || !f.of(12).likely(w.rough) {
		return there, 0, nil
	}
	switch f.of(13).n(10) {
	case 0: // lost on its way
		return there, 0, errNoWay
	case 1: // without a trace
		return simCallTime - there, 0, context.DeadlineExceeded
	case 2: // the answer is lost
		return there, simCallTime, nil
	case 3, 4: // slow
		return f.of(14).between(time.Second, 9*time.Second), 0, nil
	case 5: // the answer is slow
		return there, f.of(14).between(time.Second, 9*time.Second), nil
	case 6: // later than anybody waits
		return f.of(14).between(simCallTime, 25*time.Second), 0, nil
	case 7:
		return there, 0, apierrors.NewTooManyRequests("slow down", 1+f.of(14).n(8))
	case 8:
		return there, 0, apierrors.NewServiceUnavailable("not now")
	}
	return there, 0, apierrors.NewInternalError(errors.New("etcdserver: leader changed"))
}

// leave notes how things stand when a write is sent.
func (l *simLink) leave(uid string) simSent {
	l.mu.Lock()
	defer l.mu.Unlock()
	proof, held := l.proof[uid]
	_, err := l.p.clock.Millis(DefaultExpiry / 6)
	return simSent{at: time.Now(), clock: err == nil, held: held, proof: l.p.now().Sub(proof.sent), asleep: l.p.awakeIn() > 0, process: l.p}
}

// proved notes a write that was answered: one with a new claim renews the lease.
func (l *simLink) proved(job *unstructured.Unstructured, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	uid, label := api.Meta(job, "uid"), api.Label(job, api.LabelClaim)
	if label != "" && l.proof[uid].label != label {
		l.proof[uid] = simProof{label, sent}
	}
}

// simWatch is a process's cache of the jobs. Events of one object come in order; those of several do so in half of the
// worlds. They come late, twice, or not at all until the next list.
type simWatch struct {
	cache
	p *simProcess

	gaps map[queue.Key]bool      // jobs of which nothing is shown until the next list, the empty name is for all; under the lock of the world
	last map[queue.Key]time.Time // when the last event of a job comes, of any where watches keep the order; under the lock of the world

	turn   chan struct{}       // handlers run one at a time; guards seen and broken. A mutex would hold up the bubble's time
	broken bool                // nothing is shown until the next list
	seen   map[queue.Key]int64 // revision of what is in the cache, or of its deletion
}

func newSimWatch(p *simProcess) *simWatch {
	return &simWatch{cache: newCache(), p: p, turn: make(chan struct{}, 1),
		seen: map[queue.Key]int64{}, gaps: map[queue.Key]bool{}, last: map[queue.Key]time.Time{}}
}

// expect is told of every change, under the lock of the world.
func (s *simWatch) expect(rev int64, e entry) {
	u := e.now
	if u == nil {
		u = e.before
	}
	k := keyOf(u)
	w := s.p.world
	one := k
	if w.ordered {
		one = queue.Key{}
	}
	if s.p.dead.Load() || s.gaps[one] {
		return
	}
	f := s.p.fate.of(s.p.nr, uint64(rev))
	late, again := f.between(time.Millisecond, 60*time.Millisecond), time.Duration(0)
	if e.at.Before(w.calm) && f.of(20).likely(w.rough) {
		switch f.of(21).n(3) {
		case 0:
			late = f.of(22).between(time.Second, 20*time.Second)
		case 1: // twice
			again = f.of(22).between(time.Second, 5*time.Second)
		case 2: // lost, until it is noticed
			s.gaps[one] = true // and all that follow
			s.relist(f.of(22).between(time.Second, 40*time.Second))
			return
		}
	}
	at := e.at.Add(late)
	if last := s.last[one]; !at.After(last) {
		at = last.Add(1)
	}
	s.last[one] = at
	time.AfterFunc(time.Until(at), func() { s.event(k, rev, e.now) })
	if again > 0 { // not before the first time: that would be another order
		time.AfterFunc(time.Until(at)+again, func() { s.event(k, rev, e.now) })
	}
}

// event shows a change to the controller, unless the way is cut.
func (s *simWatch) event(k queue.Key, rev int64, now *unstructured.Unstructured) {
	if s.p.dead.Load() {
		return
	}
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if away := s.away(); away > 0 {
		s.broken = s.p.world.ordered
		s.relist(away)
		return
	}
	if s.broken || !s.HasSynced() {
		return
	}
	switch {
	case rev < s.seen[k]:
		return
	case rev == s.seen[k]: // again
		if now != nil {
			s.handler.Update(kube.ObjectOf(now), kube.ObjectOf(now))
		}
		return
	}
	s.show(k, rev, now)
}

// show shows a revision.
func (s *simWatch) show(k queue.Key, rev int64, now *unstructured.Unstructured) {
	s.seen[k] = max(rev, s.seen[k])
	s.cache.show(k, now)
}

// away is how long the watch cannot be had.
func (s *simWatch) away() time.Duration {
	if d := s.p.awakeIn(); d > 0 {
		return d
	}
	if to, yes := s.p.link.cutOff(false); yes {
		return time.Until(to)
	}
	return 0
}

// relist makes the cache anew after a while. One at a time is enough.
func (s *simWatch) relist(after time.Duration) {
	after += s.p.fate.of(s.p.nr, uint64(time.Now().UnixNano())).between(10*time.Millisecond, 3*time.Second)
	time.AfterFunc(after, func() {
		if s.p.dead.Load() || s.p.world.over.Load() {
			return
		}
		if away := s.away(); away > 0 {
			s.relist(away)
			return
		}
		s.p.clock.observe()
		time.AfterFunc(10*time.Minute, func() { s.relist(0) }) // whatever the watch says
		w := s.p.world
		w.mu.Lock()
		rev, now := w.rev, maps.Clone(w.objects["jobs"])
		clear(s.gaps)
		w.mu.Unlock()
		s.turn <- struct{}{}
		defer func() { <-s.turn }()
		s.broken = false
		keys := slices.SortedFunc(maps.Keys(now), byName)
		for _, k := range slices.SortedFunc(maps.Keys(s.objects), byName) {
			if now[k] == nil {
				keys = append(keys, k)
			}
		}
		s.handler.Listing(true)
		for _, k := range keys {
			if s.seen[k] <= rev {
				s.show(k, rev, now[k])
				// An instant of its own for each, so that what follows from one does not depend on whose turn it is on
				// a busy machine.
				<-time.After(time.Nanosecond)
			}
		}
		s.handler.Listing(false)
		s.complete()
	})
}
