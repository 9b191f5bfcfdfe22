package snapshot

import (
	"fmt"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// cpuSpan is the least time that a share of the processor is measured.
const cpuSpan = 10 * time.Second

// cpuUsage measures how much of a processor this process takes.
type cpuUsage struct {
	at   time.Time
	used time.Duration
	last float64 // the share of the last span; 0 = none
}

// share returns the part of one processor used in the last span, in percent rounded to a tenth. A smaller value is
// 0.05, because 0 means unknown. used is the processor time of the process so far.
func (c *cpuUsage) share(now time.Time, used time.Duration) float64 {
	switch span := now.Sub(c.at); {
	case c.at.IsZero() || span < 0 || used < c.used:
		c.at, c.used = now, used
	case span >= cpuSpan:
		c.last = max(math.Round(float64(used-c.used)/float64(span)*1000)/10, 0.05)
		c.at, c.used = now, used
	}
	return c.last
}

// processorTime returns the processor time of this process so far.
func processorTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // fails only for another first argument
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// residentBytes returns the resident memory of this process, 0 when unknown. Source: proc(5), statm, in pages.
func residentBytes() int64 {
	var total, resident int64
	data, _ := os.ReadFile("/proc/self/statm")
	if _, err := fmt.Sscan(string(data), &total, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}

func hostName() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return host
}
