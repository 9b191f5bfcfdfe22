package agent

import (
	"bytes"
	"math"
	"os"
	"strconv"
	"time"
)

// loadSpan is the least time that a share of the processor is told of: what the
// system counts in hundredths of a second has to be many of them.
const loadSpan = 10 * time.Second

// load measures how much of a processor this process takes.
type load struct {
	at   time.Time
	used time.Duration
	last float64 // the share of the last span; 0 = there was none
}

// share is what was taken of one processor in the last span, in percent to a tenth.
// What is less than a tenth is a twentieth, for 0 means that it is not known. used
// is the processor time of the process so far, below 0 where the system does not tell.
func (l *load) share(now time.Time, used time.Duration) float64 {
	switch span := now.Sub(l.at); {
	case used < 0:
		return 0
	case l.at.IsZero() || span < 0 || used < l.used:
		l.at, l.used = now, used
	case span >= loadSpan:
		l.last = max(math.Round(float64(used-l.used)/float64(span)*1000)/10, 0.05)
		l.at, l.used = now, used
	}
	return l.last
}

// processorTime is what this process has used of the processors so far, -1 where the
// system does not tell. Source: proc(5), stat, fields 14 and 15 in ticks, of which
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
