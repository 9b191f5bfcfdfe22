package job

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"limpet/tui/cli/command"
	"limpet/tui/cli/history"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/snapshot"
	"limpet/sync/text"
)

type logsCmd struct {
	Job    string `arg:"" help:"Name or UID of a job, live or finished."`
	Follow bool   `short:"f" help:"Go on until the job has ended, and end with its exit code, as job watch does."`
}

// Help is the long help of the command.
func (logsCmd) Help() string {
	return "An agent keeps the last 200 lines of a job while it runs. Of a finished one there is what its record says: attempts, errors, warnings, end."
}

func (c logsCmd) Run(ctx context.Context, e *command.Env) error {
	s, err := e.Open(ctx, command.Needs{API: true, Desk: true})
	if err != nil {
		return err
	}
	defer s.Close()
	u, err := liveJob(ctx, s, e.Flags.ListNamespace(), c.Job)
	if err != nil {
		return err
	}
	if u == nil {
		return c.finished(ctx, e, s)
	}
	if err := history.Unambiguous(ctx, e, s, u, c.Job); err != nil {
		return err
	}
	if s.Daemon == nil {
		return command.Errorf(command.ExitError, command.CommandFor(u.GetNamespace(), "job show "+u.GetName()),
			"no agent on this host runs job %q; its log is where it runs", c.Job)
	}
	if c.Follow {
		return followLog(ctx, e, s, u)
	}
	snap, err := s.Daemon.Snapshot(ctx)
	if err != nil {
		return err
	}
	return printLog(e, (&jobLog{uid: string(u.GetUID())}).fresh(snap))
}

// followLog prints the log of a job to its end and returns the error for the exit code of the job.
func followLog(ctx context.Context, e *command.Env, s *command.Session, u *unstructured.Unstructured) error {
	f := newFollower(e, s, u, "none")
	f.log, f.logOnly = &jobLog{uid: string(u.GetUID())}, true
	return f.follow(ctx)
}

// finished prints what the record of a job has instead of its log.
func (c logsCmd) finished(ctx context.Context, e *command.Env, s *command.Session) error {
	rec, err := history.FindRecord(ctx, s.Store, e.Flags.ListNamespace(), c.Job)
	if errors.Is(err, history.ErrNoRecord) {
		return command.Errorf(command.ExitError, "limpet job list; limpet history list", "no job %q, neither live nor finished", c.Job)
	}
	if err != nil {
		return err
	}
	if err := printLog(e, recordLog(rec)); err != nil || !c.Follow {
		return err
	}
	return endingOf(rec).Err(recordHint(rec.UID))
}

// recordLog returns the events of a record as log lines in the order of their time.
func recordLog(rec state.Record) []snapshot.Event {
	out := []snapshot.Event{}
	add := func(at time.Time, level, format string, args ...any) {
		out = append(out, snapshot.Event{At: at, Level: level, Job: rec.Name, Repo: rec.Repository, Text: fmt.Sprintf(format, args...)})
	}
	for _, a := range rec.Attempts {
		if !a.Started.IsZero() {
			add(a.Started, "info", "attempt %d by %s begins", a.N, text.OrDash(a.Agent))
		}
		if !a.Finished.IsZero() {
			add(a.Finished, "info", "attempt %d ended: %s: %s", a.N, text.OrDash(a.State), text.OrDash(a.Message))
		}
	}
	var st api.JobStatus
	_ = json.Unmarshal(rec.Status, &st) // a record without one has less to tell
	for _, txt := range st.Warnings {
		add(rec.Finished, "warn", "%s", txt)
	}
	for _, txt := range st.Errors {
		add(rec.Finished, "error", "%s", txt)
	}
	level := "error"
	switch rec.State {
	case api.StateSuccess:
		level = "info"
	case api.StateWarning, history.StateCancelled:
		level = "warn"
	}
	add(rec.Finished, level, "%s", cmp.Or(rec.Message, rec.State))
	sort.SliceStable(out, func(i, j int) bool { return out[i].At.Before(out[j].At) })
	return out
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
		if e.Flags.Data() {
			if err := e.PrintStream(command.StreamLine{Type: "log", Log: &l}); err != nil {
				return err
			}
			continue
		}
		if _, err := fmt.Fprintf(e.Out, "%s %-5s %s\n", l.At.UTC().Format(time.RFC3339), l.Level,
			text.Clean(text.Redact(l.Text))); err != nil {
			return err
		}
	}
	return nil
}

// jobLog is the position in the log of a job.
type jobLog struct {
	uid  string
	last snapshot.Event
}

// fresh returns the lines of a snapshot that the one before did not have.
func (l *jobLog) fresh(snap *snapshot.Snapshot) []snapshot.Event {
	for _, j := range snap.Jobs {
		if j.UID != l.uid || len(j.Log) == 0 {
			continue
		}
		next := 0
		for i, e := range slices.Backward(j.Log) {
			if e == l.last {
				next = i + 1
				break
			}
		}
		l.last = j.Log[len(j.Log)-1]
		return j.Log[next:]
	}
	return nil
}

// ended reports whether a snapshot has the job, and as ended.
func (l *jobLog) ended(snap *snapshot.Snapshot) (shown, ended bool) {
	for _, j := range snap.Jobs {
		if j.UID == l.uid {
			return true, !j.Finished.IsZero()
		}
	}
	return false, false
}

// readLog reads the log of the job concurrently into f.lines. The returned function stops that and prints the
// rest; for a job that is gone also the lines of its last snapshot, which follows within endShown.
func (f *follower) readLog(ctx context.Context) (stop func(gone bool)) {
	switch {
	case f.log == nil:
		return func(bool) {}
	case f.session.Daemon == nil:
		f.say("the log of the job is with the agent that runs it, not here")
		return func(bool) {}
	}
	ctx, cancel := context.WithCancel(ctx)
	f.lines = make(chan []snapshot.Event)
	go f.log.read(ctx, f.session.Daemon.Watch(ctx), f.lines)
	return func(gone bool) {
		defer cancel()
		var late <-chan time.Time
		if gone {
			late = time.After(endShown)
		} else {
			cancel()
		}
		for {
			select {
			case lines, ok := <-f.lines:
				if !ok {
					return
				}
				f.showLog(lines)
			case <-late:
				cancel()
			}
		}
	}
}

// endShown bounds the wait for the snapshot that has the end of a job. A daemon makes one every 100 ms; a job
// of another agent has none.
const endShown = 2 * time.Second

// read sends new lines until a snapshot shows the end of the job, or ctx ends, then closes to. It waits for a
// daemon that is away.
func (l *jobLog) read(ctx context.Context, pictures *control.Watch, to chan<- []snapshot.Event) {
	defer close(to)
	for ctx.Err() == nil {
		snap, err := pictures.Next(ctx)
		if err != nil {
			command.Sleep(ctx, command.RetryPause)
			continue
		}
		if fresh := l.fresh(snap); len(fresh) > 0 {
			to <- fresh
		}
		if _, ended := l.ended(snap); ended {
			return
		}
	}
}

// showLog prints lines of the log in place of the bar. A stdout that fails ends the command.
func (f *follower) showLog(lines []snapshot.Event) {
	f.bar.erase()
	_ = printLogLines(f.run, lines)
}
