package e2e

import (
	"context"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// gated is a daemon with a repository whose pulls wait until the gate is opened.
func gated(t *testing.T) (*home, *gate) {
	t.Helper()
	h, g := newHome(t), newGate(t, 3)
	h.daemon(t, "--controllers", "off")
	h.must(t, 0, "repo", "create", "gated", "--url", g.URL, "--branch", testenv.Branch)
	return h, g
}

// TestWaitForAJobThatIsThere: a command that waits attaches to the pending job that does
// what was asked, and asks again after one that has begun, since that may not have seen
// the last commit. Other options are refused with the job to watch.
func TestWaitForAJobThatIsThere(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h, g := gated(t)
	h.must(t, 0, "repo", "pull", "gated")
	until(t, "the job is at work", func() bool { return h.daemonWorks(t) })
	for _, call := range []string{"repo pull gated", "repo pull gated --full", "repo pull gated --full --wait", "job create gated --wait",
		"repo pull gated --allow-mass-delete --wait"} {
		if r := h.must(t, 1, strings.Fields(call)...); !strings.Contains(r.err, "try: limpet job watch gated-sync") {
			t.Errorf("limpet %s: %s", call, r.err)
		}
	}
	all := func(waiters ...*waiter) {
		t.Helper()
		for _, w := range waiters {
			if code := w.ends(t); code != 0 {
				t.Errorf("exit %d: %s%s", code, w.out, w.errs)
			}
		}
	}
	w := []*waiter{h.waiter(t, "repo", "pull", "gated", "--wait"), h.waiter(t, "job", "create", "gated", "--incremental", "--follow")}
	for _, one := range w {
		until(t, "it says for what it waits", func() bool { return strings.Contains(one.errs.String(), "gated-sync") })
	}
	quiet := h.waiter(t, "repo", "pull", "gated", "--follow", "-q", "-o", "json", "--progress", "none")
	g.open()
	all(append(w, quiet)...)
	if quiet.errs.String() != "" {
		t.Errorf("-q: %s", quiet.errs)
	}
	before := len(h.history(t))
	if before < 2 || before > 4 {
		t.Errorf("%d jobs have run", before)
	}
	h.must(t, 0, "drain", "--wait")
	h.must(t, 0, "repo", "pull", "gated", "--full")
	w = []*waiter{h.waiter(t, "repo", "pull", "gated", "--wait"), h.waiter(t, "job", "create", "gated", "--follow")}
	for _, one := range w {
		until(t, "it waits for the one that waits", func() bool { return strings.Contains(one.errs.String(), "gated-sync") })
	}
	h.must(t, 0, "drain", "--off")
	all(w...)
	if after := len(h.history(t)); after != before+1 {
		t.Errorf("%d jobs have run beside %d", after-before, before)
	}
}

// TestFollowPrintsTheWholeLog: --follow and job logs print the same lines, to the last
// one, as documents that keep their schema.
func TestFollowPrintsTheWholeLog(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	known := readSchemas(t)
	h, g := gated(t)
	waits := h.waiter(t, "repo", "pull", "gated", "--full", "--follow", "-o", "json", "-q")
	until(t, "the job is at work", func() bool { return h.daemonWorks(t) })
	logs := h.waiter(t, "job", "logs", "gated-sync", "--follow", "-o", "json", "-q")
	until(t, "both have begun", func() bool {
		return strings.Contains(waits.out.String(), `"log"`) && strings.Contains(logs.out.String(), `"log"`)
	})
	g.open()
	var got [2][]string
	for i, w := range []*waiter{waits, logs} {
		if code := w.ends(t); code != 0 {
			t.Errorf("exit %d: %s", code, w.errs)
		}
		for line := range strings.Lines(w.out.String()) {
			known.keeps(t, "stream", line)
			var one struct{ Log *struct{ Text string } }
			if err := json.Unmarshal([]byte(line), &one); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if one.Log != nil {
				got[i] = append(got[i], one.Log.Text)
			}
		}
	}
	if !slices.Equal(got[0], got[1]) || len(got[0]) < 3 {
		t.Errorf("--follow prints %q, job logs %q", got[0], got[1])
	}
}

// working starts a job whose Git host hangs.
func (h *home) working(t *testing.T) (answer func()) {
	t.Helper()
	url, answer := hangingHost(t)
	h.must(t, 0, "repo", "create", "slow", "--url", url+"/slow.git")
	h.must(t, 0, "repo", "pull", "slow")
	until(t, "the job is claimed", func() bool { return strings.Contains(h.run(t, "job", "list").out, "working") })
	return answer
}

// waiter is a command that runs beside the test, and its output.
type waiter struct {
	cmd       *exec.Cmd
	out, errs *log
	done      chan struct{} // closed when it has ended
}

func (h *home) waiter(t *testing.T, args ...string) *waiter {
	t.Helper()
	w := &waiter{cmd: h.command(context.WithoutCancel(t.Context()), t, args...), out: &log{}, errs: &log{}, done: make(chan struct{})}
	w.cmd.Stdout, w.cmd.Stderr = w.out, w.errs
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(w.done); _ = w.cmd.Wait() }()
	t.Cleanup(func() { _ = w.cmd.Process.Kill(); <-w.done })
	return w
}

