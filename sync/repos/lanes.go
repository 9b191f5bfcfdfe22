package repos

import (
	"slices"
	"sync"

	"limpet/sync/api"
	"limpet/sync/auth"
)

// perHost is how many objects of one host are looked into at once. It is
// what the mirrors ask a host at a time, so that no worker waits for others.
const perHost = 2

// lanes keep the workers free: an object whose host is being asked as often as
// may be goes to the end of a line, not to a worker that waits. A host that never
// answers then holds two workers, whatever the number of its objects. From
// there they are called at the pace of the timetable: when the host answers again
// the whole line must not fall upon it.
type lanes struct {
	mu     sync.Mutex // guards what follows
	hosts  map[string]*lane
	called map[Key]string // whose turn it is, at which host, and who has not entered yet
}

type lane struct {
	busy    int
	waiting []Key
}

func newLanes() *lanes { return &lanes{hosts: map[string]*lane{}, called: map[Key]string{}} }

// reset forgets all.
func (l *lanes) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hosts, l.called = map[string]*lane{}, map[Key]string{}
}

// enter says whether the host may be asked now; leave must follow then. Otherwise
// the key is given back by the leave of another.
func (l *lanes) enter(host string, k Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.hosts[host]
	if h == nil {
		h = &lane{}
		l.hosts[host] = h
	}
	_, called := l.called[k]
	delete(l.called, k)
	switch {
	case h.busy < perHost:
		h.busy++
		return true
	case slices.Contains(h.waiting, k):
	case called: // somebody was faster
		h.waiting = slices.Insert(h.waiting, 0, k)
	default:
		h.waiting = append(h.waiting, k)
	}
	return false
}

// leave ends the turn at a host, and returns whose turn it is next.
func (l *lanes) leave(host string) (next Key, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hosts[host].busy--
	return l.call(host)
}

// pass ends the turn of a key that was called and then had nothing to ask: it was
// deleted, or is another agent's now. Without that all behind it would wait for a
// leave that never comes. It returns whose turn it is instead.
func (l *lanes) pass(k Key) (next Key, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	host, called := l.called[k]
	if !called {
		return Key{}, false
	}
	delete(l.called, k)
	return l.call(host)
}

// call takes the first key off the line of a host. l.mu is held.
func (l *lanes) call(host string) (next Key, ok bool) {
	h := l.hosts[host]
	switch {
	case h == nil:
		return Key{}, false
	case len(h.waiting) == 0:
		if h.busy == 0 {
			delete(l.hosts, host)
		}
		return Key{}, false
	}
	next, h.waiting = h.waiting[0], h.waiting[1:]
	l.called[next] = host
	return next, true
}

// leave ends a turn at a host.
func (l *loop) leave(host string) {
	if next, ok := l.lanes.leave(host); ok {
		l.times.call(next)
	}
}

// pass lets the next one have the turn that k had no use for.
func (l *loop) pass(k Key) {
	if next, ok := l.lanes.pass(k); ok {
		l.times.call(next)
	}
}

// hostOf is whom a look at a Repository asks, "" for nobody. Who is asked for
// credentials first, such as the API of the same forge, counts as the host.
func hostOf(repo api.Repository) string {
	block := repo.Spec.Block()
	if block == nil || repo.Spec.Type == typeLocal {
		return ""
	}
	a, err := auth.ParseAddress(block.URL)
	if err != nil {
		return "" // it is refused before anybody is asked
	}
	return a.HostPort()
}
