package job

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/kube"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

const (
	// progressInterval is the longest time between two progress lines.
	progressInterval = 30 * time.Second
	// finalWait is how long a job in a final state may stay in the API before the wait
	// ends. Its agent deletes it next; another server may keep it.
	finalWait = 2 * time.Second
	// lastLogWait bounds the wait for the snapshot that has the end of a job. A daemon
	// makes one every 100 ms; a job of another agent has none.
	lastLogWait = 2 * time.Second
)

type watchCmd struct {
	Job      string `arg:"" help:"Name or UID of a job. Of one that has ended already, the end is printed."`
	Progress string `help:"Progress on stderr: bar, plain lines, none; auto is a bar on a terminal, else lines." enum:"auto,bar,plain,none" default:"auto"`
}

// Help is the long help of the command.
func (watchCmd) Help() string {
	return "With -o json or jsonl each change is a document in a line of its own: type is job, and ended for the last."
}

func (c watchCmd) Run(ctx context.Context, e *command.Env) error {
	s, err := e.Open(ctx, command.Needs{API: true})
	if err != nil {
		return err
	}
	defer s.Close()
	u, err := liveJob(ctx, s, e.Flags.ListNamespace(), c.Job)
	if err != nil {
		return err
	}
	if u != nil {
		f := newFollower(e, s, u, c.Progress)
		f.stream = e.Flags.Data()
		return f.follow(ctx)
	}
	// The local history belongs to the server of the local agent.
	rec, err := finishedJob(ctx, e, s, c.Job, s.Daemon != nil || e.Embedded())
	if err != nil {
		return err
	}
	e.Notef("%s has ended already, %s ago", rec.Name, command.Since(time.Now(), rec.Finished))
	return printEnd(e, rec, e.Flags.Data())
}

// follower waits for the end of one job: for commands with --wait or --follow, job watch
// and job logs. It never affects the job, and it waits for an API that is away.
type follower struct {
	env     *command.Env
	session *command.Session
	seen    *unstructured.Unstructured // the job as last seen
	final   time.Time                  // when it was first seen in a final state

	last       string // the last progress line
	printed    time.Time
	away       bool   // the last request failed
	waitReason string // the last one of the daemon

	bar     *bar
	silent  bool // no progress lines
	stream  bool // a document on stdout for each change
	showLog bool
	logOnly bool // the end is not printed
	log     jobLog
	rows    <-chan *snapshot.Job // the job in the snapshots of the daemon; nil = the daemon did not answer
}

func newFollower(e *command.Env, s *command.Session, u *unstructured.Unstructured, progress string) *follower {
	return &follower{env: e, session: s, seen: u, bar: newBar(e, progress), silent: progress == "none"}
}

// follow waits until the job is gone from the API, as the flags of a command say, then prints its end. The
// error has the exit code of that end.
func follow(ctx context.Context, e *command.Env, s *command.Session, u *unstructured.Unstructured, how WaitFlags) error {
	f := newFollower(e, s, u, how.Progress)
	f.showLog, f.stream = how.Follow, how.Follow && e.Flags.Data()
	return f.follow(ctx)
}

func (f *follower) follow(ctx context.Context) error {
	life, cancel := context.WithCancel(ctx)
	defer cancel()
	if f.session.Daemon != nil {
		rows := f.readRows(life, f.session.Daemon.Watch(life))
		f.rows = rows
		defer func() {
			for range rows { // until it is closed
			}
		}()
		defer cancel()
	} else if f.showLog {
		f.say("the log of the job is with the agent that runs it, not here")
	}
	err := f.watch(ctx)
	if err == nil && f.showLog {
		f.printLastLines(ctx)
	}
	f.bar.erase()
	if err == nil {
		rec, outcomeErr := f.outcome(ctx)
		rec.UID, rec.Namespace, rec.Name = string(f.seen.GetUID()), f.seen.GetNamespace(), f.seen.GetName()
		switch {
		case outcomeErr != nil:
			err = outcomeErr
		case f.logOnly:
			return endError(rec)
		default:
			return printEnd(f.env, rec, f.stream)
		}
	}
	if ctx.Err() != nil {
		return command.Errorf(command.WaitCode(ctx), command.CommandFor(f.seen.GetNamespace(), "job watch "+f.seen.GetName()),
			"stopped waiting; the job goes on")
	}
	return err
}