// ends waits for the end of the command and returns its exit code.
func (w *waiter) ends(t *testing.T) int {
	t.Helper()
	until(t, strings.Join(w.cmd.Args[1:], " ")+" ends", func() bool {
		select {
		case <-w.done:
			return true
		default:
			return false
		}
	})
	return w.cmd.ProcessState.ExitCode()
}

// TestLogsOutliveTheDaemon: job logs --follow waits for a daemon that is away, shows how
// the job goes on with the next one, and ends as the job does.
func TestLogsOutliveTheDaemon(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	d := h.daemon(t, "--controllers", "off")
	answer := h.working(t)
	w := h.waiter(t, "job", "logs", "slow-sync", "--follow", "-o", "json")
	until(t, "the first lines", func() bool { return strings.Contains(w.out.String(), `"log"`) })
	d.stop(t)
	lines := strings.Count(w.out.String(), "\n")
	h.daemon(t, "--controllers", "off")
	until(t, "the job goes on", func() bool { return strings.Count(w.out.String(), "\n") > lines })
	answer()
	if code := w.ends(t); code != exitJobFailed {
		t.Errorf("exit %d\n%s%s", code, w.out, w.errs)
	}
}

// TestDrain: the running job goes on and nothing new is claimed. drain --wait ends when
// the agent is drained; Ctrl-C, --off, --timeout and the end of the agent are other ends.
func TestDrain(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	d := h.daemon(t, "--controllers", "off")
	answer := h.working(t)
	again := func() {
		t.Helper()
		d = h.daemon(t, "--controllers", "off")
		h.must(t, 0, "drain", "--off")
	}
	for _, c := range []struct {
		end  func(*waiter)
		code int
		try  string
	}{
		{func(w *waiter) { _ = w.cmd.Process.Signal(syscall.SIGINT) }, exitCancelled, "limpet drain --off"},
		{func(*waiter) { h.must(t, 0, "drain", "--off") }, exitCancelled, "limpet drain --wait"},
		{func(*waiter) { d.stop(t); again() }, exitUnreachable, "limpet --daemon --drain"},
		{func(*waiter) { d.kill(); again() }, exitUnreachable, "limpet --daemon --drain"},
	} {
		h.must(t, 0, "drain", "--off")
		until(t, "the job is at work", func() bool { return h.daemonWorks(t) })
		w := h.waiter(t, "drain", "--wait")
		until(t, "the wait", func() bool { return strings.Contains(w.errs.String(), "1 job") })
		c.end(w)
		if code := w.ends(t); code != c.code || !strings.Contains(w.errs.String(), "try: "+c.try) {
			t.Errorf("exit %d, want %d\n%s%s", code, c.code, w.out, w.errs)
		}
	}
	if err := d.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	until(t, "the agent drains", func() bool { return strings.Contains(h.run(t, "status").out, "draining") })
	h.must(t, 0, "repo", "create", "later", "--url", "https://127.0.0.1:1/later.git", "--disabled")
	h.must(t, 0, "repo", "pull", "later")
	waited := h.runInBackground(t, "drain", "--wait", "-o", "json")
	h.must(t, exitTimeout, "drain", "--wait", "--timeout", "1s")
	answer()
	r := waited()
	var out struct{ Busy int }
	if err := json.Unmarshal([]byte(r.out), &out); err != nil || r.code != 0 || out.Busy != 0 {
		t.Errorf("exit %d: %s%s", r.code, r.out, r.err)
	}
	if got := h.history(t); len(got) != 1 || got[0].Repository != "slow" {
		t.Errorf("history %+v", brief(got))
	}
	if list := h.must(t, 0, "job", "list").out; !strings.Contains(list, "later-sync") {
		t.Errorf("jobs: %s", list)
	}
	if err := d.cmd.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	until(t, "what came meanwhile is run", func() bool { return len(h.history(t)) == 2 })
}
