package jobs

import (
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"
	"time"

	"limpet/sync/jobs/lease"
	"limpet/sync/kube"
)

// serverClock is the time of the API server, as far as it is known.
type serverClock interface {
	// Now returns that time and how far off it may be, in either direction. ok is
	// false until an answer of the server has been seen.
	Now() (t time.Time, errBound time.Duration, ok bool)
	// Millis returns it in milliseconds, or an error when it may be off by more.
	Millis(maxError time.Duration) (int64, error)
}

var _ serverClock = (*kube.Clock)(nil)

// host is the machine that the agent runs on, as far as leases and claims depend
// on it. Pauses that decide nothing use package time.
type host interface {
	now() lease.Moment
	// after calls f when d has passed on the monotonic clock.
	after(d time.Duration, f func()) *time.Timer
	// token returns an unguessable text that comes only once.
	token() string
	// jitter returns d plus or minus a tenth, so that agents that were cut off
	// together do not come back together.
	jitter(d time.Duration) time.Duration
}

// machine is the real host.
type machine struct{}

func (machine) now() lease.Moment                           { return lease.MomentOf(time.Now()) }
func (machine) after(d time.Duration, f func()) *time.Timer { return time.AfterFunc(d, f) }
func (machine) token() string                               { return rand.Text() }

func (machine) jitter(d time.Duration) time.Duration {
	if d < 10 {
		return d
	}
	return d - d/10 + mathrand.N(d/5)
}

// clock is the time of the server and of the host.
type clock struct {
	server   serverClock
	host     host
	maxError time.Duration // of the server's time in a claim
}

// millis is the server's time for a claim; an error when it is not known well
// enough to claim.
func (c *clock) millis() (int64, error) { return c.server.Millis(c.maxError) }

// roughMillis is the server's time as far as it is known, else the local time. It
// is for records, never for decisions.
func (c *clock) roughMillis() int64 {
	if t, _, ok := c.server.Now(); ok {
		return t.UnixMilli()
	}
	return c.host.now().Wall.UnixMilli()
}

// retryAfter is how long the server asked not to be called, and up to a tenth
// more: agents that got the same answer must not come back together.
func (c *clock) retryAfter(err error) time.Duration {
	after, ok := kube.RetryAfter(err)
	if !ok || after == 0 {
		return 0
	}
	return after + (c.host.jitter(after)-after*9/10)/2
}

// attemptDelay is the backoff of a job before the given attempt: none before the
// first, 5 s before the second, 20 s before the third, 80 s before the fourth, then
// 5 min. A job that kills its agent must not do so every few seconds.
func attemptDelay(attempt int) time.Duration {
	if attempt <= 1 {
		return 0
	}
	return min(5*time.Second<<(2*min(attempt-2, 3)), 5*time.Minute)
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	wait(ctx, nil, time.Now().Add(d), true)
}

// wait returns at until (when timed), at a signal, or when ctx ends.
func wait(ctx context.Context, signal <-chan struct{}, until time.Time, timed bool) {
	var tick <-chan time.Time
	if timed {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		tick = timer.C
	}
	select {
	case <-ctx.Done():
	case <-signal:
	case <-tick:
	}
}

// notify leaves one token in a channel of capacity 1.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
