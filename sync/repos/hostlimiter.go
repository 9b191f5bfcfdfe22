package repos

import (
	"errors"
	"slices"
	"sync"
	"time"

	"limpet/sync/api"
	"limpet/sync/auth"
)

const (
	// perHost is how many objects of one host are reconciled at once. It is what the
	// mirrors ask a host at a time, so that no worker waits for others.
	perHost = 2
	// hostGap is the pause between two objects that are called from the line of a host:
	// when it answers again the whole line must not fall upon it.
	hostGap = 50 * time.Millisecond
	// hostRetry is when an object that stands in line comes again by itself: the turn of
	// one that has nothing to ask any more is lost to those behind it.
	hostRetry = 30 * time.Second
)

// errBusy says that an object stands in line for its host.
var errBusy = errors.New("its host is busy")

// hostLimiter keeps the workers free: an object whose host is busy goes to the end of a
// line. A host that never answers holds two workers, whatever the number of its objects.
type hostLimiter struct {
	call func(Key, time.Time) // schedules the first of a line

	mu    sync.Mutex // guards hosts
	hosts map[string]*hostLine
}

type hostLine struct {
	busy    int
	waiting []Key
	called  time.Time // when the last one was, or is, called
}

// enter reserves a host; leave must follow. The error is errBusy.
func (l *hostLimiter) enter(host string, k Key) (leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.hosts[host]
	if h == nil {
		h = &hostLine{}
		l.hosts[host] = h
	}
	at := slices.Index(h.waiting, k)
	switch {
	case h.busy < perHost && at >= 0:
		h.waiting = slices.Delete(h.waiting, at, at+1)
	case h.busy < perHost:
	case at < 0:
		h.waiting = append(h.waiting, k)
		fallthrough
	default:
		return nil, errBusy
	}
	h.busy++
	return func() { l.leave(host) }, nil
}

func (l *hostLimiter) leave(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.hosts[host]
	h.busy--
	switch {
	case len(h.waiting) > 0:
		if h.called = h.called.Add(hostGap); h.called.Before(time.Now()) {
			h.called = time.Now()
		}
		l.call(h.waiting[0], h.called)
		h.waiting = h.waiting[1:]
	case h.busy == 0:
		delete(l.hosts, host)
	}
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
