package cli

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
)

// dashboard shows whatever there is to be shown of a state file: the daemon that
// answers on its socket, else an agent in this process, or with --read-only what
// the last agent has left. Where another process has the file open and does not
// answer, the person says what next.
func (r *run) dashboard(ctx context.Context, path string) error {
	for {
		err := r.shownOnce(ctx, path)
		var locked *state.LockedError
		if !errors.As(err, &locked) || ctx.Err() != nil {
			return err
		}
		if again, err := r.blocked(ctx, path, locked); !again {
			return err
		}
	}
}

// blocked asks the person what to do about a file that another process has open.
// Again says that it may be had now.
func (r *run) blocked(ctx context.Context, path string, locked *state.LockedError) (again bool, err error) {
	copied, drop, err := copyPlace()
	if err != nil {
		return false, err
	}
	defer drop()
	d := door(path, locked, copied)
	d.Works = !r.g.ReadOnly
	answer, err := tui.RunBlocked(ctx, d, r.tuiOptions())
	switch {
	case err != nil:
		return false, err
	case answer == tui.Enter:
		return true, nil
	case answer == tui.Copied:
		return false, r.fromDisk(ctx, copied, path)
	case ctx.Err() != nil:
		return false, lateEnd(ctx)
	}
	if locked.Socket != "" { // it was tried all the time
		return false, &silentError{locked}
	}
	return false, locked // said once more, where it stays to be read
}

// shownOnce tries the socket and then the file. A *state.LockedError says that
// neither is to be had.
func (r *run) shownOnce(ctx context.Context, path string) error {
	daemon, err := greet(ctx, path)
	switch {
	case err != nil:
		return err
	case daemon != nil:
		defer daemon.Close()
		return r.attach(ctx, daemon, path)
	case r.g.ReadOnly:
		return r.fromDisk(ctx, path, path)
	}
	return r.mending(ctx, func() error { return r.standalone(ctx, path) })
}

// greet says hello to the daemon of a state file; nil = none answers at once. Who
// starts a dashboard looks at a black screen until then.
func greet(ctx context.Context, path string) (*control.Client, error) {
	brief, cancel := context.WithTimeout(ctx, control.DialTimeout)
	defer cancel()
	daemon, err := control.Attach(brief, agent.SocketPath(path))
	switch {
	case err == nil:
		return daemon, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, nil
}

// attach shows the agent of a daemon.
func (r *run) attach(ctx context.Context, daemon *control.Client, path string) error {
	same, err := r.serves(ctx, daemon)
	if err != nil {
		return err
	}
	if !same {
		h := daemon.Hello()
		words := "limpet"
		for _, flag := range []struct{ name, value string }{{"provisioning-server-url", r.g.ProvisioningServerURL}, {"kubeconfig", r.g.Kubeconfig}} {
			if flag.value != "" {
				words += " --" + flag.name + " ''" // that of the call, the environment or the config file
			}
		}
		return usage(words+"    # shows that daemon; or give another --state FILE", "the daemon %d that holds %s works on another server: %s", h.PID, path, h.Server)
	}
	// Nothing but a screen is here. On more than one processor each message of it wakes
	// another for a moment, which finds nothing to do: at rest that is most of what it takes.
	if r.Getenv("GOMAXPROCS") == "" {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	return r.show(ctx, attached(ctx, daemon))
}

// show runs the dashboard alone, without an agent beside it.
func (r *run) show(ctx context.Context, src tui.Source) error {
	if err := tui.Run(ctx, r.guarded(src), r.tuiOptions()); err != nil {
		return err
	}
	return lateEnd(ctx)
}

// copyTimeout bounds the wait for a copy from a process that was slow to answer.
const copyTimeout = 30 * time.Second

// door is what the blocked screen asks for. A copy is written to the file copied
// by the process that has the file open, and by nobody else: the file of a living
// process is not to be copied from outside.
func door(path string, locked *state.LockedError, copied string) tui.Door {
	d := tui.Door{Holder: holder(locked)}
	at := agent.SocketPath(path)
	d.Look = func(ctx context.Context) (seen tui.Look) {
		if daemon, err := control.Attach(ctx, at); err == nil {
			daemon.Close()
			return tui.Look{Answers: true}
		}
		now, err := state.HeldBy(path)
		if err != nil {
			return seen // it is tried again
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
			_, err := writeAtomic(copied, func(w io.Writer) (int64, error) { return daemon.Backup(ctx, w) })
			return err
		}
	}
	return d
}

func holder(l *state.LockedError) tui.Holder {
	return tui.Holder{Path: l.Path, PID: l.PID, Version: l.Version, Since: l.Since, Socket: l.Socket}
}

// copyPlace is where a copy of the state file may lie while it is looked at. Drop
// removes it: it holds sealed secrets.
func copyPlace() (path string, drop func(), err error) {
	dir, err := os.MkdirTemp("", "limpet-copy-*")
	if err != nil {
		return "", nil, err
	}
	return filepath.Join(dir, stateName), func() { os.RemoveAll(dir) }, nil
}
