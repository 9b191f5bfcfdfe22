package e2e

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"limpet/sync/testenv/suite"

	"github.com/creack/pty"
)

// terminal runs the binary on a terminal that never answers a query, as a
// serial console does, and collects what it sends.
type terminal struct {
	*os.File
	process *os.Process
	screen  *log
	ended   chan error
	read    chan struct{} // closed when all that was sent is on the screen
}

func (h *home) terminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	return h.on(t, "xterm-256color", args...)
}

// dumb runs the binary on a terminal that can do nothing but print.
func (h *home) dumb(t *testing.T, args ...string) *terminal {
	t.Helper()
	return h.on(t, "dumb", args...)
}

func (h *home) on(t *testing.T, term string, args ...string) *terminal {
	t.Helper()
	cmd := h.command(context.WithoutCancel(t.Context()), t, args...)
	cmd.Env = append(slices.Clone(cmd.Env), "TERM="+term)
	return onTerminal(t, cmd)
}

// onTerminal starts a command on a terminal of its own.
func onTerminal(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	tt := &terminal{File: f, process: cmd.Process, screen: &log{}, ended: make(chan error, 1), read: make(chan struct{})}
	go func() {
		defer close(tt.read)
		// The terminal ends with EIO when the last process has left it.
		_, _ = io.Copy(tt.screen, f)
	}()
	go func() { tt.ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		f.Close()
		<-tt.read
	})
	return tt
}

func (tt *terminal) shows(t *testing.T, what string) {
	t.Helper()
	until(t, "the screen shows "+what, func() bool { return strings.Contains(tt.screen.String(), what) })
}

func (tt *terminal) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := tt.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

func (tt *terminal) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-tt.ended:
		<-tt.read
		return err
	case <-time.After(callTimeout):
		_ = tt.process.Signal(syscall.SIGQUIT) // and it says where it is
		select {
		case <-tt.read:
		case <-time.After(10 * time.Second):
		}
		t.Fatalf("the dashboard does not end\n%s", tail(tt.screen.String(), 100_000))
		return nil
	}
}

const (
	altScreen  = "\x1b[?1049h"
	mainScreen = "\x1b[?1049l"
)

func TestDashboardOnATerminal(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	limpetBinary(t)
	start := time.Now()
	tt := h.terminal(t, "demo")
	tt.shows(t, altScreen)
	tt.shows(t, "Repositories")
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("the first frame came after %v", took)
	}
	tt.shows(t, "plant-east-sync")
	tt.press(t, "?")
	tt.shows(t, "esc closes")
	tt.press(t, "quit\x15?") // typed, taken away, closed
	// Twice, because a job of the demo may be running: then the first asks.
	tt.press(t, "\x03\x03")
	if err := tt.end(t); err != nil {
		t.Errorf("end: %v", err)
	}
	out := tt.screen.String()
	at := strings.LastIndex(out, mainScreen)
	if at < 0 || !strings.Contains(out[at:], "limpet: ") {
		t.Errorf("the terminal was not restored with a last line: %q", tail(out, 300))
	}
}

func TestDashboardAttachesToTheDaemon(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	d := h.daemon(t)
	tt := h.terminal(t)
	tt.shows(t, "attached to daemon")
	d.kill()
	tt.shows(t, "reconnecting")
	h.daemon(t)
	until(t, "the banner goes", func() bool {
		s := tt.screen.String()
		return strings.LastIndex(s, "embedded API") > strings.LastIndex(s, "daemon gone")
	})
	tt.press(t, "q")
	if err := tt.end(t); err != nil {
		t.Errorf("end: %v", err)
	}
}

// TestDashboardSuspends: s has the agent leave a repository alone after a yes, and
// take it up again, attached to a daemon and with the agent inside.
func TestDashboardSuspends(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	for _, with := range []string{"a daemon", "the agent inside"} {
		t.Run(with, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			h.must(t, 0, "repo", "create", "boards", "--url", "https://127.0.0.1:1/boards.git", "--disabled")
			if with == "a daemon" {
				h.daemon(t)
			}
			tt := h.terminal(t)
			tt.shows(t, "boards")
			tt.press(t, "3s")
			tt.shows(t, "Suspend boards")
			tt.press(t, "\r")
			tt.press(t, "y")
			suspended := func() bool { return strings.Contains(h.must(t, 0, "repo", "show", "boards").out, "\nsuspended") }
			until(t, "it is suspended", suspended)
			tt.press(t, "\r")
			tt.shows(t, "on this agent until")
			tt.press(t, "s")
			until(t, "it is resumed", func() bool { return !suspended() })
			tt.press(t, "q")
			if err := tt.end(t); err != nil {
				t.Errorf("end: %v", err)
			}
		})
	}
}

// pidOf asks the process behind the socket for its id.
func pidOf(t *testing.T, h *home) int {
	t.Helper()
	var pid int
	until(t, "the agent answers", func() bool {
		r := h.run(t, "status", "-o", "json")
		pid = daemonPID(r.out)
		return pid > 0
	})
	return pid
}

