package e2e

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"limpet/sync/testenv"
	"limpet/sync/testenv/ptytest"
	"limpet/sync/testenv/suite"
)

// terminal is a terminal that never answers a query, as a serial console does, with the program on
// it.
type terminal struct{ *ptytest.Terminal }

const (
	altScreen  = "\x1b[?1049h"
	mainScreen = "\x1b[?1049l"
)

func (h *home) terminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	return h.on(t, "xterm-256color", args...)
}

func (h *home) on(t *testing.T, term string, args ...string) *terminal {
	t.Helper()
	cmd := h.command(context.WithoutCancel(t.Context()), t, args...)
	cmd.Env = append(slices.Clone(cmd.Env), "TERM="+term)
	return onTerminal(t, cmd)
}

func onTerminal(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	return &terminal{ptytest.Start(t, cmd, 100, 30, ptytest.Line{})}
}

// shows waits until the screen shows a text, or has shown it in one piece.
func (tt *terminal) shows(t *testing.T, what string) {
	t.Helper()
	tt.Await(t, "the screen shows "+what, callTimeout, func(screen string) bool {
		return strings.Contains(screen, what) || strings.Contains(tt.Raw(), what)
	})
}

// showsNow waits until a text is on the screen.
func (tt *terminal) showsNow(t *testing.T, what string) {
	t.Helper()
	tt.Await(t, "the screen shows "+what, callTimeout, func(screen string) bool { return strings.Contains(screen, what) })
}

// exit waits for the end of the program and returns its exit code.
func (tt *terminal) exit(t *testing.T) int {
	t.Helper()
	return exitOf(tt.End(t, callTimeout))
}

// readable fails the test for control characters, which a screen reader must not get.
func readable(t *testing.T, out string) {
	t.Helper()
	for _, r := range strings.ReplaceAll(out, "\r\n", "\n") {
		if r < 0x20 && r != '\n' || r >= 0x7f && r < 0xa0 {
			t.Fatalf("sent %q in %q", r, tail(out, 300))
		}
	}
}

// TestDashboardOnATerminal is the smoke test of the dashboard: the demo comes, answers
// keys, and gives the terminal back.
func TestDashboardOnATerminal(t *testing.T) {
	t.Parallel()
	tt := newHome(t).terminal(t, "demo")
	tt.shows(t, altScreen)
	tt.showsNow(t, "plant-east")
	tt.Press(t, "2")
	tt.showsNow(t, "plant-east-sync")
	// Twice, because a job of the demo may be running: then the first one asks.
	tt.Press(t, "\x03\x03")
	if code := tt.exit(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	if out := tt.Raw(); strings.LastIndex(out, mainScreen) < strings.LastIndex(out, altScreen) {
		t.Errorf("the terminal was not restored: %q", tail(out, 300))
	}
}

// TestDashboardRunsCommands: the palette runs the command line on the state file of the dashboard,
// with the agent inside and beside a daemon; Esc stops a command that follows; a question is
// answered on the screen; what needs the terminal is refused.
func TestDashboardRunsCommands(t *testing.T) {
	t.Parallel()
	for _, daemon := range []bool{false, true} {
		h := newHome(t)
		if daemon {
			h.daemon(t)
		}
		tt := h.terminal(t, map[bool][]string{false: {"--state", filepath.Join(h.dir, "own.db")}}[daemon]...)
		tt.showsNow(t, "Overview")
		run := func(line, want string) {
			t.Helper()
			tt.Press(t, ":")
			tt.showsNow(t, "type to search")
			tt.Press(t, line+"\r")
			tt.showsNow(t, want)
		}
		leave := func() {
			t.Helper()
			tt.Press(t, "\x1b")
			tt.showsNow(t, "Overview")
		}
		run("repo create boards --url https://127.0.0.1:1/x.git --disabled --title 'Two words'", "repository/boards")
		leave()
		run("repo show boards", "Two words")
		leave()
		run("logs -f", "esc stop")
		tt.Press(t, "\x1b")
		tt.showsNow(t, "esc close")
		leave()
		run("edit repository boards", "does not run in the dashboard")
		leave()
		run("delete repository boards", "[y/N]")
		tt.Press(t, "y")
		tt.showsNow(t, "is being deleted")
		leave()
		tt.Press(t, "D")
		tt.showsNow(t, "limpet doctor")
		tt.showsNow(t, "esc close")
		tt.Press(t, "\x03")
		if code := tt.exit(t); code != 0 {
			t.Errorf("exit %d", code)
		}
	}
}

// TestDashboardAttachesToTheDaemon: the dashboard of a daemon that ends waits for the next one.
func TestDashboardAttachesToTheDaemon(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	d := h.daemon(t)
	tt := h.terminal(t)
	tt.showsNow(t, "daemon")
	d.kill()
	tt.showsNow(t, "reconnecting")
	h.daemon(t)
	tt.Await(t, "the dashboard is attached again", callTimeout, func(s string) bool { return !strings.Contains(s, "reconnecting") })
	tt.Press(t, "q")
	if code := tt.exit(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// TestOtherCommandsLeaveTheTerminalAlone: commands ask the terminal nothing, and send
// no escape byte but those of a colour.
func TestOtherCommandsLeaveTheTerminalAlone(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	colours := regexp.MustCompile("\x1b\\[[0-9;]*m")
	for _, args := range [][]string{{"version"}, {"status"}, {"repo", "list"}, {"nonsense"}} {
		tt := h.terminal(t, args...)
		tt.exit(t)
		if out := colours.ReplaceAllString(tt.Raw(), ""); strings.ContainsRune(out, 0x1b) || out == "" {
			t.Errorf("%v sent %q", args, tt.Raw())
		}
	}
}

// TestDashboardRestoresTheTerminal: each signal gives the screen back and leaves a sound state
// file.
func TestDashboardRestoresTheTerminal(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			tt := h.terminal(t)
			tt.shows(t, altScreen)
			until(t, "the agent works", func() bool { return h.owner() == tt.Process.Pid && h.run(t, "status").code != exitStore })
			if err := tt.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if code := tt.exit(t); code != 0 {
				t.Errorf("exit %d", code)
			}
			if out := tt.Raw(); !strings.Contains(out, mainScreen) {
				t.Errorf("the terminal was not restored: %q", tail(out, 200))
			}
			h.must(t, 0, "store", "check")
		})
	}
}

