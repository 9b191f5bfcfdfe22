package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// sample is what one run cost. A figure that a run does not have is zero.
type sample struct {
	wall  time.Duration
	cpu   time.Duration // user and system, with the processes that were waited for
	rss   int64         // bytes at most
	bytes int64         // received from the Git server
	calls int64         // of the API
	count float64       // of what was done; 0: once
}

// run runs a program to its end. The peak is that of its largest process, and has a floor: the
// peak of this process.
func run(cmd *exec.Cmd) (sample, error) {
	var out bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	cmd.Stderr = &out
	cmd.SysProcAttr = tied
	began := time.Now()
	err := cmd.Run()
	took := time.Since(began)
	if err != nil {
		return sample{}, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, &out)
	}
	s := ended(cmd.ProcessState)
	s.wall = took
	return s, nil
}

// tied has a process end with this one.
var tied = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

func ended(p *os.ProcessState) sample {
	s := sample{cpu: p.UserTime() + p.SystemTime()}
	if u, ok := p.SysUsage().(*syscall.Rusage); ok {
		s.rss = u.Maxrss << 10
	}
	return s
}

// running reads the processor time of a process that runs, in nanoseconds where ps has ticks,
// and its peak.
func running(pid int) (sample, error) {
	var s sample
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return s, err
	}
	for _, task := range tasks {
		data, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		first, _, _ := strings.Cut(string(data), " ")
		ns, _ := strconv.ParseInt(first, 10, 64)
		s.cpu += time.Duration(ns)
	}
	s.rss, err = memory(pid, "VmHWM")
	return s, err
}

// memory reads a line of /proc/PID/status, in bytes.
func memory(pid int, name string) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(data), name+":")
	line, _, _ := strings.Cut(rest, "\n")
	kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(line, "kB")), 10, 64)
	return kib << 10, err
}
