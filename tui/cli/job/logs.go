package job

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/cli/command"
	"limpet/tui/cli/history"
)

type logsCmd struct {
	Job    string `arg:"" help:"Name or UID of a job, live or finished."`
	Follow bool   `short:"f" help:"Go on until the job has ended, and end with its exit code, as job watch does."`
}

// Help is the long help of the command.
func (logsCmd) Help() string {
	return "An agent keeps the last 200 lines of a job while it runs. Of a finished one its record is printed, as by history show."
}

func (c logsCmd) Run(ctx context.Context, e *command.Env) error {
	return e.With(ctx, command.Needs{API: true, Desk: true}, func(s *command.Session) error {
		u, err := liveJob(ctx, s, e.Flags.ListNamespace(), c.Job)
		if err != nil {
			return err
		}
		if u == nil {
			rec, err := finishedJob(ctx, e, s, c.Job, true)
			if err != nil {
				return err
			}
			if err := e.PrintOne(rec, rec.UID, func(w io.Writer) { history.PrintRecord(e, w, rec) }); err != nil || !c.Follow {
				return err
			}
			return endError(rec)
		}
		if s.Daemon == nil {
			return command.Errorf(command.ExitError, command.CommandFor(u.GetNamespace(), "job show "+u.GetName()),
				"no agent on this host runs job %q; its log is where it runs", c.Job)
		}
		if c.Follow {
			f := newFollower(e, s, u, "none")
			f.showLog, f.logOnly = true, true
			return f.follow(ctx)
		}
		snap, err := s.Daemon.Snapshot(ctx)
		if err != nil {
			return err
		}
		var lines []snapshot.Event
		if i := slices.IndexFunc(snap.Jobs, func(j snapshot.Job) bool { return j.UID == string(u.GetUID()) }); i >= 0 {
			lines = snap.Jobs[i].Log
		}
		return printLog(e, lines)
	})
}

// printLog prints all lines of a log as one list.
func printLog(e *command.Env, lines []snapshot.Event) error {
	if e.Flags.Data() {
		return e.PrintList(lines, command.Table{})
	}
	return printLogLines(e, lines)
}

// printLogLines prints lines of a log that continues.
func printLogLines(e *command.Env, lines []snapshot.Event) error {
	for _, l := range lines {
		var err error
		if e.Flags.Data() {
			err = e.PrintStream(command.StreamLine{Type: "log", Log: &l})
		} else {
			_, err = fmt.Fprintf(e.Out, "%s %-5s %s\n", l.At.UTC().Format(time.RFC3339), l.Level, text.Clean(text.Redact(l.Text)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
