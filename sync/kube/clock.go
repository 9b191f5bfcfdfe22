package kube

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Claims are stamped with the time of the server, because the server's side compares them with its
// own clock. The source is the Date header of every answer. It is cut to the second, so one answer
// bounds the server's clock to an interval of one second plus the round trip; since the cuts of
// several answers lie differently, the intersection of the intervals is much narrower.
//
// Everything is kept as a distance to the host's monotonic clock, so a jump of the host's wall
// clock changes nothing. The monotonic clock of Linux stands still while the host sleeps; that time
// is added (see suspendedFor).

const (
	dateGranularity = time.Second
	// drift is how far two quartz clocks may part: 200 ppm, twice the worst of common hardware, for
	// the two of them.
	drift = 200e-6
)

var errClockUnknown = errors.New("the time of the server is not known well enough")

// Clock is the time of an API server. Its zero value knows nothing yet.
type Clock struct {
	mu      sync.Mutex // guards the fields below
	samples int
	// The server's time less the monotonic reading, at least and at most, as they were at the
	// monotonic reading at.
	low, high time.Duration
	at        time.Duration
}

// started is the zero of monotonic readings. The server's time is counted from its wall-clock part,
// whatever that says.
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
	// Otherwise the server's clock was set, or another server answers: what was known is worth nothing
	// any more.
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

// Millis returns the time of the server in milliseconds since the epoch, the form of a claim. It
// returns errClockUnknown when no answer has been seen or when the time may be off by more than
// maxError.
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

// suspendedFor returns how long the host has been suspended since it was booted: one of two clocks
// counts that time, the other, which is Go's, does not. It is rounded so that the moment between the two
// readings does not show.
func suspendedFor() time.Duration {
	return (clockGet(clockAlways) - clockGet(clockAwake)).Round(100 * time.Millisecond)
}

// clockGet reads a clock of the kernel, 0 where it has none.
func clockGet(clock int32) time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(clock, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
