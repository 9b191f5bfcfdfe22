package git

import (
	"errors"
	"math/rand/v2"
	"time"
)

// rest is that a URL is left alone for a while. It is memory only: after a restart
// everybody is asked again.
type rest struct {
	until time.Time
	pause time.Duration
	err   error // why
}

// rested notes that the server of a URL was away.
func (m *Mirrors) rested(url string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	before, known := m.rests[url]
	if known && now.Before(before.until) {
		return // of a look that began before
	}
	pause := m.options.Rest
	if known {
		pause = min(2*before.pause, max(longestRest, m.options.Rest))
	}
	wait := pause*3/4 + rand.N(pause/2+1)
	if e, ok := errors.AsType[*Error](err); ok {
		wait = max(wait, min(e.RetryAfter, longestRest))
	}
	for k, r := range m.rests { // of Repositories that are gone
		if now.Sub(r.until) > 2*longestRest {
			delete(m.rests, k)
		}
	}
	m.rests[url] = rest{now.Add(wait), pause, err}
}

// resting is why a URL is left alone, nil when it is not.
func (m *Mirrors) resting(url string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.rests[url]; ok && time.Now().Before(r.until) {
		return r.err
	}
	return nil
}

// back notes that the server of a URL answers.
func (m *Mirrors) back(url string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.rests, url)
}
