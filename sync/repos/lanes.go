package repos

import "sync"

// perHost is how many Repositories of one host are looked into at once. It is
// what the mirrors ask a host at a time, so that no worker waits for others.
const perHost = 2

// lanes keep the workers free: a Repository whose host is being asked as often as
// may be goes to the end of a line, not to a worker that waits. A host that never
// answers then holds two workers, whatever the number of its Repositories.
type lanes struct {
	mu    sync.Mutex // guards hosts
	hosts map[string]*lane
}

type lane struct {
	busy    int
	waiting []Key
}

func newLanes() *lanes { return &lanes{hosts: map[string]*lane{}} }

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
	if h.busy < perHost {
		h.busy++
		return true
	}
	for _, other := range h.waiting {
		if other == k {
			return false
		}
	}
	h.waiting = append(h.waiting, k)
	return false
}

// leave ends the turn at a host, and returns whose turn it is next.
func (l *lanes) leave(host string) (next Key, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.hosts[host]
	h.busy--
	if len(h.waiting) > 0 {
		next, ok = h.waiting[0], true
		h.waiting = h.waiting[1:]
	} else if h.busy == 0 {
		delete(l.hosts, host)
	}
	return next, ok
}
