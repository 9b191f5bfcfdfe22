package cli_test

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
)

// redrawn has the whole screen sent once more, each second in the other of two
// widths, until it shows something.
func (tt *terminal) redrawn(t *testing.T, what string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("the screen at the end: %q", tail(tt.screen.String(), 3000))
		}
	}()
	from, looks := 0, 0
	until(t, "the whole screen shows "+what, func() bool {
		if looks%20 == 0 {
			from = len(tt.screen.String())
			size := pty.Winsize{Rows: 24, Cols: uint16(100 + looks%40)}
			if err := pty.Setsize(tt.File, &size); err != nil {
				t.Fatal(err)
			}
		}
		looks++
		return strings.Contains(tt.screen.String()[from:], what)
	})
}

// exit is the code that the dashboard ends with.
func (tt *terminal) exit(t *testing.T) int {
	t.Helper()
	err := tt.end(t)
	if err == nil {
		return 0
	}
	if e, ok := err.(*exec.ExitError); ok {
		return e.ExitCode()
	}
	t.Fatal(err)
	return -1
}

// TestBlockedByADaemonThatHangs: who holds the file is named, nothing is opened
// beside it, and when it answers it is shown.
func TestBlockedByADaemonThatHangs(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	d := h.daemon(t)
	signal := func(s syscall.Signal) {
		if err := d.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	leaves, stays, asks := h.terminal(t), h.terminal(t), h.terminal(t)
	for _, tt := range []*terminal{leaves, stays, asks} {
		tt.shows(t, "Blocked")
		tt.shows(t, fmt.Sprintf("in use by process %d", d.cmd.Process.Pid))
		tt.shows(t, "does not answer there")
	}
	leaves.press(t, "q")
	if code := leaves.exit(t); code != 9 {
		t.Errorf("exit %d, want 9", code)
	}
	out := leaves.screen.String()
	if at := strings.LastIndex(out, mainScreen); at < 0 || !strings.Contains(out[at:], "try: kill -CONT") {
		t.Errorf("the terminal was not restored with what to do next: %q", tail(out, 300))
	}
	asks.press(t, "o")
	asks.shows(t, "for a copy to look at")
	signal(syscall.SIGCONT)
	for _, tt := range []*terminal{stays, asks} {
		tt.redrawn(t, fmt.Sprintf("attached to daemon %d", d.cmd.Process.Pid))
		tt.press(t, "q")
		if code := tt.exit(t); code != 0 {
			t.Errorf("exit %d", code)
		}
	}
}

// TestBlockedByAnAPIAlone: a holder without a socket can be waited for; who waits
// gets in when it ends, and nobody else.
func TestBlockedByAnAPIAlone(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	api := tied(exec.Command(limpetBinary(t), "--state", h.state(), "api", "--listen", "127.0.0.1:0", "--sign-listen", "127.0.0.1:0"))
	said := &log{}
	api.Env, api.Dir, api.Stdout, api.Stderr = h.env, h.dir, said, said
	if err := api.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = api.Wait() }()
	t.Cleanup(func() { _ = api.Process.Kill(); <-ended })
	until(t, "the API serves", func() bool { return strings.Contains(said.String(), "API on https://") })
	waits, asked := h.terminal(t), h.terminal(t, "--read-only")
	for _, tt := range []*terminal{waits, asked} {
		tt.shows(t, fmt.Sprintf("in use by process %d", api.Process.Pid))
		tt.shows(t, "It offers no socket")
	}
	waits.press(t, "ow")
	waits.shows(t, "Waiting for it since")
	if strings.Contains(waits.screen.String(), "copy") {
		t.Error("a copy that nobody can give was offered or asked for")
	}
	if err := api.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ended
	waits.redrawn(t, "standalone")
	// The other has not asked to wait, but is shown the agent that works now.
	asked.redrawn(t, fmt.Sprintf("attached to daemon %d", waits.process.Pid))
	for _, tt := range []*terminal{asked, waits} {
		tt.press(t, "q")
		if code := tt.exit(t); code != 0 {
			t.Errorf("exit %d", code)
		}
	}
	h.must(t, 0, "store", "check")
}

// TestOnlyLooking: without a daemon a dashboard shows what the last agent has left,
// and neither works nor is in the way of one that starts; then it shows that.
func TestOnlyLooking(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	if tt := h.terminal(t, "--read-only"); tt.exit(t) != 9 || !strings.Contains(tt.screen.String(), "there is no state file") {
		t.Errorf("without a file: %q", tail(tt.screen.String(), 300))
	}
	if r := h.run(t, "--read-only", "--daemon"); r.code != 2 {
		t.Errorf("--read-only --daemon: exit %d, %s", r.code, r.err)
	}
	d := h.daemon(t)
	h.must(t, 0, "repo", "create", "harbour", "--url", "https://git.invalid/harbour.git")
	until(t, "the daemon has seen it", func() bool { return strings.Contains(h.run(t, "status", "-o", "json").out, "harbour") })
	d.stop(t)
	tt := h.terminal(t, "--read-only")
	tt.shows(t, "No agent works on this file")
	tt.shows(t, "harbour")
	tt.press(t, "3p")
	tt.shows(t, "nothing is sent")
	if pid := h.owner(); pid != 0 {
		t.Errorf("process %d has the file open", pid)
	}
	h.must(t, 0, "store", "check") // nobody is in its way
	d = h.daemon(t)
	tt.redrawn(t, fmt.Sprintf("attached to daemon %d", d.cmd.Process.Pid))
	tt.press(t, "3p")
	tt.redrawn(t, "--read-only: nothing is sent")
	tt.press(t, "q")
	if code := tt.exit(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}
