package kube

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// While the server cannot be reached, all watches together try at most four times a minute: at 0, 2, 20, 40,
// 60 s and so on. One caller tries for all; an answer to any call releases all of them.
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

// Latency returns how long the last call waited for the head of its answer, 0 before the first. Watches do not count.
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

// WaitAvailable blocks while the server is known to be down, until this caller may try again or another call
// was answered. Loops call it before each request, so that all of them together try at most four times a
// minute. It returns the cause of ctx when that ends first.
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

// NextTry returns when a server that is down is tried next and how many tries have failed; zero while it answers.
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

// Claims are stamped with the time of the server, because the server's side compares them with its own clock.
// The source is the Date header of every answer. It is cut to the second, so one answer bounds the server's
// clock to an interval of one second plus the round trip; since the cuts of several answers lie differently,
// the intersection of the intervals is much narrower.
//
// Everything is kept as a distance to the host's monotonic clock, so a jump of the host's wall clock changes nothing.
// The monotonic clock of Linux stands still while the host sleeps; that time is added (see suspendedFor).

const (
	dateGranularity = time.Second
	// drift is how far two quartz clocks may part: 200 ppm, twice the worst of common hardware, for the two of them.
	drift = 200e-6
)

var errClockUnknown = errors.New("the time of the server is not known well enough")

// Clock is the time of an API server. Its zero value knows nothing yet.
type Clock struct {
	mu      sync.Mutex // guards the fields below
	samples int
	// The server's time less the monotonic reading, at least and at most, as they were at the monotonic reading at.
	low, high time.Duration
	at        time.Duration
}

// started is the zero of monotonic readings. The server's time is counted from its wall-clock part, whatever that says.
var started = time.Now()

var suspendedAtStart = suspendedFor()

// monotonic is the time since the start of the process, sleep included.
func monotonic() time.Duration { return time.Since(started) + suspendedFor() - suspendedAtStart }

// observe takes the Date of an answer; sent and received are monotonic
// readings before the request and after the header of the answer.
func (k *Clock) observe(header http.Header, sent, received time.Duration) {
	if header.Get("Age") != "" { // from a cache: the date is older than the answer
		return
	}
	date, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return
	}
	server := date.Sub(started.Round(0))
	low, high := server-received, server+dateGranularity-sent

	k.mu.Lock()
	defer k.mu.Unlock()
	knownLow, knownHigh := k.bounds(received)
	if k.samples > 0 && low <= knownHigh && high >= knownLow {
		low, high = max(low, knownLow), min(high, knownHigh)
	}
	// Otherwise the server's clock was set, or another server answers: what was known is worth nothing any more.
	k.low, k.high, k.at = low, high, received
	k.samples++
}

// bounds widens the interval by what the clocks may have drifted apart.
func (k *Clock) bounds(now time.Duration) (low, high time.Duration) {
	slack := time.Duration(float64((now - k.at).Abs()) * drift)
	return k.low - slack, k.high + slack
}

// Now returns the time of the server and how far off it may be, in either
// direction. ok is false until an answer has been seen.
func (k *Clock) Now() (t time.Time, errBound time.Duration, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.samples == 0 {
		return time.Time{}, 0, false
	}
	now := monotonic()
	low, high := k.bounds(now)
	errBound = (high - low) / 2
	return started.Round(0).Add(now + low + errBound), errBound, true
}

// Millis returns the time of the server in milliseconds since the epoch, the form of a claim. It returns
// errClockUnknown when no answer has been seen or when the time may be off by more than maxError.
func (k *Clock) Millis(maxError time.Duration) (int64, error) {
	t, bound, ok := k.Now()
	switch {
	case !ok:
		return 0, fmt.Errorf("%w: no answer with a date has been seen", errClockUnknown)
	case bound > maxError:
		return 0, fmt.Errorf("%w: off by up to %v, at most %v is allowed", errClockUnknown, bound.Round(time.Millisecond), maxError)
	}
	return t.UnixMilli(), nil
}

// suspendedFor returns how long the host has been suspended since it was booted: the boot clock counts that
// time, the monotonic clock does not. It is rounded so that the moment between the two readings does not show.
func suspendedFor() time.Duration {
	return (clockGet(unix.CLOCK_BOOTTIME) - clockGet(unix.CLOCK_MONOTONIC)).Round(100 * time.Millisecond)
}

// clockGet reads a clock of the kernel, 0 where it has none.
func clockGet(clock int32) time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(clock, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
