package cli_test

import (
	"context"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
)

// readable fails for what a screen reader must not be sent.
func readable(t *testing.T, out string) {
	t.Helper()
	for _, r := range strings.ReplaceAll(out, "\r\n", "\n") {
		if r < 0x20 && r != '\n' || r >= 0x7f && r < 0xa0 {
			t.Fatalf("sent %q in %q", r, tail(out, 300))
		}
	}
}

// TestAccessibleOnATerminal: a person hears a real pull and asks about it; SIGTERM
// leaves the one last line. A dumb terminal will do.
func TestAccessibleOnATerminal(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3, 20)
	tt := s.dumb(t, "--accessible")
	tt.shows(t, "attached to daemon")
	tt.shows(t, "repositories: 1")
	tt.press(t, "full pull boards\n")
	tt.shows(t, "Type yes to go on")
	tt.press(t, "\n\n")
	tt.press(t, "yes\n")
	tt.shows(t, "full pull of boards asked for")
	tt.shows(t, "for boards: success after")
	tt.press(t, "history\n")
	tt.shows(t, "History, newest first: ")
	tt.press(t, "job 1\n")
	tt.shows(t, "uid: ")
	tt.press(t, "agent\n")
	tt.shows(t, "of it ")
	tt.press(t, "suspend boards\n")
	tt.shows(t, "Suspend boards")
	tt.press(t, "yes\n")
	tt.shows(t, "repository boards: suspended on this agent")
	if err := syscall.Kill(tt.process.Pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := tt.end(t); err != nil {
		t.Errorf("end: %v", err)
	}
	out := tt.screen.String()
	readable(t, out)
	if lines := strings.Split(strings.TrimSpace(out), "\n"); !strings.HasPrefix(lines[len(lines)-1], "limpet: 0 working") {
		t.Errorf("the last line is %q", lines[len(lines)-1])
	}
	if r := s.must(t, 0, "repo", "show", "boards"); !strings.Contains(r.out, "\nsuspended") {
		t.Errorf("it is not suspended: %s", r.out)
	}
}

// TestAccessibleOnAPipe: lines come from a pipe, are answered in their order, and the
// end quits: attached, with the agent inside, and from what the last one has left.
func TestAccessibleOnAPipe(t *testing.T) {
	t.Parallel()
	for _, with := range []string{"a daemon", "the agent inside", "the file alone"} {
		t.Run(with, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			h.must(t, 0, "repo", "create", "boards", "--url", "https://127.0.0.1:1/boards.git", "--disabled")
			args := []string{"--accessible"}
			want := []string{"Repositories: 1", "1: repository boards", "url", "History", "No: nothing was done.", "limpet: 0 working"}
			switch with {
			case "a daemon":
				h.daemon(t)
				want[2] = "attached to daemon"
			case "the agent inside":
				want[2] = "standalone"
			default:
				h.daemon(t).stop(t)
				args = append(args, "--read-only")
				want[2], want[4] = "own db, read from disk", "no agent works on this file"
			}
			r := h.feed(t, "repositories\nhistory\nsuspend boards\nno\njobs\n", args...)
			if r.code != 0 {
				t.Fatalf("exit %d: %s", r.code, r.err)
			}
			readable(t, r.out+r.err)
			want[3] = "No job has ended here yet."
			for _, text := range want {
				if !strings.Contains(r.out, text) {
					t.Errorf("no %q in\n%s", text, r.out)
				}
			}
			if strings.Index(r.out, "Repositories: 1") > strings.Index(r.out, "No job has ended") {
				t.Errorf("the answers are out of order:\n%s", r.out)
			}
		})
	}
}

// TestAccessibleInterrupt: Ctrl-C on a terminal asks where jobs run in this process,
// and leaves at once where none do.
func TestAccessibleInterrupt(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	tt := h.dumb(t, "--accessible")
	tt.shows(t, "Nothing is set up yet")
	tt.press(t, "\x03")
	if err := tt.end(t); err != nil {
		t.Errorf("end: %v", err)
	}
	readable(t, strings.ReplaceAll(tt.screen.String(), "^C", ""))
	if r := h.must(t, 0, "store", "check"); !strings.Contains(r.out, " 0 problems") {
		t.Errorf("store check: %s", r.out)
	}
}

// TestAccessibleBlocked: a file that another process has open is told of in words, and
// a number decides.
func TestAccessibleBlocked(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.must(t, 0, "repo", "create", "boards", "--url", "https://127.0.0.1:1/boards.git", "--disabled")
	d := h.daemon(t)
	if err := d.cmd.Process.Signal(syscall.SIGSTOP); err != nil { // it holds the file and does not answer
		t.Fatal(err)
	}
	r := h.feed(t, "3\n", "--accessible")
	readable(t, r.out)
	for _, text := range []string{"The state file is in use by process", "1: wait until it is free", "3: quit", "Type a number."} {
		if !strings.Contains(r.out, text) {
			t.Errorf("no %q in\n%s", text, r.out)
		}
	}
	if r.code != 9 {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	cmd := h.command(context.WithoutCancel(t.Context()), t, "--accessible")
	in, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out := &log{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "it is told", func() bool { return strings.Contains(out.String(), "Type a number.") })
	if err := d.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	until(t, "the daemon that answers after all is shown", func() bool { return strings.Contains(out.String(), "attached to daemon") })
	if _, err := io.WriteString(write, "repositories\n"); err != nil {
		t.Fatal(err)
	}
	until(t, "the same input goes on", func() bool { return strings.Contains(out.String(), "1: repository boards") })
	write.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("end: %v", err)
	}
	readable(t, out.String())
}

// TestAccessibleCommands: what other commands print has names before values, no
// columns and no bar.
func TestAccessibleCommands(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.must(t, 0, "repo", "create", "boards", "--url", "https://127.0.0.1:1/boards.git", "--disabled")
	h.must(t, 0, "repo", "create", "other", "--url", "https://127.0.0.1:1/other.git", "--disabled")
	h.env = append(h.env, "LIMPET_ACCESSIBLE=1")
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"repo", "list"}, []string{"name: boards\n", "\n\nname: other\n"}},
		{[]string{"repo", "show", "boards"}, []string{"repository: default/boards\n"}},
		{[]string{"status"}, []string{"state file: ", "agent: not running"}},
		{[]string{"store", "info"}, []string{": "}},
		{[]string{"get", "repositories", "-o", "name"}, []string{"boards\n"}},
	} {
		r := h.must(t, 0, c.args...)
		readable(t, r.out)
		for _, text := range c.want {
			if !strings.Contains(r.out, text) {
				t.Errorf("%q: no %q in\n%s", c.args, text, r.out)
			}
		}
		if strings.Contains(r.out, "   ") {
			t.Errorf("%q: columns in\n%s", c.args, r.out)
		}
	}
	d := h.run(t, "doctor")
	readable(t, d.out)
	if strings.Contains(d.out, "   ") || !strings.Contains(d.out, "try: ") {
		t.Errorf("doctor:\n%s", d.out)
	}
	tt := h.terminal(t, "delete", "repository", "other")
	tt.shows(t, "1: go on\r\n2: change nothing")
	tt.press(t, "2\n")
	_ = tt.end(t)
	readable(t, tt.screen.String())
	h.must(t, 0, "get", "repository", "other")
	tt = h.terminal(t, "delete", "repository", "other")
	tt.shows(t, "2: change nothing")
	tt.press(t, "yes\n")
	if err := tt.end(t); err != nil {
		t.Errorf("end: %v", err)
	}
}
