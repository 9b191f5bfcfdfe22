package daemon

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/control"
	"limpet/tui"
	"limpet/tui/cli/command"
	"limpet/tui/screen"
)

// dashboard shows the daemon that answers on the socket of a state file, else an agent in this process, or
// with --read-only the saved snapshot. When another process holds the file and does not answer, the user
// decides.
func dashboard(ctx context.Context, e *command.Env, path string) error {
	for {
		err := shownOnce(ctx, e, path)
		var locked *state.LockedError
		if !errors.As(err, &locked) || ctx.Err() != nil {
			return err
		}
		if again, err := blocked(ctx, e, path, locked); !again {
			return err
		}
	}
}

// blocked asks what to do about a file that another process holds. Again reports that it may be free now.
func blocked(ctx context.Context, e *command.Env, path string, locked *state.LockedError) (again bool, err error) {
	dir, err := os.MkdirTemp("", "limpet-copy-*")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir) // the copy holds sealed secrets
	copied := filepath.Join(dir, command.StateName)
	d := blockedDoor(path, locked, copied)
	d.Works = !e.Flags.ReadOnly
	answer, err := tui.RunBlocked(ctx, d, tuiOptions(e))
	switch {
	case err != nil:
		return false, err
	case answer == tui.Enter:
		return true, nil
	case answer == tui.Copied:
		return false, fromDisk(ctx, e, copied, path)
	case ctx.Err() != nil:
		return false, stopError(ctx)
	}
	if locked.Socket != "" { // it was tried while the question was open
		return false, &command.UnresponsiveError{LockedError: locked}
	}
	return false, locked // printed once more, below the screen
}

// shownOnce tries the socket and then the file. A *state.LockedError means that neither is available.
func shownOnce(ctx context.Context, e *command.Env, path string) error {
	daemon, err := attachNow(ctx, path)
	switch {
	case err != nil:
		return err
	case daemon != nil:
		defer daemon.Close()
		return attach(ctx, e, daemon, path)
	case e.Flags.ReadOnly:
		return fromDisk(ctx, e, path, path)
	}
	return reopening(ctx, e, func() error { return standalone(ctx, e, path) })
}

// attachNow connects to the daemon of a state file; nil when none answers at once. The screen stays black until
// then.
func attachNow(ctx context.Context, path string) (*control.Client, error) {
	brief, cancel := context.WithTimeout(ctx, control.DialTimeout)
	defer cancel()
	daemon, err := control.Attach(brief, agent.SocketPath(path))
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return daemon, nil
}

// attach shows the agent of a daemon.
func attach(ctx context.Context, e *command.Env, daemon *control.Client, path string) error {
	same, err := e.Serves(ctx, daemon)
	if err != nil {
		return err
	}
	if !same {
		h, words := daemon.Hello(), "limpet"
		if e.Flags.ProvisioningServerURL != "" {
			words += " --provisioning-server-url ''" // that of the call, the environment or the config file
		}
		if e.Flags.Kubeconfig != "" {
			words += " --kubeconfig ''"
		}
		return command.Usagef(words+"    # shows that daemon; or give another --state FILE",
			"the daemon %d that holds %s works on another server: %s", h.PID, path, h.Server)
	}
	// This process only draws. With more than one processor each message wakes another one for a moment, which
	// is most of the cost at rest.
	if e.Getenv("GOMAXPROCS") == "" {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	return show(ctx, e, daemonSource{daemon.Watch(ctx)})
}

// show runs the dashboard without an agent in this process.
func show(ctx context.Context, e *command.Env, src screen.Source) error {
	if err := tui.Run(ctx, e.Guarded(src), tuiOptions(e)); err != nil {
		return err
	}
	return stopError(ctx)
}

// copyTimeout bounds the wait for a copy from a slow process.
const copyTimeout = 30 * time.Second

// blockedDoor returns what the blocked screen needs. Only the process that holds the file writes the copy: a
// live file must not be copied from outside.
func blockedDoor(path string, locked *state.LockedError, copied string) tui.Door {
	d := tui.Door{Holder: holder(locked)}
	at := agent.SocketPath(path)
	d.Look = func(ctx context.Context) (seen tui.Look) {
		if daemon, err := control.Attach(ctx, at); err == nil {
			daemon.Close()
			return tui.Look{Answers: true}
		}
		now, err := state.HeldBy(path)
		if err != nil {
			return seen // the next look retries
		}
		if seen.Free = now == nil; !seen.Free {
			h := holder(now)
			seen.Holder = &h
		}
		return seen
	}
	if locked.Socket != "" {
		d.Copy = func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, copyTimeout)
			defer cancel()
			daemon := control.To(at)
			defer daemon.Close()
			_, err := command.WriteAtomic(copied, func(w io.Writer) (int64, error) { return daemon.Backup(ctx, w) })
			return err
		}
	}
	return d
}

func holder(l *state.LockedError) tui.Holder {
	return tui.Holder{Path: l.Path, PID: l.PID, Version: l.Version, Since: l.Since, Socket: l.Socket}
}
