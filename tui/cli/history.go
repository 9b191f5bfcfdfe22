package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/text"
)

type historyCmd struct {
	List   historyListCmd   `cmd:"" help:"Finished jobs, newest first."`
	Show   historyShowCmd   `cmd:"" help:"One finished job, whole."`
	Export historyExportCmd `cmd:"" help:"Finished jobs as JSON, one in a line, newest first; for any number of them."`
	Prune  historyPruneCmd  `cmd:"" writes:"" help:"Remove old records."`
}

// historyFilter chooses among the finished jobs.
type historyFilter struct {
	Repository string   `short:"r" help:"Only of this repository."`
	States     []string `name:"status" enum:"success,warning,error,cancelled,dead" help:"Only jobs that ended so: success, warning, error, cancelled or dead. Several with commas."`
	Dead       bool     `help:"Only jobs whose attempts were used up: --status dead."`
	Action     string   `help:"Only this action."`
	Since      string   `help:"Finished after: a duration such as 24h, or an RFC 3339 time."`
	Until      string   `help:"Finished before: a duration such as 1h, or an RFC 3339 time."`
	Limit      uint     `help:"At most so many; 0 = all." default:"0"`
}

// query is what the flags say.
func (f historyFilter) query(g *Globals) (state.Query, error) {
	now := time.Now()
	since, err := moment("history list", "--since", f.Since, now)
	if err != nil {
		return state.Query{}, err
	}
	until, err := moment("history list", "--until", f.Until, now)
	if err != nil {
		return state.Query{}, err
	}
	if !since.IsZero() && !until.IsZero() && !since.Before(until) {
		return state.Query{}, usage("limpet history list --since 7d --until 24h", "nothing is after --since %s and before --until %s", f.Since, f.Until)
	}
	if f.Dead {
		f.States = append(f.States, stateDead)
	}
	return state.Query{Repository: f.Repository, Namespace: g.listNamespace(), Action: f.Action,
		States: f.States, Since: since, Until: until, Limit: int(f.Limit)}, nil
}

type historyListCmd struct {
	historyFilter
}

func (c historyListCmd) Run(ctx context.Context, r *run) error {
	q, err := c.query(r.g)
	if err != nil {
		return err
	}
	s, err := r.open(ctx, need{Desk: true})
	if err != nil {
		return err
	}
	defer s.Close()
	records, err := s.Desk.History(ctx, q)
	if err != nil {
		return err
	}
	if err := r.noteDead(ctx, s.Desk, q); err != nil {
		return err
	}
	t := table{Columns: []string{"FINISHED", "REPOSITORY", "ACTION", "STATE", "TOOK", "MESSAGE"}, Wide: []string{"JOB", "UID", "ATTEMPTS", "REF", "COMMIT"}}
	for i := range records {
		maskRecord(&records[i])
		rec, subject := records[i], ""
		if rec.Commit != nil {
			subject = rec.Commit.Subject
		}
		t.add(rec.Namespace, rec.UID, rec.Finished.UTC().Format(time.RFC3339), rec.Repository, rec.Action, rec.State,
			rec.Finished.Sub(rec.Started).Round(10*time.Millisecond).String(), text.OrDash(rec.Message),
			rec.Name, rec.UID, strconv.Itoa(len(rec.Attempts)), text.OrDash(text.ShortRef(rec.RefTo)), text.OrDash(subject))
	}
	if records == nil {
		records = []state.Record{}
	}
	return r.printList(records, t)
}

// noteDead tells who asks for errors alone of the jobs that have failed to the last
// attempt.
func (r *run) noteDead(ctx context.Context, desk control.Desk, q state.Query) error {
	if r.g.notes == nil || !slices.Contains(q.States, api.StateError) || slices.Contains(q.States, stateDead) {
		return nil
	}
	q.States, q.Brief, q.Limit = []string{stateDead}, true, 1
	dead, err := desk.History(ctx, q)
	if err == nil && len(dead) > 0 {
		fmt.Fprintln(r.g.notes, "limpet: jobs whose attempts were used up are not among them: limpet history list --dead")
	}
	return err
}

// moment reads a time that a flag of a command says: a duration before now, or an absolute time.
func moment(command, flag, txt string, now time.Time) (time.Time, error) {
	if txt == "" {
		return time.Time{}, nil
	}
	if d, err := parseDuration(txt); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, txt)
	if err != nil {
		return time.Time{}, usage("limpet "+command+" "+flag+" 24h", "%s %q is neither a duration such as 24h or 7d nor a time such as %s", flag, txt, now.UTC().Format(time.RFC3339))
	}
	return t, nil
}

type historyShowCmd struct {
	Job string `arg:"" help:"UID or name of the job; of a name, the newest of its namespace."`
}

func (c historyShowCmd) Run(ctx context.Context, r *run) error {
	s, err := r.open(ctx, need{Desk: true})
	if err != nil {
		return err
	}
	defer s.Close()
	rec, err := findRecord(ctx, s.Desk, r.g.listNamespace(), c.Job)
	if err != nil {
		return err
	}
	return r.printOne(rec, rec.UID, func(w io.Writer) { printRecord(r, w, rec) })
}

// errNoRecord says that the history has no such job.
var errNoRecord = errors.New("not in the history")

// recordPage is how many records are read at once in the search for a name.
const recordPage = 500

