package jobs

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/jobs/queue"
	"limpet/sync/kube"
)

// simWatch is a process's picture of the jobs. Events of one object come in
// order; those of several do so in half of the worlds. They come late, twice, or
// not at all until the next list.
type simWatch struct {
	p       *simProcess
	handler kube.Handler
	synced  chan struct{}

	gaps map[queue.Key]bool      // jobs of which nothing is shown until the next list, the empty name is for all; under the lock of the world
	last map[queue.Key]time.Time // when the last event of a job comes, of any where watches keep the order; under the lock of the world

	turn    chan struct{}       // handlers run one at a time; guards seen and broken. A mutex would hold up the bubble's time
	broken  bool                // nothing is shown until the next list
	seen    map[queue.Key]int64 // revision of what is in the picture, or of its deletion
	mu      sync.Mutex          // guards the fields below
	picture map[queue.Key]*unstructured.Unstructured
	ready   bool
}

var _ lister = (*simWatch)(nil)

func newSimWatch(p *simProcess) *simWatch {
	return &simWatch{p: p, synced: make(chan struct{}), turn: make(chan struct{}, 1), picture: map[queue.Key]*unstructured.Unstructured{}, seen: map[queue.Key]int64{}, gaps: map[queue.Key]bool{}, last: map[queue.Key]time.Time{}}
}

// expect is told of every change, under the lock of the world.
func (s *simWatch) expect(rev int64, e simEntry) {
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
		case 2: // lost, until somebody notices
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

// show changes the picture, then calls the handler.
func (s *simWatch) show(k queue.Key, rev int64, now *unstructured.Unstructured) {
	s.seen[k] = max(rev, s.seen[k])
	s.mu.Lock()
	old := s.picture[k]
	if now == nil {
		delete(s.picture, k)
	} else {
		s.picture[k] = now
	}
	s.mu.Unlock()
	switch {
	case now == old:
	case now == nil:
		s.handler.Delete(kube.ObjectOf(old))
	case old == nil:
		s.handler.Add(kube.ObjectOf(now))
	default:
		s.handler.Update(kube.ObjectOf(old), kube.ObjectOf(now))
	}
}

// away is how long the watch cannot be had.
func (s *simWatch) away() time.Duration {
	if d := s.p.awakeIn(); d > 0 {
		return d
	}
	if to, yes := s.p.link.cutOff(); yes {
		return time.Until(to)
	}
	return 0
}

// relist makes the picture anew after a while. One at a time is enough.
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
		rev, now := w.rev, maps.Clone(w.jobs)
		clear(s.gaps)
		w.mu.Unlock()
		s.turn <- struct{}{}
		defer func() { <-s.turn }()
		s.broken = false
		keys := slices.SortedFunc(maps.Keys(now), byName)
		for _, k := range slices.SortedFunc(maps.Keys(s.picture), byName) {
			if now[k] == nil {
				keys = append(keys, k)
			}
		}
		s.handler.Listing(true)
		for _, k := range keys {
			if s.seen[k] <= rev {
				s.show(k, rev, now[k])
				// An instant of its own for each, so that what follows from one does
				// not depend on whose turn it is on a busy machine.
				<-time.After(time.Nanosecond)
			}
		}
		s.handler.Listing(false)
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.ready {
			s.ready = true
			close(s.synced)
		}
	})
}

func byName(a, b queue.Key) int { return strings.Compare(a.Name, b.Name) }

func (s *simWatch) Get(namespace, name string) (*unstructured.Unstructured, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u, ok := s.picture[key(namespace, name)]
	return u, ok
}

func (s *simWatch) List() []*unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*unstructured.Unstructured, 0, len(s.picture))
	for _, k := range slices.SortedFunc(maps.Keys(s.picture), byName) {
		out = append(out, s.picture[k])
	}
	return out
}

func (s *simWatch) Objects() []kube.Object {
	var out []kube.Object
	for _, u := range s.List() {
		out = append(out, kube.ObjectOf(u))
	}
	return out
}

func (s *simWatch) HasSynced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready
}

func (s *simWatch) WaitSynced(ctx context.Context) error {
	select {
	case <-s.synced:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// simRepos is the picture of the repositories, which do not change.
type simRepos map[queue.Key]*unstructured.Unstructured

func (s simRepos) Get(namespace, name string) (*unstructured.Unstructured, bool) {
	u, ok := s[key(namespace, name)]
	return u, ok
}

func (s simRepos) List() (out []*unstructured.Unstructured) {
	for _, k := range slices.SortedFunc(maps.Keys(s), byName) {
		out = append(out, s[k])
	}
	return out
}

func (s simRepos) Objects() (out []kube.Object) {
	for _, u := range s.List() {
		out = append(out, kube.ObjectOf(u))
	}
	return out
}

func (s simRepos) WaitSynced(context.Context) error { return nil }
func (s simRepos) HasSynced() bool                  { return true }
