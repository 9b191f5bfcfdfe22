package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"limpet/sync/control"
	"limpet/sync/snapshot"
	"limpet/sync/text"
)

type drainCmd struct {
	Off  bool `help:"Claim jobs again." xor:"way"`
	Wait bool `short:"w" help:"Wait until nothing of the agent runs any more." xor:"way"`
}

func (c drainCmd) Run(ctx context.Context, r *run) error {
	path, err := r.statePath()
	if err != nil {
		return err
	}
	daemon, err := hail(ctx, path)
	if errors.Is(err, control.ErrNoDaemon) && !errors.As(err, new(*silentError)) {
		return fail(ExitError, drainedStart, "nothing to drain: no agent holds %s", path)
	}
	if err != nil {
		return err
	}
	defer daemon.Close()
	out, err := daemon.Drain(ctx, !c.Off)
	if err != nil {
		return err
	}
	if c.Wait {
		if out, err = r.drained(ctx, path, daemon, out); err != nil {
			return err
		}
	}
	return r.printOne(out, "", func(w io.Writer) {
		switch {
		case out.Since.IsZero():
			fmt.Fprintln(w, "the agent claims jobs again")
		case out.Busy == 0:
			fmt.Fprintln(w, "drained: nothing runs, nothing new is claimed; "+r.drainEnd())
		default:
			fmt.Fprintf(w, "draining: %s to go, nothing new is claimed; %s\n", text.Plural(out.Busy, "job"), r.drainEnd())
		}
	})
}

// drained waits until the agent has nothing left to do.
func (r *run) drained(ctx context.Context, path string, daemon *control.Client, out control.Drained) (control.Drained, error) {
	told, since, pictures := -1, out.Since, daemon.Watch(ctx)
	for out.Busy > 0 {
		if out.Busy != told {
			told = out.Busy
			r.note("%s draining: %s to go", stamp(), text.Plural(out.Busy, "job"))
		}
		snap, err := pictures.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return out, fail(waitCode(ctx), "limpet drain --off    # claims jobs again", "stopped waiting; the agent goes on draining")
		case errors.Is(err, control.ErrNoDaemon):
			if hangs := stays(ctx, path, daemon.Hello().PID); hangs != nil {
				return out, hangs
			}
			return out, fail(ExitUnreachable, drainedStart, "the agent has ended before it was drained: %w", err)
		case err != nil:
			return out, err
		case snap.Agent.PID != daemon.Hello().PID:
			return out, fail(ExitUnreachable, drainedStart, "the agent has ended before it was drained, and another one claims jobs")
		}
		switch now := snap.Agent; {
		case !now.Draining.IsZero():
			out = control.Drained{Since: now.Draining, Busy: now.Busy}
		case !snap.At.Before(since): // else it is of before the drain
			return out, fail(ExitCancelled, "limpet drain --wait", "somebody has the agent claim jobs again")
		}
	}
	return out, nil
}

// drainedStart is the call of an agent that claims nothing.
const drainedStart = "limpet --daemon --drain    # starts one that claims nothing"

// drainText tells a person of an agent that claims nothing new.
func drainText(r *run, a snapshot.Agent, now time.Time) string {
	if a.Busy == 0 {
		return fmt.Sprintf("drained for %s: it claims nothing; %s", text.Age(now.Sub(a.Draining)), r.drainEnd())
	}
	return fmt.Sprintf("draining for %s: %s to go, it claims nothing new; %s", text.Age(now.Sub(a.Draining)), text.Plural(a.Busy, "job"), r.drainEnd())
}

// drainEnd says how an agent is made to claim jobs again.
func (r *run) drainEnd() string { return "end it with: " + r.next("", "drain --off") }
