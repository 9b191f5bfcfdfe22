package job

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/kube"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/cli/command"
	"limpet/tui/cli/history"
)

const (
	// progressInterval is the longest time between two progress lines.
	progressInterval = 30 * time.Second
	// transferInterval is the same while something comes from a Git server.
	transferInterval = 5 * time.Second
	// finalWait is how long a job in a final state may stay in the API: its agent deletes it, another
	// server may keep it. It also bounds the wait for the snapshot with the end of a job, of which a
	// job of another agent has none, and for the record of a job that was final or pending when it was
	// last seen.
	finalWait = 2 * time.Second
	// minPoll and maxPoll bound the time between two reads of a job: a tenth of the time that it was
	// waited for.
	minPoll = 100 * time.Millisecond
	maxPoll = time.Second
)

type watchCmd struct {
	Job      string `arg:"" help:"Name or UID of a job; of a finished one, the result is printed."`
	Progress string `help:"Progress on stderr: ${enum}; auto is a bar on a terminal." enum:"auto,bar,plain,none" default:"auto"`
}

func (c watchCmd) Run(ctx context.Context, e *command.Env) error {
	return withJob(ctx, e, command.Needs{API: true}, c.Job, func(s *command.Session) error {
		// The local history belongs to the server of the local agent.
		rec, err := finishedJob(ctx, e, s, c.Job, s.Daemon != nil || e.Embedded())
		if err != nil {
			return err
		}
		e.Notef("%s already finished, %s ago", rec.Name, command.Since(time.Now(), rec.Finished))
		return printEnd(e, rec, e.Flags.Data())
	}, func(s *command.Session, u *unstructured.Unstructured) error {
		f := newFollower(e, s, u, c.Progress)
		f.stream = e.Flags.Data()
		return f.follow(ctx)
	})
}

// follower waits for the end of one job, also while the API is unreachable. It never affects the
// job.
type follower struct {
	env     *command.Env
	session *command.Session
	seen    *unstructured.Unstructured // the job as last seen
	final   time.Time                  // when it was first seen in a final state

	last       string // the last progress line
	printed    time.Time
	away       bool   // the last request failed
	waitReason string // the last one of the daemon
	transfer   snapshot.Transfer
	lastLine   snapshot.Event // of the log

	bar     *bar
	silent  bool // no progress lines
	stream  bool // a document on stdout for each change
	showLog bool
	logOnly bool // the end is not printed
}

func newFollower(e *command.Env, s *command.Session, u *unstructured.Unstructured, progress string) *follower {
	return &follower{env: e, session: s, seen: u, bar: newBar(e, progress), silent: progress == "none"}
}

// follow waits until the job is gone from the API, then prints its end. The error has the exit code
// of that end.
func (f *follower) follow(ctx context.Context) error {
	if f.showLog && f.session.Daemon == nil {
		f.say("the log of the job is with the agent that runs it, not here")
	}
	err := f.watch(ctx)
	for over := time.Now().Add(finalWait); err == nil && f.showLog && !f.readRow(ctx) && time.Now().Before(over); {
		command.Sleep(ctx, minPoll)
	}
	f.bar.erase()
	rec := state.Record{}
	if err == nil {
		rec, err = f.outcome(ctx)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return command.Errorf(command.WaitCode(ctx), command.CommandFor(f.seen.GetNamespace(), "job watch "+f.seen.GetName()),
			"stopped waiting; the job goes on")
	case err != nil:
		return err
	case f.logOnly:
		return endError(rec)
	}
	return printEnd(f.env, rec, f.stream)
}

// say writes a note in place of the bar.
func (f *follower) say(format string, args ...any) {
	f.bar.erase()
	f.env.Notef(format, args...)
}

