// Package history has the commands of finished jobs.
package history

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

// Command has the commands of 'limpet history'.
type Command struct {
	List   listCmd   `cmd:"" help:"Finished jobs, newest first."`
	Show   showCmd   `cmd:"" help:"One finished job, whole."`
	Export exportCmd `cmd:"" help:"Finished jobs as JSON, one in a line, newest first; for any number of them."`
	Prune  pruneCmd  `cmd:"" writes:"" help:"Remove old records."`
}

type filter struct {
	Repository string   `short:"r" aliases:"repo" help:"Only jobs of this repository."`
	States     []string `name:"status" enum:"success,warning,error,cancelled,dead" help:"Only jobs with these results: ${enum}."`
	Dead       bool     `help:"Only jobs without attempts left: --status dead."`
	Action     string   `help:"Only this action."`
	Since      string   `help:"Finished after: a duration such as 24h, or an RFC 3339 time."`
	Until      string   `help:"Finished before: a duration such as 1h, or an RFC 3339 time."`
	Limit      uint     `help:"Maximum number; 0 = all." default:"0"`
}

func (f filter) query(g *command.Flags) (q state.Query, err error) {
	now := time.Now()
	if q.Since, err = moment("history list", "--since", f.Since, now); err != nil {
		return q, err
	}
	if q.Until, err = moment("history list", "--until", f.Until, now); err != nil {
		return q, err
	}
	if !q.Since.IsZero() && !q.Until.IsZero() && !q.Since.Before(q.Until) {
		return q, command.Usagef("limpet history list --since 7d --until 24h",
			"nothing is after --since %s and before --until %s", f.Since, f.Until)
	}
	if f.Dead {
		f.States = append(f.States, StateDead)
	}
	q.Repository, q.Namespace, q.Action, q.States, q.Limit = f.Repository, g.ListNamespace(), f.Action, f.States, int(f.Limit)
	return q, nil
}

type listCmd struct {
	filter
}

func (c listCmd) Run(ctx context.Context, e *command.Env) error {
	q, err := c.query(e.Flags)
	if err != nil {
		return err
	}
	t := command.Table{Columns: []string{"FINISHED", "REPOSITORY", "ACTION", "STATE", "TOOK", "MESSAGE", "JOB"},
		Wide: []string{"UID", "ATTEMPTS", "REF", "COMMIT"}}
	return e.With(ctx, command.Needs{Store: true}, func(s *command.Session) error {
		records, err := s.Store.History(ctx, q)
		if err != nil {
			return err
		}
		for i := range records {
			control.RedactRecord(&records[i])
			rec, subject := records[i], ""
			if rec.Commit != nil {
				subject = rec.Commit.Subject
			}
			t.Add(rec.Namespace, rec.UID, rec.Finished.UTC().Format(time.RFC3339), rec.Repository, rec.Action, rec.State,
				text.Took(rec.Finished.Sub(rec.Started)), text.OrDash(rec.Message),
				rec.Name, rec.UID, strconv.Itoa(len(rec.Attempts)), text.OrDash(text.ShortRef(rec.RefTo)), text.OrDash(subject))
		}
		return e.PrintList(records, t)
	})
}

// moment parses the time of a flag: a duration before now, or an absolute time.
func moment(call, flag, txt string, now time.Time) (time.Time, error) {
	if txt == "" {
		return time.Time{}, nil
	}
	if d, err := command.ParseDuration(txt); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, txt)
	if err != nil {
		return time.Time{}, command.Usagef("limpet "+call+" "+flag+" 24h",
			"%s %q is neither a duration such as 24h or 7d nor a time such as %s", flag, txt, now.UTC().Format(time.RFC3339))
	}
	return t, nil
}

type showCmd struct {
	Job string `arg:"" help:"UID, how it begins, or name of the job; of a name, the newest of its namespace."`
}

func (c showCmd) Run(ctx context.Context, e *command.Env) error {
	return e.With(ctx, command.Needs{Store: true}, func(s *command.Session) error {
		rec, err := control.FindRecord(ctx, s.Store, e.Flags.ListNamespace(), c.Job)
		if errors.Is(err, control.ErrNoRecord) {
			return command.Errorf(command.ExitError, "limpet history list -o wide", "%w", err)
		}
		if err != nil {
			return err
		}
		return e.PrintOne(rec, rec.UID, func(w io.Writer) { PrintRecord(e, w, rec) })
	})
}

// PrintRecord prints a finished job for a person.
func PrintRecord(e *command.Env, w io.Writer, rec state.Record) {
	var f command.Fields
	defer func() { f.Write(w) }()
	f.Add("job", rec.Namespace+"/"+rec.Name)
	f.Add("uid", rec.UID)
	f.Add("repository", rec.Repository)
	f.Add("action", rec.Action)
	f.AddState("state", rec.State, rec.State)
	f.Add("message", text.OrDash(rec.Message))
	f.AddTime("created", rec.Created)
	f.Add("started", rec.Started.UTC().Format(time.RFC3339Nano))
	f.Add("finished", rec.Finished.UTC().Format(time.RFC3339Nano))
	if rec.RefTo != "" {
		f.Add("ref", strings.TrimPrefix(rec.RefFrom+" -> "+rec.RefTo, " -> "))
	}
	if c := rec.Commit; c != nil {
		f.Add("commit", fmt.Sprintf("%q by %s, %s", c.Subject, text.OrDash(c.Author), c.At.UTC().Format(time.RFC3339)))
	}
	for _, s := range rec.Steps {
		f.Add("step", fmt.Sprintf("%.3fs %s", s.Seconds, s.Text))
	}
	if d := rec.DeadLetter; d != nil && rec.State == StateDead {
		f.Add("dead letter", fmt.Sprintf("%s after %s: %s", d.Reason, text.Plural(d.Attempts, "attempt"), text.OrDash(d.LastError)))
		f.Add("", e.CommandFor("", "job retry "+rec.UID)+" begins anew")
	}
	for _, a := range rec.Attempts {
		f.AddState("attempt "+strconv.Itoa(a.N), a.State, control.AttemptText(a))
	}
	var status api.JobStatus
	if json.Unmarshal(rec.Status, &status) != nil {
		return
	}
	for _, sum := range status.Summary {
		f.Add(KindText(sum.Kind), SummaryText(sum))
	}
	for _, txt := range status.Errors {
		f.Add("error", txt)
	}
	for _, txt := range status.Warnings {
		f.Add("warning", txt)
	}
	if n := len(rec.Issues); n > len(status.Errors)+len(status.Warnings) {
		all := map[bool]string{true: "all ", false: "the first " + text.Thousands(n) + " of "}[rec.IssuesLeft == 0]
		f.Add("", e.CommandFor("", "job show "+rec.UID+" --errors")+" lists "+all+text.Thousands(n+int(rec.IssuesLeft)))
	}
}

// StateCancelled is the state of a job that a person has stopped in the local history. The wire has
// no such state.
const StateCancelled = "cancelled"

// StateDead is the state of a job without attempts left.
const StateDead = "dead"

// KindText names a line of a summary. Unread files and entries that are left out have no kind.
func KindText(kind string) string { return cmp.Or(kind, "no kind") }

// SummaryText describes what a job did with the resources of a kind.
func SummaryText(sum api.JobSummary) string {
	return fmt.Sprintf("%d created, %d updated, %d deleted, %d unchanged, %s, %s", sum.Create, sum.Update, sum.Delete, sum.Noop,
		text.Plural(int(sum.Warning), "warning"), text.Plural(int(sum.Error), "error"))
}
