package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/control"
	"limpet/sync/repos"
	"limpet/sync/text"
)

// UnresponsiveError reports that an agent holds the state file and does not answer on its socket:
// it hangs, is stopped, or is starting.
type UnresponsiveError struct{ *state.LockedError }

func (e *UnresponsiveError) Error() string {
	return fmt.Sprintf("the agent does not answer: process %d holds the state file %s since %s", e.PID, e.Path,
		e.Since.UTC().Format(time.RFC3339))
}

func (e *UnresponsiveError) Unwrap() []error { return []error{e.LockedError, control.ErrNoDaemon} }

// startTimeout is how long a starting agent may hold the file without a socket: it may have to
// check a large file on a slow disk.
const startTimeout = 5 * time.Second

// Attach connects to the daemon of a state file and waits for one that is starting. The error is
// control.ErrNoDaemon where there is none, and an *UnresponsiveError, which is one too, where it
// does not answer.
func Attach(ctx context.Context, path string) (*control.Client, error) {
	for began := time.Now(); ; Sleep(ctx, 50*time.Millisecond) {
		daemon, err := control.Attach(ctx, agent.SocketPath(path))
		err = AsUnresponsive(path, err)
		silent, ok := errors.AsType[*UnresponsiveError](err)
		if !ok || !silent.starts() || time.Since(began) > startTimeout || ctx.Err() != nil {
			return daemon, err
		}
	}
}

// starts reports whether the agent may not have its socket yet.
func (e *UnresponsiveError) starts() bool {
	age := time.Since(e.Since) // negative when the clock was set back
	return age >= 0 && age < startTimeout && !isStopped(e.PID)
}

// AsUnresponsive turns a control.ErrNoDaemon into an *UnresponsiveError when a process with a
// socket holds the file.
func AsUnresponsive(path string, err error) error {
	if !errors.Is(err, control.ErrNoDaemon) || is[*UnresponsiveError](err) {
		return err
	}
	if holder, unknown := state.HeldBy(path); unknown == nil && holder != nil && holder.Socket != "" {
		return &UnresponsiveError{holder}
	}
	return err
}

// stopTimeout is how long a stopping agent may hold the file without its socket.
const stopTimeout = 5 * time.Second

// AwaitStop waits until the process pid, whose socket no longer answers, has let go of the state
// file. It returns an *UnresponsiveError when that process does not exit in time.
func AwaitStop(ctx context.Context, path string, pid int) error {
	for began := time.Now(); ; Sleep(ctx, 50*time.Millisecond) {
		silent, ok := errors.AsType[*UnresponsiveError](AsUnresponsive(path, control.ErrNoDaemon))
		switch {
		case !ok || silent.PID != pid:
			return nil
		case isStopped(pid) || time.Since(began) > stopTimeout || ctx.Err() != nil:
			return silent
		}
	}
}

// UnresponsiveHint returns what to do about an agent that does not answer.
func UnresponsiveHint(e *UnresponsiveError) string {
	switch {
	case isStopped(e.PID):
		return fmt.Sprintf("kill -CONT %d    # it is stopped, and goes on with what it has claimed", e.PID)
	case time.Since(e.Since) < time.Minute:
		return "limpet --state " + text.ShellWord(e.Path) + " status    # in a moment: it has only just started"
	}
	return fmt.Sprintf("kill %d    # or kill -9; then start it again: what it has claimed is kept", e.PID)
}

// isStopped reports whether a process is stopped by a signal, where the system says so.
func isStopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	state := bytes.TrimSpace(stat[bytes.LastIndexByte(stat, ')')+1:]) // behind the name, which may hold any character
	return err == nil && len(state) > 0 && bytes.IndexByte([]byte("Tt"), state[0]) >= 0
}

// WithTester calls f with a session and a tester: the daemon that works on the same API, which has
// the credentials, else this process. With store the process works with the state file and its
// mirrors.
func (e *Env) WithTester(ctx context.Context, store bool, f func(*Session, control.Tester) error) error {
	return e.With(ctx, Needs{Store: store || e.Embedded()}, func(s *Session) error {
		if s.Daemon != nil {
			same, err := e.Serves(ctx, s.Daemon)
			if same {
				s.Client, err = e.Connect(ctx, s, "")
			}
			if err != nil {
				return err
			}
			if same {
				return f(s, s.Daemon)
			}
		}
		path, err := e.StatePath()
		if err != nil {
			return err
		}
		cfg, err := e.AgentConfig(s.File, path, e.Log)
		if err != nil {
			return err
		}
		mirrors := ""
		if store && s.File != nil {
			mirrors = agent.MirrorsPath(path)
		}
		tester, err := agent.OpenTester(ctx, cfg, mirrors)
		if err != nil {
			return err
		}
		return errors.Join(f(&Session{Client: tester.Client()}, tester), tester.Close())
	})
}

// PrintResults prints the results of a test, and fails when it failed. again is the command to run
// after a correction.
func (e *Env) PrintResults(results repos.TestResults, name, again string) error {
	t := Table{Columns: []string{"STEP", "RESULT", "DETAIL"}}
	for _, step := range results.Steps {
		t.Add("", name, step.Name, step.Result, step.Detail)
	}
	err := e.PrintOne(results, name, func(w io.Writer) { t.Write(w, false, !e.Flags.NoHeaders) })
	if err != nil || results.Success {
		return err
	}
	code, why := ExitError, http.StatusText(results.Code)
	if results.Code == http.StatusUnauthorized || results.Code == http.StatusForbidden {
		code = ExitAuth
	}
	if len(results.Errors) > 0 {
		why = results.Errors[0].Detail
	}
	return Errorf(code, again+"    # after correcting it", "%s failed the test: %s", name, why)
}
