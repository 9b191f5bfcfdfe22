package e2e

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"limpet/sync/testenv/suite"

	"limpet/sync/testenv"
	"limpet/sync/testenv/ptytest"
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
	suite.Full(t)
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
	suite.Full(t)
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
	suite.Full(t)
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
	suite.Full(t)
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
	suite.Full(t)
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

// TestSetUpOnATerminal: a fresh limpet asks for the server and the token, tries
// them, writes them, and works with them. A token that was typed is in a file of its
// own and nowhere else.
func TestSetUpOnATerminal(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	server := testenv.Real(t)
	h := newHome(t)
	config := filepath.Join(h.dir, ".config", "limpet")
	limpetBinary(t)
	// The certificate of the test is trusted by name only; a loopback server needs
	// no more.
	tt := h.show(t, 100, 30, ptytest.Line{})
	shows := func(what string) {
		t.Helper()
		tt.Await(t, what, callTimeout, func(s string) bool { return strings.Contains(s, what) })
	}
	shows("asks three questions")
	tt.Press(t, "\r")
	shows("Where is the server?")
	tt.Press(t, "nonsense://x\r")
	shows("no address of a server")
	tt.Press(t, "\x15"+server.URL+"\r")
	shows("The path of a file with the token")
	tt.Press(t, "wrong-token\r")
	shows("Esc leads back")
	if _, err := os.Stat(config); !os.IsNotExist(err) {
		t.Fatalf("something was written before the person said so: %v", err)
	}
	tt.Press(t, "\x1b")
	shows("The path of a file with the token")
	tt.Press(t, "\x15"+server.Token+"\r")
	shows("y writes")
	tt.Press(t, "y")
	shows("API ok")
	token, err := os.ReadFile(filepath.Join(config, "token"))
	if err != nil || strings.TrimSpace(string(token)) != server.Token {
		t.Errorf("token file: %q, %v", token, err)
	}
	written, err := os.ReadFile(filepath.Join(config, "config.yaml"))
	if err != nil || strings.Contains(string(written), server.Token) || !strings.Contains(string(written), server.URL) {
		t.Errorf("config file: %s, %v", written, err)
	}
	for _, name := range []string{"token", "config.yaml"} {
		if info, err := os.Stat(filepath.Join(config, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if strings.Contains(tt.Raw(), server.Token) {
		t.Error("the token was on the screen")
	}
	tt.Press(t, "q")
	if err := tt.End(t, callTimeout); err != nil {
		t.Errorf("end: %v", err)
	}
	if out := h.must(t, 0, "config", "validate").out; !strings.Contains(out, "config.yaml") {
		t.Errorf("config validate: %s", out)
	}
}

// TestSetUpAccessible: the same three questions in words, on a terminal that can only
// print and on a pipe that brings all answers at once. Nothing is written before the
// person says so, and a token itself is never taken.
func TestSetUpAccessible(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	server := testenv.Real(t)
	limpetBinary(t)
	fresh := func(t *testing.T) (h *home, config, good, bad string) {
		h = newHome(t)
		return h, filepath.Join(h.dir, ".config", "limpet", "config.yaml"), h.file(t, "token", server.Token+"\n"), h.file(t, "wrong", "wrong-token\n")
	}
	written := func(t *testing.T, h *home, config, token string) {
		t.Helper()
		text, err := os.ReadFile(config)
		if err != nil || !strings.Contains(string(text), server.URL) || !strings.Contains(string(text), token) || strings.Contains(string(text), server.Token) {
			t.Errorf("config file: %s, %v", text, err)
		}
		if info, err := os.Stat(config); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("config file: %v, %v", info, err)
		}
		h.must(t, 0, "config", "validate")
	}
	t.Run("terminal", func(t *testing.T) {
		t.Parallel()
		h, config, good, bad := fresh(t)
		tt := h.dumb(t, "--accessible")
		says := func(typed string, texts ...string) {
			t.Helper()
			from := len(tt.screen.String())
			tt.press(t, typed)
			for _, text := range texts {
				until(t, "it says "+text, func() bool { return strings.Contains(tt.screen.String()[from:], text) })
			}
		}
		says("", "Nothing is set up yet", "The word setup asks three questions")
		says("setup\n", "1 of 3. Where is the server?")
		says("\nnonsense://x\n", "no address of a server", "1 of 3.")
		says(server.URL+"\n", "2 of 3. Who are you?")
		says("glsa_example\n", "a token that is typed would be read out", "2 of 3.")
		says(bad+"\n", "3 of 3. Trying "+server.URL, "It does not work: ", "2: write them all the same", "Type a number, or leave.")
		says("yes\n1\n", "2 of 3.")
		says(good+"\n", "3 of 3. Trying", "It works: ", "1: back to the answers")
		if _, err := os.Stat(config); !os.IsNotExist(err) {
			t.Fatalf("something was written before the person said so: %v", err)
		}
		says("2\n", "Writing "+config, "API: "+server.URL, "the API was read: what is listed is live")
		written(t, h, config, good)
		says("quit\n", "limpet: 0 working")
		if err := tt.end(t); err != nil {
			t.Errorf("end: %v", err)
		}
		readable(t, tt.screen.String())
		if strings.Contains(tt.screen.String(), server.Token) {
			t.Error("the token was read out")
		}
	})
	t.Run("pipe", func(t *testing.T) {
		t.Parallel()
		h, config, good, _ := fresh(t)
		r := h.feed(t, "setup\n"+server.URL+"\n"+good+"\n2\nstatus\nquit\n", "--accessible")
		if r.code != 0 {
			t.Fatalf("exit %d: %s", r.code, r.err)
		}
		readable(t, r.out+r.err)
		for _, text := range []string{"1 of 3.", "2 of 3.", "3 of 3. Trying", "It works: ", "Writing " + config, "API: " + server.URL, "limpet: 0 working"} {
			if !strings.Contains(r.out, text) {
				t.Errorf("no %q in\n%s", text, r.out)
			}
		}
		written(t, h, config, good)
	})
	t.Run("an end in the middle", func(t *testing.T) {
		t.Parallel()
		h, config, good, _ := fresh(t)
		for _, answers := range []string{"setup\n", "setup\n" + server.URL + "\n", "setup\n" + server.URL + "\n" + good + "\n", "setup\n" + server.URL + "\nleave\n"} {
			if r := h.feed(t, answers, "--accessible"); r.code != 0 {
				t.Errorf("%q: exit %d: %s", answers, r.code, r.err)
			}
			if _, err := os.Stat(filepath.Dir(config)); !os.IsNotExist(err) {
				t.Fatalf("%q: something was written: %v", answers, err)
			}
		}
	})
}
