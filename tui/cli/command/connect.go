package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/control"
)

// UnresponsiveError says that an agent holds the state file and does not answer on its
// socket: it hangs, is stopped, or has only just started.
type UnresponsiveError struct{ *state.LockedError }

func (e *UnresponsiveError) Error() string {
	return fmt.Sprintf("the agent does not answer: process %d holds the state file %s since %s", e.PID, e.Path, e.Since.UTC().Format(time.RFC3339))
}

func (e *UnresponsiveError) Unwrap() []error { return []error{e.LockedError, control.ErrNoDaemon} }

// startsWithin is how long an agent that starts may hold the file without its socket
// before that is an error: its first look at a large file on a slow disk.
const startsWithin = 5 * time.Second

// Attach says hello to the daemon of a state file, and waits for one that has only just
// started. It returns socket.ErrNoDaemon where there is none, and a *silentError, which
// is one too, where one does not answer.
func Attach(ctx context.Context, path string) (*control.Client, error) {
	began := time.Now()
	for {
		daemon, err := control.Attach(ctx, agent.SocketPath(path))
		err = AsUnresponsive(path, err)
		var silent *UnresponsiveError
		if !errors.As(err, &silent) || !silent.starts() || time.Since(began) > startsWithin || ctx.Err() != nil {
			return daemon, err
		}
		Sleep(ctx, hailPause)
	}
}

// starts says that the agent may have no socket yet.
func (e *UnresponsiveError) starts() bool {
	age := time.Since(e.Since) // below zero where the clock was set back
	return age >= 0 && age < startsWithin && !isStopped(e.PID)
}

// hailPause lies between two tries to reach an agent that starts.
const hailPause = 50 * time.Millisecond

// AsUnresponsive turns a socket.ErrNoDaemon into a *silentError where a process with a
// socket holds the file all the same.
func AsUnresponsive(path string, err error) error {
	if !errors.Is(err, control.ErrNoDaemon) || errors.As(err, new(*UnresponsiveError)) {
		return err
	}
	if holder, unknown := state.HeldBy(path); unknown == nil && holder != nil && holder.Socket != "" {
		return &UnresponsiveError{holder}
	}
	return err
}

// endsWithin is how long an agent that ends may hold the file without its socket.
const endsWithin = 5 * time.Second

// StaysUnresponsive returns a *silentError for the agent of that process, which has stopped to
// answer, unless it ends within the time that an end takes.
func StaysUnresponsive(ctx context.Context, path string, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, endsWithin)
	defer cancel()
	for {
		var silent *UnresponsiveError
		switch held := AsUnresponsive(path, control.ErrNoDaemon); {
		case !errors.As(held, &silent) || silent.PID != pid:
			return nil
		case isStopped(pid) || ctx.Err() != nil:
			return silent
		}
		Sleep(ctx, RetryPause)
	}
}

// freshFor is how long an agent may take to answer after its start without anything
// being wrong with it.
const freshFor = time.Minute

// UnresponsiveHint is what to do about an agent that does not answer.
func UnresponsiveHint(e *UnresponsiveError) string {
	switch {
	case isStopped(e.PID):
		return fmt.Sprintf("kill -CONT %d    # it is stopped, and goes on with what it has claimed", e.PID)
	case time.Since(e.Since) < freshFor:
		return "limpet --state " + ShellWord(e.Path) + " status    # in a moment: it has only just started"
	}
	return fmt.Sprintf("kill %d    # or kill -9; then start it again: what it has claimed is kept", e.PID)
}

// isStopped says that a process does nothing until it gets SIGCONT, where the system
// tells.
func isStopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	state := bytes.TrimSpace(stat[bytes.LastIndexByte(stat, ')')+1:]) // behind the name, which may be any
	return err == nil && len(state) > 0 && bytes.IndexByte([]byte("Tt"), state[0]) >= 0
}
