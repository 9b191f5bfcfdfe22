package jobs

import (
	"crypto/rand"
	mathrand "math/rand/v2"
	"time"

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
// on it. Pauses that decide nothing go by package time.
type host interface {
	now() moment
	// after calls f when d has passed on the monotonic clock.
	after(d time.Duration, f func()) *time.Timer
	// token returns a text that nobody guesses and that comes only once.
	token() string
	// jitter returns d plus or minus a tenth, so that agents that were cut off
	// together do not come back together.
	jitter(d time.Duration) time.Duration
}

// moment is one look at the two clocks of a host.
type moment struct {
	time.Time           // with its monotonic reading: for all that is counted
	wall      time.Time // the wall clock alone, which may be wrong and may jump
}

func momentOf(t time.Time) moment { return moment{Time: t, wall: t.Round(0)} }

// machine is the host as it is.
type machine struct{}

func (machine) now() moment                                 { return momentOf(time.Now()) }
func (machine) after(d time.Duration, f func()) *time.Timer { return time.AfterFunc(d, f) }
func (machine) token() string                               { return rand.Text() }

func (machine) jitter(d time.Duration) time.Duration {
	if d < 10 {
		return d
	}
	return d - d/10 + mathrand.N(d/5)
}