// findRecord looks a finished job up by UID, else the newest of that name. It
// returns errNoRecord when there is none, and a *severalError when a name without a
// namespace is that of jobs in several.
func findRecord(ctx context.Context, desk control.Desk, namespace, job string) (state.Record, error) {
	records, err := desk.History(ctx, state.Query{UID: job, Limit: 1})
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return state.Record{}, err
	}
	if len(records) == 1 {
		maskRecord(&records[0])
		return records[0], nil
	}
	rec, err := newestRecord(ctx, desk, state.Query{Namespace: namespace}, job)
	if err == nil && namespace == "" {
		err = onlyIn(ctx, desk, rec.Namespace, job)
	}
	maskRecord(&rec)
	return rec, err
}

// onlyIn returns a *severalError when jobs of that name have ended outside of a
// namespace too.
func onlyIn(ctx context.Context, desk control.Desk, namespace, job string) error {
	other, err := newestRecord(ctx, desk, state.Query{Outside: namespace, Brief: true}, job)
	switch {
	case errors.Is(err, errNoRecord), err == nil && other.Namespace == namespace: // an older daemon knows no Outside
		return nil
	case err != nil:
		return err
	}
	in := []string{namespace, other.Namespace}
	slices.Sort(in)
	return &severalError{"job", job, in}
}

// newestRecord is the newest of a name among those of q.
func newestRecord(ctx context.Context, desk control.Desk, q state.Query, job string) (state.Record, error) {
	q.Words, q.Limit = []string{job}, recordPage
	for {
		page, err := desk.History(ctx, q)
		if err != nil {
			return state.Record{}, err
		}
		for _, rec := range page {
			if rec.Name == job {
				return rec, nil
			}
		}
		if len(page) < recordPage {
			return state.Record{}, fail(ExitError, "limpet history list -o wide", "job %q is %w", job, errNoRecord)
		}
		q.Before = page[len(page)-1].Cursor()
	}
}

// unambiguous refuses the name of a live job that is also that of jobs which have ended
// in another namespace, where none was named: either may be meant.
func (r *run) unambiguous(ctx context.Context, s *session, live *unstructured.Unstructured, job string) error {
	if s.Desk == nil || r.g.listNamespace() != "" || live.GetName() != job {
		return nil
	}
	return onlyIn(ctx, s.Desk, live.GetNamespace(), job)
}

func printRecord(r *run, w io.Writer, rec state.Record) {
	var f fields
	defer func() { f.write(w) }()
	f.add("job", rec.Namespace+"/"+rec.Name)
	f.add("uid", rec.UID)
	f.add("repository", rec.Repository)
	f.add("action", rec.Action)
	f.addState("state", rec.State, rec.State)
	f.add("message", text.OrDash(rec.Message))
	if !rec.Created.IsZero() {
		f.add("created", rec.Created.UTC().Format(time.RFC3339))
	}
	f.add("started", rec.Started.UTC().Format(time.RFC3339Nano))
	f.add("finished", rec.Finished.UTC().Format(time.RFC3339Nano))
	if rec.RefTo != "" {
		f.add("ref", strings.TrimPrefix(rec.RefFrom+" -> "+rec.RefTo, " -> "))
	}
	if c := rec.Commit; c != nil {
		f.add("commit", commitText(*c))
	}
	for _, s := range rec.Steps {
		f.add("step", fmt.Sprintf("%.3fs %s", s.Seconds, s.Text))
	}
	if d := rec.DeadLetter; d != nil && rec.State == stateDead {
		f.add("dead letter", fmt.Sprintf("%s after %s: %s", d.Reason, text.Plural(d.Attempts, "attempt"), text.OrDash(d.LastError)))
		f.add("", r.next("", "job retry "+rec.UID)+" begins anew")
	}
	for _, a := range rec.Attempts {
		f.addState("attempt "+strconv.Itoa(a.N), a.State, attemptText(a))
	}
	var status api.JobStatus
	if json.Unmarshal(rec.Status, &status) != nil {
		return
	}
	for _, sum := range status.Summary {
		f.add(kindText(sum.Kind), fmt.Sprintf("%d created, %d updated, %d deleted, %d unchanged, %d warnings, %d errors", sum.Create, sum.Update, sum.Delete, sum.Noop, sum.Warning, sum.Error))
	}
	for _, e := range status.Errors {
		f.add("error", e)
	}
	for _, e := range status.Warnings {
		f.add("warning", e)
	}
}

// commitText is what a commit says of itself.
func commitText(c state.Commit) string {
	txt := `"` + c.Subject + `"`
	if c.Author != "" {
		txt += " by " + c.Author
	}
	if !c.At.IsZero() {
		txt += ", " + c.At.UTC().Format(time.RFC3339)
	}
	return txt
}

// attemptText says how one attempt went.
func attemptText(a state.Attempt) string {
	return fmt.Sprintf("%s by %s%s: %s", a.State, text.OrDash(a.Agent), spanText(a), text.OrDash(a.Message))
}

// spanText says when an attempt ran, as far as it is known.
func spanText(a state.Attempt) string {
	txt := ""
	if !a.Started.IsZero() {
		txt += ", from " + a.Started.UTC().Format(time.RFC3339)
	}
	if !a.Finished.IsZero() {
		txt += ", to " + a.Finished.UTC().Format(time.RFC3339)
	}
	return txt
}

// stateCancelled is what the local history calls a job that a person has
// stopped. The wire has no such state.
const stateCancelled = "cancelled"

// stateDead is what it calls a job whose attempts are used up.
const stateDead = "dead"

// kindText names a line of a summary. What could not be read has no kind.
func kindText(kind string) string { return cmp.Or(kind, "unread files") }
