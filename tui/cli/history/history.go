// Package history has the commands of finished jobs.
package history

import (
	"bufio"
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
	return e.With(ctx, command.Needs{Desk: true}, func(s *command.Session) error {
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
	return e.With(ctx, command.Needs{Desk: true}, func(s *command.Session) error {
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

// StateCancelled is the state of a job that a person has stopped in the local history. The wire has no such state.
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

type exportCmd struct {
	filter
	File string `help:"Write to this file, atomically. Default: stdout." placeholder:"FILE" type:"path"`
}

// exportPage is how many records are in memory at once. A record has some kilobytes, at most about 300.
const exportPage = 100

// Run writes page by page, also over the socket of a daemon, so that neither process holds more than one page
// and no read of the state file takes longer than a page. Jobs that end during the export are not included.
func (c exportCmd) Run(ctx context.Context, e *command.Env) error {
	form, ok := exportForms[e.Flags.Output]
	if !ok {
		return command.Usagef("limpet history export -o jsonl", "history export writes JSON: -o jsonl or -o json, not -o %s",
			e.Flags.Output)
	}
	q, err := c.query(e.Flags)
	if err != nil {
		return err
	}
	if c.File != "" {
		if err := command.Writable(c.File, "limpet history export --file"); err != nil {
			return err
		}
	}
	form.pick = e.Flags.PickEach
	return e.With(ctx, command.Needs{Desk: true}, func(s *command.Session) error {
		if c.File == "" {
			_, err := form.export(ctx, e.Out, q, s.Store)
			return err
		}
		n := 0
		_, err = command.WriteAtomic(c.File, func(w io.Writer) (_ int64, err error) {
			n, err = form.export(ctx, w, q, s.Store)
			return 0, err
		})
		if err != nil {
			return fmt.Errorf("export history: %w", err)
		}
		e.Notef("%s written to %s", text.Plural(n, "record"), c.File)
		return nil
	})
}

// exportForm is what stands around and between the records, one on each line.
type exportForm struct {
	begin, between, end string
	pick                func(records any) ([]any, error)
}

var exportForms = map[string]exportForm{
	"table": {}, // the default
	"jsonl": {},
	"json":  {begin: "{\"items\":[\n", between: ",", end: "]}\n"},
}

// export writes all records that q selects and returns their number.
func (f exportForm) export(ctx context.Context, w io.Writer, q state.Query, store control.History) (n int, err error) {
	out := bufio.NewWriterSize(w, 64<<10)
	lines := command.NewJSON(out)
	_, _ = out.WriteString(f.begin) // the first error is kept and returned by Flush
	for page, err := range control.Pages(ctx, store, q, exportPage) {
		if err != nil {
			return n, err
		}
		for i := range page {
			control.RedactRecord(&page[i])
		}
		items, err := f.pick(page)
		if err != nil {
			return n, err
		}
		for _, rec := range items {
			if n > 0 {
				_, _ = out.WriteString(f.between)
			}
			if err := lines.Encode(rec); err != nil {
				return n, err
			}
			n++
		}
	}
	_, _ = out.WriteString(f.end)
	return n, out.Flush()
}

type pruneCmd struct {
	OlderThan *time.Duration `name:"older-than" xor:"what" help:"Remove jobs that finished longer ago than this."`
	Before    string         `xor:"what" help:"Remove jobs that finished before this: RFC 3339 time, or 24h." placeholder:"TIME"`
	Keep      *string        `xor:"what" help:"Keep the newest N, remove the others." placeholder:"N"`
}

func (c pruneCmd) Run(ctx context.Context, e *command.Env) error {
	keep, before, now := 0, time.Time{}, time.Now()
	var err error
	switch {
	case c.OlderThan != nil && *c.OlderThan < 0:
		return command.Usagef("limpet history prune --older-than 24h", "--older-than must not be negative")
	case c.OlderThan != nil:
		before = now.Add(-*c.OlderThan)
	case c.Before != "":
		if before, err = moment("history prune", "--before", c.Before, now); err != nil {
			return err
		}
	case c.Keep != nil:
		n, err := strconv.ParseUint(*c.Keep, 10, 31)
		if err != nil {
			return command.Usagef("limpet history prune --keep 1000", "--keep is %q: it must be a number of records, 0 or more", *c.Keep)
		}
		keep = int(n)
	default:
		return command.Usagef("limpet history prune --older-than 7d",
			"say which records: --older-than, --before or --keep")
	}
	what := "the records of all jobs that finished before " + before.UTC().Format(time.RFC3339)
	if c.Keep != nil {
		what = "all records but the newest " + strconv.Itoa(keep)
	}
	if err := e.Confirm(ctx, "This removes "+what+" for good."); err != nil {
		return err
	}
	return e.With(ctx, command.Needs{Desk: true}, func(s *command.Session) (err error) {
		n := 0
		if c.Keep != nil {
			n, err = s.Store.TrimHistory(ctx, keep)
		} else {
			n, err = s.Store.PruneHistory(ctx, before)
		}
		if err != nil {
			return err
		}
		return e.PrintDone(map[string]int{"removed": n}, strconv.Itoa(n), "%s removed", text.Plural(n, "record"))
	})
}