// watch returns nil when the job is gone, else a permanent error. It polls, because nothing stays
// open on a weak link.
func (f *follower) watch(ctx context.Context) error {
	jobs := f.session.Client.Resource(api.Jobs).Namespace(f.seen.GetNamespace())
	for began := time.Now(); ctx.Err() == nil; {
		u, err := jobs.Get(ctx, f.seen.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && u.GetUID() != f.seen.GetUID():
			return nil
		case err != nil && !f.pause(ctx, err):
			return err
		case err != nil:
			continue
		}
		f.seen, f.away = u, false
		f.readRow(ctx)
		f.see(u)
		if err := f.unserved(u); err != nil {
			return err
		}
		if !f.final.IsZero() && time.Since(f.final) > finalWait {
			return nil
		}
		command.Sleep(ctx, min(max(time.Since(began)/10, minPoll), maxPoll))
	}
	return context.Cause(ctx)
}

// unserved returns an error for a job that no agent claims, because of its action.
func (f *follower) unserved(u *unstructured.Unstructured) error {
	if at := api.UnservedAt(u); at.IsZero() || f.waitReason == "" && time.Now().Before(at) {
		return nil
	}
	return command.Errorf(command.ExitError, command.CommandFor(u.GetNamespace(), "job cancel "+u.GetName()),
		"job %s is not claimed: no agent serves %s", u.GetName(), api.Spec(u, "action"))
}

// pause waits after an error and reports whether the error is temporary.
func (f *follower) pause(ctx context.Context, err error) bool {
	if !kube.Retryable(err) {
		return false
	}
	if !f.away && ctx.Err() == nil {
		f.away = true
		f.say("%s %s: no answer, still trying: %s", command.Timestamp(), f.seen.GetName(),
			text.Clean(text.Redact(command.ErrorText(err))))
	}
	after, _ := kube.RetryAfter(err)
	command.Sleep(ctx, max(after, command.RetryPause))
	return true
}

// readRow reads what the daemon knows of the job: new lines of its log, why it is left alone, and
// what it receives. It reports whether the daemon has shown its end.
func (f *follower) readRow(ctx context.Context) (ended bool) {
	unclaimed := f.seen.GetLabels()[api.LabelClaim] == ""
	f.transfer = snapshot.Transfer{}
	if f.session.Daemon == nil || !f.showLog && f.silent && !f.stream && !unclaimed {
		return f.session.Daemon == nil
	}
	ctx, cancel := context.WithTimeout(ctx, command.RetryPause)
	defer cancel()
	snap, err := f.session.Daemon.Snapshot(ctx)
	if err != nil {
		return false // the next read is soon
	}
	i := slices.IndexFunc(snap.Jobs, func(j snapshot.Job) bool { return j.UID == string(f.seen.GetUID()) })
	if i < 0 {
		return false
	}
	f.showRow(&snap.Jobs[i], unclaimed)
	return !snap.Jobs[i].Finished.IsZero()
}

func (f *follower) showRow(row *snapshot.Job, unclaimed bool) {
	f.transfer = row.Transfer
	if f.showLog {
		f.bar.erase()
		_ = printLogLines(f.env, f.freshLines(row.Log)) // a stdout that fails ends the command
	}
	if !unclaimed || row.WaitReason == f.waitReason {
		return
	}
	if f.waitReason = row.WaitReason; row.WaitReason != "" {
		f.say("%s %s is not claimed by this agent: %s", command.Timestamp(), row.Name, text.Clean(row.WaitReason))
	}
}

// freshLines returns the lines that the log before did not have.
func (f *follower) freshLines(log []snapshot.Event) []snapshot.Event {
	next := len(log)
	for next > 0 && log[next-1] != f.lastLine {
		next--
	}
	if len(log) > 0 {
		f.lastLine = log[len(log)-1]
	}
	return log[next:]
}

var finalStates = []string{api.StateSuccess, api.StateWarning, api.StateError}

