package repos

import (
	"slices"
	"sync"

	"limpet/sync/api"
	"limpet/sync/auth"
)

// perHost is how many objects of one host are reconciled at once. It is what the mirrors
// ask a host at a time, so that no worker waits for others.
const perHost = 2

// hostLimiter keeps the workers free: an object whose host is busy goes to the end of a
// line, not to a worker that waits. A host that never answers then holds two workers,
// whatever the number of its objects. From the line they are called at the pace of the
// schedule: when the host answers again the whole line must not fall upon it.
type hostLimiter struct {
	mu     sync.Mutex // guards what follows
	hosts  map[string]*hostLine
	called map[Key]string // hosts of objects that were called and have not entered yet
}

type hostLine struct {
	busy    int
	waiting []Key
}

func newHostLimiter() *hostLimiter {
	return &hostLimiter{hosts: map[string]*hostLine{}, called: map[Key]string{}}
}

// enter reports whether the host may be asked now; leave must follow then. Otherwise the
// key is returned by the leave of another object.
func (l *hostLimiter) enter(host string, k Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.hosts[host]
	if h == nil {
		h = &hostLine{}
		l.hosts[host] = h
	}
	_, called := l.called[k]
	delete(l.called, k)
	switch {
	case h.busy < perHost:
		h.busy++
		return true
	case slices.Contains(h.waiting, k):
	case called: // another one was faster
		h.waiting = slices.Insert(h.waiting, 0, k)
	default:
		h.waiting = append(h.waiting, k)
	}
	return false
}

// leave ends a request to a host, and returns the object to call next.
func (l *hostLimiter) leave(host string) (next Key, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hosts[host].busy--
	return l.call(host)
}

// pass gives up the turn of an object that was called and then had nothing to ask, such
// as one that was deleted: without that all behind it would wait for a leave that never
// comes. It returns the object to call instead.
func (l *hostLimiter) pass(k Key) (next Key, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	host, called := l.called[k]
	if !called {
		return Key{}, false
	}
	delete(l.called, k)
	return l.call(host)
}

// call takes the first object off the line of a host. l.mu is held.
func (l *hostLimiter) call(host string) (next Key, ok bool) {
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

// hostOf returns the host that a reconcile of a Repository asks, "" for none. What is
// asked for credentials first, such as the API of the same forge, counts as the host.
func hostOf(repo api.Repository) string {
	block := repo.Spec.Block()
	if block == nil || repo.Spec.Type == typeLocal {
		return ""
	}
	a, err := auth.ParseAddress(block.URL)
	if err != nil {
		return "" // it is refused before any request
	}
	return a.HostPort()
}