// TestOtherCommandsLeaveTheTerminalAlone runs a command on a terminal that
// never answers: it asks nothing, and sends no escape byte but those of a colour.
func TestOtherCommandsLeaveTheTerminalAlone(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	for _, args := range [][]string{{"version"}, {"status"}, {"repo", "list"}, {"nonsense"}} {
		tt := h.terminal(t, args...)
		_ = tt.end(t) // the exit codes have tests of their own
		out := tt.screen.String()
		if args[0] == "nonsense" { // the first word of an error has its colour
			out = colours.ReplaceAllString(out, "")
		}
		if strings.ContainsRune(out, 0x1b) || out == "" {
			t.Errorf("%v sent %q", args, tt.screen.String())
		}
	}
}

// colours are escapes that a terminal forgets with the line.
var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// TestDashboardRestoresTheTerminal: whatever ends it, the screen is given back
// and the state file is sound.
func TestDashboardRestoresTheTerminal(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(sig) {
			continue // as SIGHUP below nohup: who inherits that is not to end either
		}
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			tt := h.terminal(t)
			tt.shows(t, "First steps")
			if err := syscall.Kill(pidOf(t, h), sig); err != nil {
				t.Fatal(err)
			}
			if err := tt.end(t); err != nil {
				t.Errorf("end: %v", err)
			}
			if out := tt.screen.String(); !strings.Contains(out, mainScreen) || !strings.HasSuffix(out, "repositories: 0\r\n") {
				t.Errorf("the terminal was not restored: %q", tail(out, 200))
			}
			if r := h.must(t, 0, "store", "check"); !strings.Contains(r.out, " 0 problems") {
				t.Errorf("store check: %s", r.out)
			}
		})
	}
}

// TestPanicGivesTheTerminalBack: what a panic says stays on the screen of the shell,
// wherever it happens, and keys are typed and seen there again.
func TestPanicGivesTheTerminalBack(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for kind, word := range map[string]string{"fall": "fell", "stumble": "stumbled"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "/bin/sh", "-c", `"$1"; echo "ended with $?"; stty -a`, "sh", self)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TERM=xterm-256color", "LANG=C.UTF-8", dashboardOf + "=" + kind}
			tt := onTerminal(t, cmd)
			if err := tt.end(t); err != nil {
				t.Errorf("end: %v", err)
			}
			out := tt.screen.String()
			before, after, back := strings.Cut(out, mainScreen)
			if !back || strings.Contains(after, altScreen) || !strings.Contains(before, "repo-1") {
				t.Fatalf("the screen was not given back: %q", tail(out, 300))
			}
			for _, want := range []string{"\x1b[?25h", word, "(*weather)", "ended with 1", " icanon", " echo "} {
				if !strings.Contains(after, want) {
					t.Errorf("no %q after the dashboard: %s", want, after)
				}
			}
		})
	}
}

// TestDumbTerminal: where no cursor can be moved there is no dashboard.
func TestDumbTerminal(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	for _, args := range [][]string{{}, {"demo", "--once"}} {
		tt := h.dumb(t, args...)
		if err := tt.end(t); err != nil {
			t.Errorf("%v: %v", args, err)
		}
		if out := tt.screen.String(); strings.ContainsRune(out, 0x1b) || !strings.Contains(out, "state") {
			t.Errorf("%v sent %q", args, out)
		}
	}
}

// TestDashboardAndTheShell: Ctrl-Z gives the screen back to the shell, fg takes it
// again, with the mouse if it was asked for and without where not.
func TestDashboardAndTheShell(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	for _, flag := range []string{"", "--mouse"} {
		h := newHome(t)
		d := h.daemon(t)
		cmd := h.command(context.WithoutCancel(t.Context()), t)
		cmd.Path, cmd.Args = "/bin/bash", []string{"bash", "--norc", "--noediting", "-i"}
		cmd.Env = append(slices.Clone(cmd.Env), "TERM=xterm-256color", "PS1=ready> ")
		tt := onTerminal(t, cmd)
		tt.shows(t, "ready> ")
		tt.press(t, binary.path+" "+flag+"\n")
		tt.shows(t, "First steps")
		const clicks = "\x1b[?1002h"
		if got, want := strings.Contains(tt.screen.String(), clicks), flag != ""; got != want {
			t.Errorf("%q: the mouse is taken: %v", flag, got)
		}
		tt.press(t, "\x1a")
		tt.shows(t, "Stopped")
		out := tt.screen.String()
		if i := strings.LastIndex(out, mainScreen); i < strings.LastIndex(out, altScreen) || i > strings.Index(out, "Stopped") {
			t.Errorf("%q: the shell is on the wrong screen: %q", flag, tail(out, 300))
		}
		tt.press(t, "fg\n")
		until(t, "the dashboard is back", func() bool {
			_, after, _ := strings.Cut(tt.screen.String(), "Stopped")
			_, after, again := strings.Cut(after, altScreen)
			return again && strings.Contains(after, "First steps") && strings.Contains(after, clicks) == (flag != "")
		})
		tt.press(t, "q")
		until(t, "the last line", func() bool {
			out := tt.screen.String()
			return strings.Contains(out[strings.LastIndex(out, mainScreen):], "repositories: 0")
		})
		tt.press(t, "exit\n")
		_ = tt.end(t)
		d.kill()
	}
}