// TestDashboardAndTheShell: Ctrl-Z gives the screen back to the shell and fg takes it
// again; the mouse is taken only where it was asked for.
func TestDashboardAndTheShell(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	const clicks = "\x1b[?1002h"
	for _, flag := range []string{"", "--mouse"} {
		h := newHome(t)
		d := h.daemon(t)
		cmd := h.command(context.WithoutCancel(t.Context()), t)
		cmd.Path, cmd.Args = "/bin/bash", []string{"bash", "--norc", "--noediting", "-i"}
		cmd.Env = append(slices.Clone(cmd.Env), "TERM=xterm-256color", "PS1=ready> ")
		tt := onTerminal(t, cmd)
		tt.showsNow(t, "ready> ")
		tt.Press(t, binary.path+" "+flag+"\n")
		tt.showsNow(t, "Overview")
		if got, want := strings.Contains(tt.Raw(), clicks), flag != ""; got != want {
			t.Errorf("%q: the mouse is taken: %t", flag, got)
		}
		tt.Press(t, "\x1a")
		tt.showsNow(t, "Stopped")
		tt.Press(t, "fg\n")
		tt.showsNow(t, "Overview")
		tt.Press(t, "q")
		tt.Await(t, "the shell is back", callTimeout, func(s string) bool {
			return strings.Contains(s, "ready> ") &&
				!strings.Contains(s, "Overview")
		})
		stoppedFromOutside(t, tt, flag)
		const late = "\x1b[?0u\x1b[?2026;2$y\x1b[?2027;0$y\x1b[?62;22c"
		tt.Press(t, binary.path+"\n")
		tt.showsNow(t, "Overview")
		tt.Press(t, "q")
		tt.Await(t, "the terminal is asked", callTimeout, func(string) bool { return strings.Contains(tt.Raw(), "\x1b[c") })
		tt.Press(t, late)
		tt.Await(t, "the shell is back", callTimeout, func(s string) bool { return strings.Contains(s, "ready> ") && !strings.Contains(s, "Overview") })
		tt.Press(t, "echo e''nd\n")
		tt.showsNow(t, "end")
		if raw := tt.Raw(); strings.Contains(raw[strings.LastIndex(raw, mainScreen):], "62;22") {
			t.Errorf("the answers of the terminal were typed into the shell: %q", tail(raw, 200))
		}
		tt.Press(t, "exit\n")
		tt.exit(t)
		d.kill()
	}
}