// say writes a note in place of the bar.
func (f *follower) say(format string, args ...any) {
	f.bar.erase()
	f.env.Notef(format, args...)
}

// watch returns nil when the job is gone, else a permanent error.
func (f *follower) watch(ctx context.Context) error {
	for {
		began := time.Now()
		gone, err := f.watchOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !f.pause(ctx, err):
			return err
		case gone:
			return nil
		case err == nil:
			command.Sleep(ctx, command.RetryPause-time.Since(began)) // some servers and proxies end every watch at once
		}
	}
}

// pause waits after an error and reports whether the error is temporary.
func (f *follower) pause(ctx context.Context, err error) bool {
	if !kube.Retryable(err) {
		return false
	}
	if !f.away {
		f.away = true
		f.say("%s %s: no answer, still trying: %s", command.Timestamp(), f.seen.GetName(),
			text.Clean(text.Redact(command.ErrorText(err))))
	}
	after, _ := kube.RetryAfter(err)
	command.Sleep(ctx, max(after, command.RetryPause))
	return true
}

// watchOnce follows one watch of the job and reports whether the job is gone. The end of a watch is no error:
// the caller starts the next.
func (f *follower) watchOnce(ctx context.Context) (gone bool, err error) {
	jobs := f.session.Client.Resource(api.Jobs).Namespace(f.seen.GetNamespace())
	only := "metadata.name=" + f.seen.GetName()
	page, err := jobs.List(ctx, metav1.ListOptions{FieldSelector: only})
	if err != nil {
		return false, err
	}
	f.away = false
	if len(page.Items) == 0 || !f.see(&page.Items[0]) || f.finalFor() > finalWait {
		return true, nil
	}
	w, err := jobs.Watch(ctx, metav1.ListOptions{FieldSelector: only, ResourceVersion: page.GetResourceVersion()})
	if err != nil {
		return false, err
	}
	defer w.Stop()
	due, stop := f.bar.ticks()
	defer stop()
	for {
		var over <-chan time.Time
		if !f.final.IsZero() {
			over = time.After(finalWait - f.finalFor())
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-over:
			return true, nil
		case <-due:
			if job, err := api.JobView(f.seen); err == nil {
				f.bar.draw(job, f.seen.GetName(), time.Now())
			}
		case <-time.After(time.Until(f.printed.Add(progressInterval))): // also across watches
			f.show(true)
		case row, ok := <-f.rows:
			switch {
			case !ok:
				f.rows = nil
			case row != nil:
				f.takeRow(row)
			case f.throughDaemon():
				return false, nil // a watch over its socket would stay silent; the next request waits
			}
		case e, ok := <-w.ResultChan():
			if !ok || e.Type == watch.Error {
				return false, nil
			}
			job, ok := e.Object.(*unstructured.Unstructured)
			if !ok || e.Type == watch.Bookmark {
				continue
			}
			if !f.see(job) || e.Type == watch.Deleted {
				return true, nil
			}
		}
	}
}

// throughDaemon reports whether the daemon of this host passes the requests on.
func (f *follower) throughDaemon() bool {
	base, _ := f.session.Client.Endpoint()
	return base.String() == control.BaseURL
}

// readRows sends the row of the job in each snapshot until one shows its end, and nil
// each time that the daemon does not answer.
func (f *follower) readRows(ctx context.Context, snapshots *control.Watch) <-chan *snapshot.Job {
	rows, uid := make(chan *snapshot.Job), string(f.seen.GetUID())
	go func() {
		defer close(rows)
		for ctx.Err() == nil {
			var row *snapshot.Job
			snap, err := snapshots.Next(ctx)
			if err != nil {
				command.Sleep(ctx, command.RetryPause)
			} else if i := slices.IndexFunc(snap.Jobs, func(j snapshot.Job) bool { return j.UID == uid }); i >= 0 {
				row = &snap.Jobs[i]
			} else {
				continue
			}
			select {
			case rows <- row:
			case <-ctx.Done():
				return
			}
			if row != nil && !row.Finished.IsZero() {
				return
			}
		}
	}()
	return rows
}

