package status

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"limpet/sync/control"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

// DrainCommand is 'limpet drain'.
type DrainCommand struct {
	Off  bool `help:"Claim jobs again." xor:"way"`
	Wait bool `short:"w" help:"Wait until all running jobs have ended." xor:"way"`
}

func (c DrainCommand) Run(ctx context.Context, e *command.Env) error {
	path, daemon, err := attach(ctx, e, drainedStart, "nothing to drain")
	if err != nil {
		return err
	}
	defer daemon.Close()
	out, err := daemon.Drain(ctx, !c.Off)
	if err != nil {
		return err
	}
	if c.Wait {
		if out, err = awaitDrained(ctx, e, path, daemon, out); err != nil {
			return err
		}
	}
	return e.PrintOne(out, "", func(w io.Writer) {
		if out.Since.IsZero() {
			fmt.Fprintln(w, "the agent claims jobs again")
		} else {
			fmt.Fprintln(w, drainText(e, snapshot.Agent{Draining: out.Since, Busy: out.Busy}, time.Now()))
		}
	})
}

// attach connects to the agent of the state file. Where none runs the error begins with nothing, and its hint is next.
func attach(ctx context.Context, e *command.Env, next, nothing string) (path string, daemon *control.Client, err error) {
	if path, err = e.StatePath(); err != nil {
		return "", nil, err
	}
	daemon, err = command.Attach(ctx, path)
	if errors.Is(err, control.ErrNoDaemon) && !errors.As(err, new(*command.UnresponsiveError)) {
		err = command.Errorf(command.ExitError, next, "%s: no agent holds %s", nothing, path)
	}
	return path, daemon, err
}

// awaitDrained waits until the agent is idle.
func awaitDrained(ctx context.Context, e *command.Env, path string, daemon *control.Client, out control.Drained) (control.Drained, error) {
	told, since, snapshots := -1, out.Since, daemon.Watch(ctx)
	for out.Busy > 0 {
		if out.Busy != told {
			told = out.Busy
			e.Notef("%s draining: %s to go", command.Timestamp(), text.Plural(out.Busy, "job"))
		}
		snap, err := snapshots.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return out, command.Errorf(command.WaitCode(ctx), "limpet drain --off    # claims jobs again",
				"stopped waiting; the agent goes on draining")
		case errors.Is(err, control.ErrNoDaemon):
			// An agent that stops closes its socket before it lets go of the file.
			if hangs := command.AwaitStop(ctx, path, daemon.Hello().PID); hangs != nil {
				return out, hangs
			}
			return out, command.Errorf(command.ExitUnreachable, drainedStart, "the agent has ended before it was drained: %w", err)
		case err != nil:
			return out, err
		case snap.Agent.PID != daemon.Hello().PID:
			return out, command.Errorf(command.ExitUnreachable, drainedStart,
				"the agent has ended before it was drained, and another one claims jobs")
		}
		switch now := snap.Agent; {
		case !now.Draining.IsZero():
			out = control.Drained{Since: now.Draining, Busy: now.Busy}
		case !snap.At.Before(since): // else the snapshot is older than the drain
			return out, command.Errorf(command.ExitCancelled, "limpet drain --wait", "the drain was ended: the agent claims jobs again")
		}
	}
	return out, nil
}

// drainedStart is the command that starts a drained agent.
const drainedStart = "limpet --daemon --drain    # starts one that claims nothing"

// drainText describes a drained agent.
func drainText(e *command.Env, a snapshot.Agent, now time.Time) string {
	txt := "drained for " + text.Age(now.Sub(a.Draining))
	if a.Busy > 0 {
		txt = fmt.Sprintf("draining for %s, %s to go", text.Age(now.Sub(a.Draining)), text.Plural(a.Busy, "job"))
	}
	return txt + ": it claims nothing new; end it with: " + e.CommandFor("", "drain --off")
}
