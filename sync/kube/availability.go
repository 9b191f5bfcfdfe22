package kube

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// While the server cannot be reached, all watches together try at most four times a minute: at 0,
// 2, 20, 40, 60 s and so on. One caller tries for all; an answer to any call releases all of them.
const (
	firstPause  = 2 * time.Second
	secondPause = 18 * time.Second
	laterPause  = 20 * time.Second
	// longestRetryAfter caps what a server may ask for.
	longestRetryAfter = 5 * time.Minute
	// retryNowPause is the least time between two calls of RetryNow that have an effect.
	retryNowPause = time.Second
)

// availability is what is known about the reachability of the server.
type availability struct {
	mu        sync.Mutex // guards the fields below, but latency
	since     time.Time  // of the first failure in a row; zero = reachable
	err       error      // the last failure
	failures  int        // pauses taken since then
	next      time.Time  // of the next try
	notBefore time.Time  // of Retry-After
	askedNow  time.Time  // of the last RetryNow
	open      chan struct{}
	latency   atomic.Int64 // of the last call that had an answer
}

// Latency returns how long the last call waited for the head of its answer, 0 before the first.
// Watches do not count.
func (h *availability) Latency() time.Duration { return time.Duration(h.latency.Load()) }

// succeed records an answer.
func (h *availability) succeed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since.IsZero() {
		return
	}
	h.since, h.err, h.failures = time.Time{}, nil, 0
	close(h.open)
}

// fail records that a call had no answer. after is the Retry-After of the server.
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
	// Up to a tenth later, so that agents with the same answer do not return together.
	if asked := now.Add(after + rand.N(after/10+1)); asked.After(h.next) {
		h.next, h.notBefore = asked, asked
	}
}

// pause takes the next step of the schedule, up to a tenth longer.
func (h *availability) pause() time.Duration {
	steps := []time.Duration{firstPause, secondPause, laterPause}
	step := steps[min(h.failures, len(steps)-1)]
	h.failures++
	return step + rand.N(step/10)
}

// WaitAvailable blocks while the server is known to be down, until this caller may try again or
// another call was answered. Loops call it before each request, so that all of them together try at
// most four times a minute. It returns the cause of ctx when that ends first.
func (h *availability) WaitAvailable(ctx context.Context) error {
	for {
		h.mu.Lock()
		if h.since.IsZero() {
			h.mu.Unlock()
			return context.Cause(ctx)
		}
		now, open := time.Now(), h.open
		left := h.next.Sub(now)
		if left <= 0 {
			h.next = now.Add(h.pause()) // the others wait on
			h.mu.Unlock()
			return context.Cause(ctx)
		}
		h.mu.Unlock()
		select {
		case <-time.After(left):
		case <-open:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// RetryNow tries a server that is down at once, unless it has sent Retry-After.
func (h *availability) RetryNow() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since.IsZero() {
		return
	}
	now := time.Now()
	at := slices.MaxFunc([]time.Time{now, h.notBefore, h.askedNow.Add(retryNowPause)}, time.Time.Compare)
	if !at.Before(h.next) {
		return
	}
	h.next, h.askedNow = at, now
	close(h.open) // wake the callers of WaitAvailable, which read next again
	h.open = make(chan struct{})
}

// NextTry returns when a server that is down is tried next and how many tries have failed; zero
// while it answers.
func (h *availability) NextTry() (next time.Time, tries int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since.IsZero() {
		return time.Time{}, 0
	}
	return h.next, h.failures
}

// Down returns since when the server has not answered, and the last error. The
// time is zero while it answers or before the first call.
func (h *availability) Down() (since time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.since, h.err
}