// takeRow prints new lines of the log, and why the daemon of this host does not take a
// pending job.
func (f *follower) takeRow(row *snapshot.Job) {
	if f.showLog {
		f.bar.erase()
		_ = printLogLines(f.env, f.log.fresh(row)) // a stdout that fails ends the command
	}
	if f.seen.GetLabels()[api.LabelClaim] != "" || row.WaitReason == f.waitReason {
		return
	}
	if f.waitReason = row.WaitReason; row.WaitReason != "" {
		f.say("%s %s is left alone: %s", command.Timestamp(), row.Name, text.Clean(row.WaitReason))
	}
}

// printLastLines prints the log up to the snapshot that shows the end of the job.
func (f *follower) printLastLines(ctx context.Context) {
	late := time.After(lastLogWait)
	for f.rows != nil {
		select {
		case row, ok := <-f.rows:
			if !ok {
				return
			}
			if row != nil {
				f.takeRow(row)
			}
		case <-late:
			return
		case <-ctx.Done():
			return
		}
	}
}

// finalStates are final.
var finalStates = []string{api.StateSuccess, api.StateWarning, api.StateError}

// finalFor returns for how long the job has been in a final state.
func (f *follower) finalFor() time.Duration {
	if f.final.IsZero() {
		return 0
	}
	return time.Since(f.final)
}

// see takes a new version of the job; false when it is another job of the same name.
func (f *follower) see(u *unstructured.Unstructured) bool {
	if u.GetUID() != f.seen.GetUID() {
		return false
	}
	f.seen = u
	job, err := api.JobView(u)
	switch {
	case err != nil || job.Status.Finished == 0 || !slices.Contains(finalStates, job.Status.State):
		f.final = time.Time{}
	case f.final.IsZero():
		f.final = time.Now()
	}
	f.show(false)
	return true
}

// show prints a progress line when state or message have changed, at each tenth of progress, and when forced.
func (f *follower) show(anyway bool) {
	job, err := api.JobView(f.seen)
	if err != nil {
		f.printed = time.Now() // nothing to print for another interval
		return
	}
	st := job.Status
	key := fmt.Sprintf("%s %s %d %d", st.State, st.Message, int(st.Progress)/10, len(st.Errors))
	changed := key != f.last
	if !changed && !anyway {
		return
	}
	f.last, f.printed = key, time.Now()
	done, total := counts(st)
	if f.stream && changed {
		// A stdout that fails ends the command.
		_ = f.env.PrintStream(command.StreamLine{Type: "job", Job: progressDoc{
			Name:      f.seen.GetName(),
			Namespace: f.seen.GetNamespace(),
			UID:       string(f.seen.GetUID()),
			State:     stateText(st.State),
			Progress:  min(max(st.Progress, 0), 100),
			Done:      done,
			Total:     total,
			Errors:    len(st.Errors),
			Message:   st.Message,
		}})
	}
	if f.silent || f.bar.w != nil {
		return
	}
	line := stateText(st.State)
	if st.State == api.StateWorking {
		line += " " + progressText(st)
		if total > 0 {
			line += fmt.Sprintf(" %d/%d", done, total)
		}
	}
	if st.Message != "" {
		line += " " + text.Clean(st.Message)
	}
	if n := len(st.Errors); n > 0 {
		line += fmt.Sprintf(" errors=%d", n)
	}
	f.say("%s %s %s", command.Timestamp(), f.seen.GetName(), line)
}

// progressDoc is the progress of a job.
type progressDoc struct {
	Name      string  `json:"name"`
	Namespace string  `json:"namespace"`
	UID       string  `json:"uid"`
	State     string  `json:"state"`
	Progress  float64 `json:"progress"` // 0 to 100
	Done      int64   `json:"done"`
	Total     int64   `json:"total"` // 0 = not known
	Errors    int     `json:"errors"`
	Message   string  `json:"message,omitempty"`
}

func stateText(state string) string { return cmp.Or(state, api.StatePending) }
