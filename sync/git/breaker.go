package git

import (
	"errors"
	"maps"
	"math/rand/v2"
	"time"
)

// longestPause is the last pause of a server that did not answer; the first is
// Options.Pause, and each is twice as long as the one before. A host that is down costs a
// caller up to netx.DialTimeout; one that is back is to be used again within minutes.
const longestPause = 5 * time.Minute

// breaker is an open circuit: a URL is not asked until a time. It is in memory only:
// after a restart every server is asked again.
type breaker struct {
	until time.Time
	pause time.Duration
	err   error // why it is open
}

// heard notes whether the host of a call has answered. One that answers a look may be silent at a
// fetch.
func (m *Mirrors) heard(op string, c *call, err error) {
	_, requests, _ := c.exchange.Cost()
	host, now := c.exchange.Addr.HostPort(), time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case c.exchange.HostTime() == 0: // it was not asked
	case unreachable(err):
		maps.DeleteFunc(m.silent, func(_ [2]string, since time.Time) bool { return now.Sub(since) > 2*longestPause })
		m.silent[[2]string{op, host}] = now
	case requests > 0 && KindOf(err) != Cancelled:
		delete(m.silent, [2]string{op, host})
	}
}

// Silent reports whether a host, by name and port, did not answer when it was asked last.
func (m *Mirrors) Silent(host string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, op := range []string{"resolve", "fetch"} {
		if since, is := m.silent[[2]string{op, host}]; is && time.Since(since) < 2*longestPause {
			return true
		}
	}
	return false
}

// trip opens the breaker of a URL after a server did not answer.
func (m *Mirrors) trip(url string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	b := m.breakers[url]
	if now.Before(b.until) {
		return // of a request that began before
	}
	b.err, b.pause = err, max(m.client.Options.Pause, min(2*b.pause, longestPause))
	wait := b.pause*3/4 + rand.N(b.pause/2+1)
	if e, ok := errors.AsType[*Error](err); ok {
		wait = max(wait, min(e.RetryAfter, longestPause))
	}
	b.until = now.Add(wait)
	maps.DeleteFunc(m.breakers, func(_ string, old breaker) bool { return now.Sub(old.until) > 2*longestPause })
	m.breakers[url] = b
}

// tripped returns why the breaker of a URL is open, nil when it is closed.
func (m *Mirrors) tripped(url string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b := m.breakers[url]; time.Now().Before(b.until) {
		return b.err
	}
	return nil
}

// reset closes the breaker of a URL whose server has answered.
func (m *Mirrors) reset(url string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.breakers, url)
}
