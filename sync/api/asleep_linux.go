package api

import (
	"time"

	"golang.org/x/sys/unix"
)

// asleep is how long the host has been suspended since it was booted: the boot
// clock counts that time, the monotonic clock does not.
func asleep() time.Duration {
	var boot, mono unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) != nil {
		return 0
	}
	// The two are read one after the other; below a millisecond the
	// difference is only that.
	return time.Duration(boot.Nano() - mono.Nano()).Truncate(time.Millisecond)
}
