// Fault runs the parts of 'make fault' and prints one page: what ran, how often,
// with which seed, how it ended, how long it took and how much processor time.
//
//	fault SEED ["pattern"]     only the parts whose name matches
//
// The parts come in FAULT_PARTS, one per line: name | package | tests | flags |
// lane. The parts of a lane run one after the other, the lanes side by side: one
// for what waits (for leases to end, for servers to come back) and one for what
// computes, which is given less of the processor when both want it, so that the
// times of the first stay honest; and one aside for what is long and needs little. A test tells its figures in log lines that
// begin with "fault: ".
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	waits   = "waits" // the lane that is not to be held up
	lower   = 5       // by how much the priority of the other lane is less
	patient = "20m"   // for one part
	grace   = 10 * time.Second
)

var (
	bars    = regexp.MustCompile(`[ \t]+\|[ \t]+`) // a bar without blanks is a pattern's own
	odd     = regexp.MustCompile(`[^a-z0-9]`)      // in the name of a file
	figure  = regexp.MustCompile(`(?m)^ *[a-z0-9_]*_test\.go:[0-9]+: fault: (.*)$`)
	passed  = regexp.MustCompile(`(?m)^--- PASS`)
	trouble = regexp.MustCompile(`(?m)^.*(--- FAIL|_test\.go:|panic|FAIL).*$`)
)

// part is one call of 'go test'.
type part struct {
	name, pkg, tests, flags, lane string

	log       string
	ok        bool
	took, cpu time.Duration
	figures   []string
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, `usage: fault SEED ["pattern"]`)
		os.Exit(2)
	}
	seed, only := os.Args[1], regexp.MustCompile("")
	if len(os.Args) > 2 {
		only = regexp.MustCompile(os.Args[2])
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	logs, err := os.MkdirTemp("", "limpet-fault-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var all []*part
	lanes := map[string][]*part{}
	for line := range strings.Lines(os.Getenv("FAULT_PARTS")) {
		column := append(bars.Split(strings.TrimSpace(line), -1), "", "")
		if len(column) < 6 || !only.MatchString(column[0]) {
			continue
		}
		p := &part{name: column[0], pkg: column[1], tests: column[2], flags: column[3], lane: column[4]}
		p.log = filepath.Join(logs, odd.ReplaceAllString(p.name, "_")+".log")
		all, lanes[p.lane] = append(all, p), append(lanes[p.lane], p)
	}
	began := time.Now()
	var running sync.WaitGroup
	for _, parts := range lanes {
		running.Go(func() {
			for _, p := range parts {
				p.run(ctx, seed)
			}
		})
	}
	running.Wait()
	bad := len(all) == 0 || ctx.Err() != nil
	version, _ := exec.Command("git", "describe", "--tags", "--always", "--dirty").Output()
	fmt.Printf("\nmake fault, %s UTC, %s, %d cores, seed %s, %.0f s\n", began.UTC().Format("2006-01-02 15:04"), bytes.TrimSpace(version), runtime.NumCPU(), seed, time.Since(began).Seconds())
	for _, p := range all {
		outcome := "ok"
		switch {
		case p.took == 0:
			outcome, bad = "not run", true
		case !p.ok:
			outcome, bad = "FAILED", true
		}
		fmt.Printf("%-34s %-7s %5.0f s, %5.0f s of processor time\n", p.name, outcome, p.took.Seconds(), p.cpu.Seconds())
		for _, f := range p.figures {
			fmt.Printf("    %s\n", f)
		}
	}
	if bad {
		os.Exit(1)
	}
}

// run runs a part, in a process group of its own so that nothing of it is left
// when ctx ends.
func (p *part) run(ctx context.Context, seed string) {
	if ctx.Err() != nil {
		return
	}
	args := append([]string{"test", "-count=1", "-timeout", patient, "-v", p.pkg, "-run", p.tests}, strings.Fields(p.flags)...)
	args = append(args, "-seed", seed)
	fmt.Printf("== %s: go %s\n", p.name, strings.Join(quoted(args), " "))
	began := time.Now()
	err := p.command(ctx, args)
	p.took = time.Since(began)
	out, readErr := os.ReadFile(p.log)
	for _, m := range figure.FindAllSubmatch(out, -1) {
		p.figures = append(p.figures, string(m[1]))
	}
	p.ok = err == nil && readErr == nil && passed.Match(out)
	if p.ok {
		return
	}
	var text strings.Builder
	fmt.Fprintf(&text, "== %s FAILED: %v\n", p.name, err)
	for _, line := range trouble.FindAll(out, 40) {
		fmt.Fprintf(&text, "%s\n", line)
	}
	fmt.Printf("%s   whole log: %s\n", text.String(), p.log)
}

func (p *part) command(ctx context.Context, args []string) error {
	log, err := os.Create(p.log)
	if err != nil {
		return err
	}
	defer log.Close()
	goTool := os.Getenv("GO")
	if goTool == "" {
		goTool = "go"
	}
	cmd := exec.CommandContext(ctx, goTool, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		return err
	}
	if p.lane != waits {
		_ = syscall.Setpriority(syscall.PRIO_PGRP, cmd.Process.Pid, lower) // a wish
	}
	err = cmd.Wait()
	sweep(cmd.Process.Pid)
	p.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return err
}

// sweep ends what is left of a process group. Agents end in order when they are
// told to, and have some time for it.
func sweep(group int) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	late := time.After(grace)
	_ = syscall.Kill(-group, syscall.SIGTERM)
	for syscall.Kill(-group, 0) == nil {
		select {
		case <-tick.C:
		case <-late:
			_ = syscall.Kill(-group, syscall.SIGKILL)
			return
		}
	}
}

// quoted returns arguments as they may be pasted into a shell.
func quoted(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		if out[i] = a; strings.ContainsAny(a, " ^$|()*") {
			out[i] = "'" + a + "'"
		}
	}
	return out
}
