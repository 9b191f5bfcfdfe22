package snapshot

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
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

// share returns the part of one processor used in the last span, in percent rounded to a tenth. A
// smaller value is 0.05, because 0 means unknown. used is the processor time of the process so far.
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

// residentBytes returns the resident memory of this process, 0 when unknown. Source: proc(5),
// statm, in pages.
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

// DiskSpace returns the free bytes and the size of the disk of a directory, -1 where they cannot be
// read.
func DiskSpace(dir string) (free, size int64) {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return -1, -1
	}
	return int64(s.Bavail) * int64(s.Bsize), int64(s.Blocks) * int64(s.Bsize)
}

// releaseMemory gives unused heap back to the system, and the program.
func releaseMemory() {
	debug.FreeOSMemory()
	releaseProgram()
}

// releaseProgram gives the pages of the program file back that the start or a burst of work has
// mapped: of 34 MiB an idle agent uses a few. The page cache keeps what it has memory for, so that
// a later call maps its code again without a read from disk.
func releaseProgram() {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var from, to uintptr
		var mode string
		_, err := fmt.Sscanf(lines.Text(), "%x-%x %4s", &from, &to, &mode)
		// Pages that may be written are not those of the file any more.
		if err != nil || mode[1] == 'w' || !strings.HasSuffix(lines.Text(), " "+exe) {
			continue
		}
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_DONTNEED)
	}
}