// TestTerminalThatCanOnlyPrint: where TERM says so, or nothing, what a command shows and
// asks is what --accessible has it be, without an escape byte; a pipe keeps its columns.
func TestTerminalThatCanOnlyPrint(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	h.must(t, 0, "repo", "create", "boards", "--url", "https://127.0.0.1:1/x.git", "--disabled")
	for _, term := range []string{"dumb", "", "unknown"} {
		for _, c := range []struct{ call, typed, want string }{
			{"repo list", "", "name: boards\r\n"},
			{"repo show boards", "", "repository: default/boards\r\n"},
			{"doctor", "", "terminal"},
			{"delete repository boards", "\n", "1: go on\r\n2: change nothing\r\n"},
			{"", "", "state file: "},
			{"demo --once", "", "the first pull has succeeded"},
		} {
			tt := h.on(t, term, strings.Fields(c.call)...)
			tt.shows(t, c.want)
			if c.typed != "" {
				tt.press(t, c.typed)
			}
			_ = tt.end(t) // some end with the state of things
			readable(t, strings.ReplaceAll(tt.screen.String(), "\a", ""))
		}
	}
	h.env = append(h.env, "TERM=")
	if r := h.must(t, 0, "repo", "list"); !strings.HasPrefix(r.out, "NAME ") {
		t.Errorf("on a pipe without TERM: %q", r.out)
	}
}

// TestTablesOnATerminal: a repository whose host is away is told in red on a terminal,
// and without any escape byte where there are no colours.
func TestTablesOnATerminal(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	h.daemon(t)
	h.must(t, 0, "repo", "create", "boards", "--url", "https://127.0.0.1:1/boards.git")
	until(t, "it is failing", func() bool { return strings.Contains(h.run(t, "repo", "list").out, "failing") })
	const red = "\x1b[1;31mfailing\x1b[0m"
	tests := []struct {
		term, env, args string
		red             bool
	}{
		{"xterm-256color", "", "", true},
		{"linux", "", "", true},
		{"xterm-256color", "", "--color never", false},
		{"xterm-256color", "", "--theme mono", false},
		{"xterm-256color", "", "--accessible", false},
		{"xterm-256color", "", "-o json", false},
		{"xterm-256color", "NO_COLOR=1", "", false},
		{"xterm-256color", "NO_COLOR=1", "--color always", true},
		{"dumb", "", "", false},
	}
	for _, tt := range tests {
		cmd := h.command(context.WithoutCancel(t.Context()), t, append([]string{"repo", "list"}, strings.Fields(tt.args)...)...)
		cmd.Env = append(slices.Clone(cmd.Env), "TERM="+tt.term, tt.env)
		screen := onTerminal(t, cmd)
		screen.end(t)
		out := screen.screen.String()
		if tt.red && !strings.Contains(out, red) || !tt.red && strings.Contains(out, "\x1b") || out == "" {
			t.Errorf("%+v: %q", tt, out)
		}
	}
	if r := h.must(t, 0, "repo", "list", "--color", "always"); !strings.Contains(r.out, red) {
		t.Errorf("on a pipe with --color always: %q", r.out)
	}
	screen := h.terminal(t, "version")
	screen.end(t)
	if out := screen.screen.String(); strings.Contains(out, "\x1b") || out == "" {
		t.Errorf("version: %q", out)
	}
}

// TestDoctorAsksTheTerminal: one that says nothing holds it up for 200 ms, and its
// answer does not end up on the screen.
func TestDoctorAsksTheTerminal(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	silent := h.terminal(t, "doctor")
	silent.shows(t, "\x1b[c")
	silent.end(t)
	if out := silent.screen.String(); !strings.Contains(out, "80x24, TERM xterm-256color, 256 colours, answers no query") {
		t.Errorf("a silent terminal: %q", out)
	}
	for _, call := range [][]string{{"version"}, {"status"}, {"repo", "list"}} {
		tt := h.terminal(t, call...)
		tt.end(t)
		if out := tt.screen.String(); strings.Contains(out, "\x1b") {
			t.Errorf("%v sends %q", call, out)
		}
	}
	// The answer is typed ahead, so that it is there whatever else the machine does.
	living := h.terminal(t, "doctor")
	living.press(t, "\x1b[?62;4c")
	living.end(t)
	if out := living.screen.String(); strings.Contains(out, "answers no query") || !strings.Contains(out, "256 colours") {
		t.Errorf("one that answers: %q", out)
	}
}

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
	suite.Full(t)
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
	suite.Full(t)
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
	suite.Full(t)
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
