// Package e2e drives the built program as its users do: against a real API server, a
// real Git host and a real state file. What a test starts it stops.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

var binary struct {
	once sync.Once
	path string
	err  error
}

func TestMain(m *testing.M) {
	if state.RunProbe() || onSmallDisks() {
		return
	}
	dir, err := os.MkdirTemp("", "limpet-e2e-*")
	if err != nil {
		panic(err)
	}
	binary.path = filepath.Join(dir, "limpet")
	code := testenv.Main(m)
	os.RemoveAll(dir)
	os.Exit(code)
}

// limpetBinary builds the binary once for all tests.
func limpetBinary(t *testing.T) string {
	t.Helper()
	binary.once.Do(func() { binary.err = suite.Program(binary.path) })
	if binary.err != nil {
		t.Fatal(binary.err)
	}
	return binary.path
}

// home is an empty place for one site: its HOME and its state file.
type home struct {
	dir  string
	env  []string
	args []string // before the arguments of every call
	// program is another build of limpet, "" for the common one
	program string
}

func newHome(t *testing.T, args ...string) *home {
	t.Helper()
	dir := t.TempDir()
	h := &home{dir: dir, args: args}
	h.env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TERM=dumb", "LIMPET_TELEMETRY_LISTEN=127.0.0.1:0",
		"LIMPET_STATE=" + h.state()}
	return h
}

func (h *home) state() string { return filepath.Join(h.dir, "state", "limpet.db") }

// file writes a file that only its owner may read, below the home.
func (h *home) file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(h.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Exit codes, the contract with scripts.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitAuth        = 3
	exitPartial     = 4
	exitCancelled   = 5
	exitVersion     = 6
	exitJobFailed   = 7
	exitUnreachable = 8
	exitStore       = 9
	exitTimeout     = 10
)

// result is what one call of the binary left behind.
type result struct {
	code     int
	out, err string
}

// callTimeout bounds one call of the binary on a busy machine.
const callTimeout = 90 * time.Second

func (h *home) command(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path := h.program
	if path == "" {
		path = limpetBinary(t)
	}
	cmd := tied(exec.CommandContext(ctx, path, append(append([]string{}, h.args...), args...)...))
	cmd.Env, cmd.Dir = h.env, h.dir
	return cmd
}

// tied has a process end with the tests, also when these are killed or run out of
// time, so that no agent is left behind.
func tied(cmd *exec.Cmd) *exec.Cmd {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	return cmd
}

// run calls the binary and waits for its end.
func (h *home) run(t *testing.T, args ...string) result {
	t.Helper()
	return h.runWithInput(t, "", args...)
}

func (h *home) runWithInput(t *testing.T, in string, args ...string) result {
	t.Helper()
	r, err := h.call(t, in, args...)()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// aside calls the binary while the test goes on. The returned function waits for its end.
func (h *home) runInBackground(t *testing.T, args ...string) func() result {
	t.Helper()
	call, done := h.call(t, "", args...), make(chan struct{})
	var r result
	var err error
	go func() { defer close(done); r, err = call() }()
	t.Cleanup(func() { <-done })
	return func() result {
		t.Helper()
		if <-done; err != nil {
			t.Fatal(err)
		}
		return r
	}
}

// call prepares a call of the binary. What it returns makes the call; it may be
// called from any goroutine, so it leaves the failing of the test to others.
func (h *home) call(t *testing.T, in string, args ...string) func() (result, error) {
	t.Helper()
	limpetBinary(t) // its build must not eat the time of the call
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), callTimeout)
	cmd := h.command(ctx, t, args...)
	var out, errText bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &errText
	return func() (result, error) {
		defer cancel()
		err := cmd.Run()
		if ctx.Err() != nil {
			return result{}, fmt.Errorf("limpet %s did not end\nstdout: %s\nstderr: %s", strings.Join(args, " "), &out, &errText)
		}
		if err != nil && cmd.ProcessState == nil {
			return result{}, err
		}
		return result{cmd.ProcessState.ExitCode(), out.String(), errText.String()}, nil
	}
}

// must fails the test unless the call ends with code.
func (h *home) must(t *testing.T, code int, args ...string) result {
	t.Helper()
	r := h.run(t, args...)
	if r.code != code {
		t.Fatalf("limpet %s: exit %d, want %d\nstdout: %s\nstderr: %s", strings.Join(args, " "), r.code, code, r.out, r.err)
	}
	return r
}

// daemon is a running agent.
type daemon struct {
	cmd  *exec.Cmd
	log  *log
	done chan struct{} // closed when the process has ended
}