// see takes a new version of the job and prints a line on a change, at each tenth of progress, and
// after a while, which is short while something comes.
func (f *follower) see(u *unstructured.Unstructured) {
	job, err := api.JobView(u)
	if err != nil {
		return // a newer server; its end is all that can be shown
	}
	st := job.Status
	switch {
	case st.Finished == 0 || !slices.Contains(finalStates, st.State):
		f.final = time.Time{}
	case f.final.IsZero():
		f.final = time.Now()
	}
	now, interval := time.Now(), progressInterval
	f.bar.draw(job, f.transfer, u.GetName(), now)
	key := fmt.Sprintf("%s %s %d %d", st.State, st.Message, int(st.Progress)/10, len(st.Errors))
	if f.transfer.Phase != "" {
		key += fmt.Sprintf(" %s %d", f.transfer.Phase, f.transfer.Percent/10)
		if interval = transferInterval; f.stream {
			key += fmt.Sprint(f.transfer)
		}
	}
	changed := key != f.last
	if !changed && now.Sub(f.printed) < interval {
		return
	}
	f.last, f.printed = key, now
	done, total := counts(st)
	if f.stream && changed {
		// A stdout that fails ends the command.
		_ = f.env.PrintStream(command.StreamLine{Type: "job", Job: progressDoc{
			Name:      u.GetName(),
			Namespace: u.GetNamespace(),
			UID:       string(u.GetUID()),
			State:     stateText(st.State),
			Progress:  min(max(st.Progress, 0), 100),
			Done:      done,
			Total:     total,
			Errors:    len(st.Errors),
			Message:   st.Message,
			Transfer:  f.transfer,
		}})
	}
	if f.silent || f.bar.w != nil {
		return
	}
	line := stateText(st.State)
	if st.State == api.StateWorking && f.transfer.Phase == "" {
		line += " " + progressText(st, snapshot.Job{})
		if total > 0 {
			line += fmt.Sprintf(" %d/%d", done, total)
		}
	}
	if message := messageText(st, f.transfer, now); message != "" {
		line += " " + message
	}
	if n := len(st.Errors); n > 0 {
		line += fmt.Sprintf(" errors=%d", n)
	}
	f.say("%s %s %s", command.Timestamp(), u.GetName(), line)
}

type progressDoc struct {
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	UID       string            `json:"uid"`
	State     string            `json:"state"`
	Progress  float64           `json:"progress"` // 0 to 100
	Done      int64             `json:"done"`
	Total     int64             `json:"total"` // 0 = not known
	Errors    int               `json:"errors"`
	Message   string            `json:"message,omitempty"`
	Transfer  snapshot.Transfer `json:"transfer,omitzero"`
}

// messageText returns the message of a job, with what it receives.
func messageText(st api.JobStatus, t snapshot.Transfer, now time.Time) string {
	if t.Phase == "" {
		return text.Clean(st.Message)
	}
	return text.Clean(st.Message + ": " + t.Text(now))
}

func stateText(state string) string { return cmp.Or(state, api.StatePending) }

// recordWait is how long the record of a job may take to appear that was last seen at work: the
// agent writes it before it deletes the job, but another server may be slow.
const recordWait = 15 * time.Second

// finishedJob returns a finished job: from the history of this host if local, or from that of the
// API.
func finishedJob(ctx context.Context, e *command.Env, s *command.Session, job string, local bool) (state.Record, error) {
	store := s.Store
	switch {
	case !local:
		store = nil
	case store == nil: // the live jobs are on a server, the finished ones in the file
		path, err := e.StatePath()
		if err != nil {
			return state.Record{}, err
		}
		if s.File, err = e.OpenStore(ctx, path, ""); err != nil {
			return state.Record{}, err
		}
		store, s.Store = s.File, s.File
	}
	rec, err := control.FindFinished(ctx, store, s.Client, e.Flags.ListNamespace(), job)
	if errors.Is(err, control.ErrNoRecord) {
		err = command.Errorf(command.ExitError, "limpet job list; limpet history list", "job %q not found", job)
	}
	return rec, err
}