// stoppedFromOutside runs a dashboard in a shell: SIGTSTP gives the screen and the mouse back,
// SIGSTOP cannot, and after both of them fg takes the terminal whole.
func stoppedFromOutside(t *testing.T, tt *terminal, flag string) {
	t.Helper()
	start := len(tt.Raw())
	tt.Press(t, "clear; (echo pid=$BASHPID.; exec "+binary.path+" "+flag+")\n")
	tt.showsNow(t, "Overview")
	found := regexp.MustCompile(`pid=(\d+)\.`).FindStringSubmatch(tt.Raw()[start:])
	if found == nil {
		t.Fatal("no process in " + tt.Raw()[start:])
	}
	pid, _ := strconv.Atoi(found[1])
	for _, sig := range []syscall.Signal{syscall.SIGTSTP, syscall.SIGTSTP, syscall.SIGSTOP} {
		if err := syscall.Kill(-pid, sig); err != nil {
			t.Fatal(err)
		}
		tt.showsNow(t, "Stopped")
		raw := tt.Raw()
		for on, off := range map[string]string{altScreen: mainScreen, "\x1b[?1002h": "\x1b[?1002l"} {
			if sig == syscall.SIGTSTP && strings.LastIndex(raw, on) > strings.LastIndex(raw, off) {
				t.Errorf("%q: %q stays after %s: %q", flag, on, sig, tail(raw, 300))
			}
		}
		tt.Press(t, "clear; fg\n")
		tt.showsNow(t, "Overview")
	}
	tt.Press(t, "q") // one byte, without Enter: the terminal is raw
	tt.Await(t, "the shell is back", callTimeout, func(s string) bool {
		return strings.Contains(s, "ready> ") && !strings.Contains(s, "Overview")
	})
}

// TestTerminalThatCanOnlyPrint: where TERM says so, or nothing, commands print and ask as with
// --accessible, without an escape byte, and there is no dashboard. A pipe keeps its columns.
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
			{"delete repository boards", "\n", "[y/N] "},
			{"", "", "state file: "},
			{"demo --once", "", "demo"},
		} {
			tt := h.on(t, term, strings.Fields(c.call)...)
			tt.shows(t, c.want)
			if c.typed != "" {
				tt.Press(t, c.typed)
			}
			tt.exit(t)
			readable(t, strings.ReplaceAll(tt.Raw(), "\a", ""))
		}
	}
	h.env = append(h.env, "TERM=")
	if r := h.must(t, 0, "repo", "list"); !strings.HasPrefix(r.out, "NAME ") {
		t.Errorf("on a pipe without TERM: %q", r.out)
	}
}

