package testenv

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// clockTicks is the unit of proc(5) stat times; Linux has it fixed at 100 per
// second for user space.
const clockTicks = 100

// CPU returns the processor time that the server and its etcd have taken so
// far. It reads proc(5), so it is there on Linux only.
func (s *Server) CPU(t testing.TB) time.Duration {
	t.Helper()
	d, err := cpuOf(s.process.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// cpuOf is the user and system time of a process, all threads.
func cpuOf(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the name in parentheses and may hold spaces.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("read /proc/%d/stat: %d fields", pid, len(fields))
	}
	var ticks int64
	for _, field := range fields[11:13] { // utime, stime
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / clockTicks, nil
}
