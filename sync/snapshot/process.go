package snapshot

import (
	"bytes"
	"math"
	"os"
	"strconv"
	"time"
)

// cpuSpan is the least time that a share of the processor is measured: the
// system counts in hundredths of a second.
const cpuSpan = 10 * time.Second

// cpuUsage measures how much of a processor this process takes.
type cpuUsage struct {
	at   time.Time
	used time.Duration
	last float64 // the share of the last span; 0 = none
}

// share returns the part of one processor used in the last span, in percent rounded
// to a tenth. A smaller value is 0.05, because 0 means unknown. used is the processor
// time of the process so far, negative when unknown.
func (c *cpuUsage) share(now time.Time, used time.Duration) float64 {
	switch span := now.Sub(c.at); {
	case used < 0:
		return 0
	case c.at.IsZero() || span < 0 || used < c.used:
		c.at, c.used = now, used
	case span >= cpuSpan:
		c.last = max(math.Round(float64(used-c.used)/float64(span)*1000)/10, 0.05)
		c.at, c.used = now, used
	}
	return c.last
}

// processorTime returns the processor time of this process so far, -1 when unknown. Source: proc(5), stat, fields 14 and 15 in ticks, of which
// a second has a hundred for every program on Linux.
func processorTime() time.Duration {
	data, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return -1
	}
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:]) // the name before may have blanks
	if len(fields) < 13 {
		return -1
	}
	user, err := strconv.ParseInt(string(fields[11]), 10, 64)
	if err != nil {
		return -1
	}
	system, err := strconv.ParseInt(string(fields[12]), 10, 64)
	if err != nil {
		return -1
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// residentBytes returns the resident memory of this process, 0 when unknown. Source: proc(5), statm, second field in pages.
func residentBytes() int64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(data)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

func hostName() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return host
}

// fileSize returns the size of a file in bytes, 0 when it cannot be read.
func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