// bytesBelow returns the content of each file below dir by its path.
func bytesBelow(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		out[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestReadOnlyDashboard: with --read-only a dashboard shows the last state, opens and sends
// nothing; beside an agent that agent.
func TestReadOnlyDashboard(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	if code := h.terminal(t, "--read-only").exit(t); code != exitStore {
		t.Errorf("without a file: exit %d", code)
	}
	h.must(t, exitUsage, "--read-only", "--daemon")
	d := h.daemon(t)
	h.must(t, 0, "repo", "create", "harbour", "--url", "https://git.invalid/harbour.git")
	until(t, "the daemon has seen it", func() bool { return strings.Contains(h.run(t, "status", "-o", "json").out, "harbour") })
	d.stop(t)
	before := bytesBelow(t, filepath.Dir(h.state()))
	tt := h.terminal(t, "--read-only")
	tt.showsNow(t, "harbour")
	tt.Press(t, "3")
	tt.Press(t, "p")
	if after := bytesBelow(t, filepath.Dir(h.state())); !maps.Equal(before, after) {
		t.Errorf("files changed: %q", slices.Sorted(maps.Keys(after)))
	}
	if pid := h.owner(); pid != 0 {
		t.Errorf("process %d has the file open", pid)
	}
	h.must(t, 0, "store", "check") // the dashboard is not in its way
	d = h.daemon(t)
	for _, tt := range []*terminal{tt, h.terminal(t, "--read-only")} { // the first one finds the daemon by itself
		tt.showsNow(t, "daemon "+d.pid())
		tt.Press(t, "3")
		tt.Press(t, "p")
		tt.Press(t, "q")
		if code := tt.exit(t); code != 0 {
			t.Errorf("exit %d", code)
		}
	}
	if list := h.must(t, 0, "job", "list", "-o", "name").out; strings.Contains(list, "harbour-pull") {
		t.Errorf("a job was made: %s", list)
	}
}

// TestDashboardFinishesFirst: a person who quits while a job runs in the process may
// have it finish first; the dashboard ends by itself when the job has ended.
func TestDashboardFinishesFirst(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	url, answer := hangingHost(t)
	h.must(t, 0, "repo", "create", "boards", "--url", url+"/boards.git")
	h.must(t, 0, "job", "create", "boards")
	tt := h.terminal(t)
	tt.showsNow(t, "1 working")
	tt.Press(t, "q")
	tt.showsNow(t, "Finish first")
	tt.Press(t, "\r") // decides nothing
	tt.Press(t, "f")
	tt.showsNow(t, "draining")
	answer()
	if code := tt.exit(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// TestSetUpOnATerminal: a fresh limpet asks for the server and the token, tries them, writes them
// after a yes, and works with them. A token that was typed is in a file of its own and nowhere
// else.
func TestSetUpOnATerminal(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	server := testenv.Real(t)
	h := newHome(t)
	config := filepath.Join(h.dir, ".config", "limpet")
	tt := h.terminal(t)
	tt.showsNow(t, "--kubeconfig")
	tt.Press(t, "\r")
	tt.showsNow(t, "Address of")
	tt.Press(t, "nonsense://x\r")
	tt.showsNow(t, "no address")
	tt.Press(t, server.URL+"\rwrong-token\r")
	tt.showsNow(t, "[y/N]")
	if _, err := os.Stat(config); !os.IsNotExist(err) {
		t.Fatalf("something was written before the person said so: %v", err)
	}
	tt.Press(t, "n\r\r"+server.Token+"\r")
	tt.Await(t, "the question again", callTimeout, func(screen string) bool { return strings.Count(screen, "[y/N]") == 2 })
	tt.Press(t, "y\r")
	tt.showsNow(t, "API ok")
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
	tt.Press(t, "q")
	if code := tt.exit(t); code != 0 || strings.Contains(tt.Raw(), server.Token) {
		t.Errorf("exit %d, or the token was on the screen", code)
	}
	h.must(t, 0, "config", "validate")
}

var pictures = flag.Bool("pictures", false, "write the pictures of the screens anew, into testdata/pictures")

// pictureLimit bounds a picture, in bytes: README loads them.
const pictureLimit = 40 << 10

var pictureDir = filepath.Join("..", "..", "..", "testdata", "pictures")

// steady replaces what differs from one run to the next, letter for letter.
func steady(h *home, host string) func(string) string {
	replace := map[string]string{
		regexp.QuoteMeta(h.dir) + `[^ …]*`:              "/var/lib/limpet/limpet.db",
		`limpet-demo-[0-9]+`:                            "limpet-demo-0000000000000000",
		`20[0-9]{2}-[01][0-9]-[0-3][0-9]`:               "2026-11-20",
		`[0-2][0-9]:[0-5][0-9]:[0-5][0-9]`:              "14:02:37",
		`\bpid +[0-9]+`:                                 "pid 4121",
		`\bdaemon [0-9]+`:                               "daemon 4121",
		`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`: "0d9c2f4e-1111-4222-8333-444455556666",
		`\b` + regexp.QuoteMeta(host) + `\b`:            "edge-07",
	}
	return func(line string) string {
		for pattern, text := range replace {
			line = regexp.MustCompile(pattern).ReplaceAllStringFunc(line, func(found string) string {
				return (text + strings.Repeat(" ", len(found)))[:len(found)]
			})
		}
		return line
	}
}

// TestPictures holds the pictures of README to XML of a small size. With -pictures it
// makes them: it walks through the demo as a person does.
func TestPictures(t *testing.T) {
	t.Parallel()
	if *pictures {
		takePictures(t)
	}
	files, err := filepath.Glob(filepath.Join(pictureDir, "*.svg"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no pictures: %v", err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil || len(data) > pictureLimit {
			t.Errorf("%s: %v, %d bytes", path, err, len(data))
		}
		d := xml.NewDecoder(bytes.NewReader(data))
		for err == nil {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func takePictures(t *testing.T) {
	t.Helper()
	h := newHome(t)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	cmd := h.command(context.WithoutCancel(t.Context()), t, "demo")
	cmd.Env = append(slices.Clone(cmd.Env), "TERM=xterm-256color")
	tt := ptytest.Start(t, cmd, 120, 32, ptytest.Line{})
	for _, step := range []struct {
		name, title, keys string
		w, h              int
		shows             []string
	}{
		{"overview", "limpet: jobs, repositories, the job under the cursor, events, agent", "", 120, 32,
			[]string{"plant-east", "network", "vessels", "healthy", "pull incr"}},
		{"history", "limpet: the history", "4", 100, 28, []string{"[4 History]", "success"}},
		{"job", "limpet: a job", "\x1b[F\r", 100, 28, []string{"Summary", "success"}},
	} {
		tt.Resize(t, step.w, step.h)
		if step.keys != "" {
			tt.Press(t, step.keys)
		}
		tt.Await(t, "the screen "+step.name, callTimeout, func(screen string) bool {
			return !slices.ContainsFunc(step.shows, func(w string) bool { return !strings.Contains(screen, w) })
		})
		svg, err := tt.SVG(step.title, steady(h, host))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(pictureDir, step.name+".svg"), svg, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