// outcome waits for the record of a job that is gone.
func (f *follower) outcome(ctx context.Context) (rec state.Record, err error) {
	job, err := api.JobView(f.seen)
	if err != nil {
		return rec, err
	}
	namespace, name, uid := f.seen.GetNamespace(), f.seen.GetName(), string(f.seen.GetUID())
	unclaimed := f.seen.GetLabels()[api.LabelClaim] == "" && stateText(job.Status.State) == api.StatePending
	wait := recordWait
	if !f.final.IsZero() || unclaimed {
		wait = finalWait
	}
	for deadline := time.Now().Add(wait); ctx.Err() == nil; command.Sleep(ctx, minPoll) {
		rec, err = control.FindFinished(ctx, f.session.Store, f.session.Client, namespace, uid)
		switch {
		case err == nil:
		case !errors.Is(err, control.ErrNoRecord):
			if !f.pause(ctx, err) {
				return rec, err
			}
			continue
		case time.Now().Before(deadline):
			continue
		case unclaimed:
			return rec, command.Errorf(command.ExitCancelled, "limpet job list", "job %s was deleted before it was claimed", name)
		case job.Status.Finished > 0: // the last status is all that there is
			rec.State = job.Status.State
			rec.Status, err = json.Marshal(job.Status)
		default:
			return rec, command.Errorf(command.ExitError, "limpet history list",
				"job %s is gone and left no record: it was deleted, or its server keeps history elsewhere", name)
		}
		rec.UID, rec.Namespace, rec.Name = uid, namespace, name
		return rec, err
	}
	return rec, context.Cause(ctx)
}

// statusOf returns the status of a record; a record without one has less to show.
func statusOf(rec state.Record) (st api.JobStatus) {
	_ = json.Unmarshal(rec.Status, &st)
	return st
}

// printEnd prints the end of a job and returns the error for its exit code.
func printEnd(e *command.Env, rec state.Record, stream bool) (err error) {
	st := statusOf(rec)
	result := map[string]any{"name": rec.Name, "namespace": rec.Namespace, "uid": rec.UID, "state": rec.State, "status": st}
	if stream {
		err = e.PrintStream(command.StreamLine{Type: "ended", Ended: result})
	} else {
		err = e.PrintOne(result, "job/"+rec.Name, func(w io.Writer) {
			took := text.Took(api.TimeOfMillis(st.Finished).Sub(api.TimeOfMillis(st.Started)))
			fmt.Fprintf(w, "job/%s %s in %s: %s\n", rec.Name, text.Clean(rec.State), took, text.Clean(st.Message))
			for _, sum := range st.Summary {
				fmt.Fprintf(w, "  %s: %s\n", history.KindText(sum.Kind), history.SummaryText(sum))
			}
			for _, e := range slices.DeleteFunc(slices.Clone(st.Errors), func(e string) bool { return e == st.Message }) {
				fmt.Fprintf(w, "  error: %s\n", text.Clean(e))
			}
			for _, e := range st.Warnings {
				fmt.Fprintf(w, "  warning: %s\n", text.Clean(e))
			}
		})
	}
	if err != nil {
		return err
	}
	return endError(rec)
}

// endError returns nil for a success, else an error with the exit code of the end.
func endError(rec state.Record) error {
	code, txt := command.ExitJobFailed, "the job ended in "+text.Clean(rec.State)
	switch rec.State {
	case api.StateSuccess:
		return nil
	case api.StateWarning:
		code, txt = command.ExitPartial, "the job ended with warnings"
	case history.StateCancelled:
		code, txt = command.ExitCancelled, "the job was cancelled"
	case history.StateDead:
		txt = "the job has no attempt left"
	default:
		for _, sum := range statusOf(rec).Summary {
			if sum.Error > 0 && sum.Write > 0 {
				code, txt = command.ExitPartial, "the job ended with errors in some resources"
			}
		}
	}
	return command.Errorf(code, "limpet history show "+rec.UID, "%s", txt)
}
