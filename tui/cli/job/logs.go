package job

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

type logsCmd struct {
	Job    string `arg:"" help:"Name or UID of a job, live or finished."`
	Follow bool   `short:"f" help:"Go on until the job has ended, and end with its exit code, as job watch does."`
}

func (c logsCmd) Run(ctx context.Context, e *command.Env) error {
	ended := func(s *command.Session) error { return c.ended(ctx, e, s) }
	return withJob(ctx, e, command.Needs{API: true, Store: true}, c.Job, ended, func(s *command.Session, u *unstructured.Unstructured) error {
		switch {
		case s.Daemon == nil:
			return command.Errorf(command.ExitError, command.CommandFor(u.GetNamespace(), "job show "+u.GetName()),
				"no agent on this host runs job %q; its log is where it runs", c.Job)
		case c.Follow:
			f := newFollower(e, s, u, "none")
			f.showLog, f.logOnly = true, true
			return f.follow(ctx)
		}
		lines, err := jobLog(ctx, s, string(u.GetUID()))
		if err != nil {
			return err
		}
		if e.Flags.Data() {
			return e.PrintList(lines, command.Table{})
		}
		return printLogLines(e, lines)
	})
}

// ended prints the log of a finished job while the daemon has it, else its record.
func (c logsCmd) ended(ctx context.Context, e *command.Env, s *command.Session) error {
	rec, err := finishedJob(ctx, e, s, c.Job, true)
	if err != nil {
		return err
	}
	var lines []snapshot.Event
	if s.Daemon != nil && !e.Flags.Data() {
		if lines, err = jobLog(ctx, s, rec.UID); err != nil {
			return err
		}
	}
	if len(lines) > 0 {
		err = printLogLines(e, lines)
	} else {
		err = printFinished(e, rec)
	}
	if err != nil || !c.Follow {
		return err
	}
	return endError(rec)
}

// jobLog returns the log of a job that the daemon runs or has just ended.
func jobLog(ctx context.Context, s *command.Session, uid string) ([]snapshot.Event, error) {
	snap, err := s.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(snap.Jobs, func(j snapshot.Job) bool { return j.UID == uid }); i >= 0 {
		return snap.Jobs[i].Log, nil
	}
	return nil, nil
}

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
