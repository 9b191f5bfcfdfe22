package kube

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// readingSlack is how far two clocks that are read one after the other may
// seem apart for that reason alone.
const readingSlack = time.Millisecond

// lastSuspended is the last known result of suspendedFor, in nanoseconds.
var lastSuspended atomic.Int64

// suspendedFor returns how long the host has been suspended since it was booted: the
// boot clock counts that time, the monotonic clock does not. The result changes only by a
// suspend, not by the scheduler between two readings.
func suspendedFor() time.Duration {
	for range 4 {
		before, boot, after := clockGet(unix.CLOCK_MONOTONIC), clockGet(unix.CLOCK_BOOTTIME), clockGet(unix.CLOCK_MONOTONIC)
		if after-before > readingSlack {
			continue
		}
		known, now := time.Duration(lastSuspended.Load()), boot-before
		if (now - known).Abs() > 2*readingSlack {
			lastSuspended.Store(int64(now))
			return now
		}
		return known
	}
	return time.Duration(lastSuspended.Load())
}

// clockGet reads a clock of the kernel, 0 where it has none.
func clockGet(clock int32) time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(clock, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
