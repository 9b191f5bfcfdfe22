package kube

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// While the server cannot be reached, all watches together ask it at most four
// times a minute: at 0, 2, 20, 40, 60 s and so on. Whoever comes first asks for
// all; the answer to any call, of anybody, lets everybody go on.
const (
	firstPause  = 2 * time.Second
	secondPause = 18 * time.Second
	laterPause  = 20 * time.Second
	// longestRetryAfter caps what a server may ask for.
	longestRetryAfter = 5 * time.Minute
	// hurryPause is the least time between two turns that a person asks for.
	hurryPause = time.Second
)

// availability is what is known about the reachability of the server.
type availability struct {
	mu       sync.Mutex // guards the fields below
	since    time.Time  // of the first failure in a row; zero = reachable
	err      error      // the last failure
	failures int        // pauses taken since then
	next     time.Time  // not before then may be asked again
	told     time.Time  // not before then, says the server itself
	hurried  time.Time  // when a person last did not want to wait
	open     chan struct{}
	latency  time.Duration // of the last call that had an answer
}

// took notes how long a call has waited for the head of its answer.
func (h *availability) took(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.latency = d
}

func (h *availability) lastWait() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.latency
}

// ok notes an answer.
func (h *availability) ok() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since.IsZero() {
		return
	}
	h.since, h.err, h.failures = time.Time{}, nil, 0
	close(h.open)
}

// fail notes that a call had no answer. after is what the server asked for.
func (h *availability) fail(err error, after time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	h.err = err
	if h.since.IsZero() {
		h.since, h.open, h.next = now, make(chan struct{}), now
	}
	if !now.Before(h.next) { // else it is one of several calls that failed together
		h.next = now.Add(h.pause())
	}
	// Up to a tenth later, so that agents that were told the same do not come
	// back together.
	if asked := now.Add(after + rand.N(after/10+1)); asked.After(h.next) {
		h.next, h.told = asked, asked
	}
}

// pause takes the next step of the schedule, up to a tenth longer.
func (h *availability) pause() time.Duration {
	steps := []time.Duration{firstPause, secondPause, laterPause}
	step := steps[min(h.failures, len(steps)-1)]
	h.failures++
	return step + rand.N(step/10)
}

// wait blocks while the server is down, until it is this caller's turn to ask
// or somebody had an answer. It returns the cause of ctx when that ends first.
func (h *availability) wait(ctx context.Context) error {
	for {
		h.mu.Lock()
		if h.since.IsZero() {
			h.mu.Unlock()
			return context.Cause(ctx)
		}
		now, open := time.Now(), h.open
		left := h.next.Sub(now)
		if left <= 0 {
			h.next = now.Add(h.pause()) // the turn is taken; the others wait on
			h.mu.Unlock()
			return context.Cause(ctx)
		}
		h.mu.Unlock()
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-open:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// hurry has the server asked now and not at the next turn, because somebody waits
// for it. What the server itself asked for stands.
func (h *availability) hurry() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since.IsZero() {
		return
	}
	now := time.Now()
	at := now
	for _, least := range []time.Time{h.told, h.hurried.Add(hurryPause)} {
		if least.After(at) {
			at = least
		}
	}
	if !at.Before(h.next) {
		return
	}
	h.next, h.hurried = at, now
	close(h.open) // those who wait look at the time again
	h.open = make(chan struct{})
}

// turn says when the server is asked next and how often it was asked in vain; zero
// while it answers.
func (h *availability) turn() (next time.Time, tries int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since.IsZero() {
		return time.Time{}, 0
	}
	return h.next, h.failures
}

// down says since when nothing answers and why; a zero time means that the
// last call was answered.
func (h *availability) down() (time.Time, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.since, h.err
}