// log collects what a process writes, while it is read.
type log struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// daemon starts the agent and waits until it answers on its socket.
func (h *home) daemon(t *testing.T, args ...string) *daemon {
	t.Helper()
	d := &daemon{log: &log{}, done: make(chan struct{})}
	d.cmd = h.command(context.WithoutCancel(t.Context()), t, append([]string{"--daemon", "--log-format", "json", "--log-level", "debug"},
		args...)...)
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(d.done); d.cmd.Wait() }()
	t.Cleanup(func() {
		d.cmd.Process.Kill()
		<-d.done
		if t.Failed() {
			t.Logf("log of the daemon:\n%s", tail(d.log.String(), 4_000))
		}
	})
	until(t, "the daemon answers", func() bool {
		select {
		case <-d.done:
			t.Fatalf("the daemon ended: %s", d.log)
		default:
		}
		// A command that comes first opens the file itself and is in the way.
		if h.owner() != d.cmd.Process.Pid {
			return false
		}
		r := h.run(t, "status", "-o", "json")
		var rep struct {
			Daemon *struct{} `json:"daemon"`
			Live   *struct {
				API struct {
					Synced bool `json:"synced"`
				} `json:"api"`
			} `json:"live"`
		}
		return json.Unmarshal([]byte(r.out), &rep) == nil && rep.Daemon != nil && rep.Live.API.Synced
	})
	return d
}

// owner is the process that has the state file open, 0 when none has.
func (h *home) owner() int {
	var o struct {
		PID int `json:"pid"`
	}
	data, err := os.ReadFile(h.state() + ".owner")
	if err != nil || json.Unmarshal(data, &o) != nil {
		return 0
	}
	return o.PID
}

// stop sends SIGTERM and returns the exit code.
func (d *daemon) stop(t *testing.T) int {
	t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-d.done:
	case <-time.After(callTimeout):
		t.Fatal("the daemon does not end on SIGTERM")
	}
	return d.cmd.ProcessState.ExitCode()
}

// pid is the process id, as programs print it.
func (d *daemon) pid() string { return strconv.Itoa(d.cmd.Process.Pid) }

// kill ends the process as a power cut does.
func (d *daemon) kill() {
	d.cmd.Process.Kill()
	<-d.done
}

// until polls until ok and fails the test after callTimeout: ok looks at another process.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	within(t, callTimeout, what, ok)
}

// within is until with another limit.
func within(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not within %s: %s", limit, what)
		case <-tick.C:
		}
	}
}

// exitOf is the exit code of a process by the error of waiting for it.
func exitOf(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

func tail(s string, n int) string {
	if len(s) > n {
		return s[len(s)-n:]
	}
	return s
}

// history returns the records of the state file, newest first.
func (h *home) history(t *testing.T) []state.Record {
	t.Helper()
	var list struct {
		Items []state.Record `json:"items"`
	}
	r := h.must(t, 0, "history", "list", "-o", "json")
	if err := json.Unmarshal([]byte(r.out), &list); err != nil {
		t.Fatalf("%v: %s", err, r.out)
	}
	return list.Items
}

// object is what tests read of a dashboard or folder.
type object struct {
	Metadata struct {
		Name            string
		ResourceVersion string
		Annotations     map[string]string
	}
	Spec struct{ Title string }
}

// objects returns the objects of a kind that the API has.
func (h *home) objects(t *testing.T, namespace, kind string) []object {
	t.Helper()
	var list struct{ Items []object }
	r := h.must(t, 0, "get", kind, "-n", namespace, "-o", "json")
	if err := json.Unmarshal([]byte(r.out), &list); err != nil {
		t.Fatalf("%v: %s", err, r.out)
	}
	return list.Items
}

// boardsMatch fails unless the API holds exactly the dashboards of the branch for a
// Repository, each with title and checksum of its file, in the folder of its directory.
func boardsMatch(t *testing.T, h *home, namespace, repository string, repo *testenv.Repository) {
	t.Helper()
	blobs, folders, got := map[string]string{}, map[string]string{".": repository}, map[string]object{}
	for line := range strings.Lines(repo.Git(t, "ls-tree", "-r", "--format=%(objectname) %(path)", testenv.Branch, testenv.Directory)) {
		hash, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		blobs[file] = hash
	}
	for _, f := range h.objects(t, namespace, "folders") {
		if dir := strings.Trim(f.Metadata.Annotations["grafana.app/sourcePath"], "/"); dir != "" {
			folders[dir] = f.Metadata.Name
		}
	}
	for _, o := range h.objects(t, namespace, "dashboards") {
		got[o.Metadata.Annotations["grafana.app/sourcePath"]] = o
	}
	for _, d := range repo.Dashboards() {
		rel := strings.TrimPrefix(d.Path, testenv.Directory+"/")
		o, ok := got[rel]
		delete(got, rel)
		a := o.Metadata.Annotations
		found := [5]string{a["grafana.app/managedBy"], a["grafana.app/managerId"], a["grafana.app/sourceChecksum"], a["grafana.app/folder"],
			o.Spec.Title}
		want := [5]string{"repo", repository, blobs[d.Path], folders[path.Dir(rel)], d.Title}
		if !ok || found != want {
			t.Errorf("%s %s: there: %t, %q, want %q", namespace, rel, ok, found, want)
		}
	}
	for rel := range got {
		t.Errorf("%s %s is in the API but not in the branch", namespace, rel)
	}
}
