package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"limpet/tui/cli/command"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/kube"
	"limpet/sync/snapshot"
	"limpet/sync/text"
)

const (
	// progressInterval is the longest time between two progress lines.
	progressInterval = 30 * time.Second
	// explainInterval is how often the daemon is asked why it does not take the job.
	explainInterval = 2 * time.Second
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
	if u == nil {
		return watchEnded(ctx, e, s, c.Job)
	}
	f := newFollower(e, s, u, c.Progress)
	f.stream = e.Flags.Data()
	return f.follow(ctx)
}

// follower waits for the end of one job. It never affects the job, and it waits for an API that is away.
type follower struct {
	run     *command.Env
	session *command.Session
	seen    *unstructured.Unstructured // the job as last seen
	last    string                     // the last progress line
	printed time.Time
	away    bool   // the last request failed
	waits   string // the last reason why the daemon does not take the job

	bar     *bar
	silent  bool // no progress lines
	logOnly bool // the end is not printed
	stream  bool // a document on stdout for each change
	log     *jobLog
	lines   chan []snapshot.Event // of the log; nil without one
	over    time.Time             // when the job was first seen in a final state
}

func newFollower(e *command.Env, s *command.Session, u *unstructured.Unstructured, progress string) *follower {
	return &follower{run: e, session: s, seen: u, bar: newBar(e, progress), silent: progress == "none"}
}

// follow waits until the job is gone from the API, as the flags of a command say, then prints its end. The
// error has the exit code of that end.
func follow(ctx context.Context, e *command.Env, s *command.Session, u *unstructured.Unstructured, how WaitFlags) error {
	f := newFollower(e, s, u, how.Progress)
	if how.Follow {
		f.stream = e.Flags.Data()
		f.log = &jobLog{uid: string(u.GetUID())}
	}
	return f.follow(ctx)
}

// follow is the only wait for the end of a job: of commands with --wait or --follow, job watch and job logs.
func (f *follower) follow(ctx context.Context) error {
	logged := f.readLog(ctx)
	err := f.watch(ctx)
	logged(err == nil)
	f.bar.erase()
	var end *End
	if err == nil {
		end, err = f.outcome(ctx)
	}
	if ctx.Err() != nil {
		return f.detached(ctx)
	}
	if err != nil {
		return err
	}
	if f.logOnly {
		return end.Err(recordHint(string(f.seen.GetUID())))
	}
	return printEnding(f.run, f.seen, end, f.stream)
}

// say writes a note in place of the bar.
func (f *follower) say(format string, args ...any) {
	f.bar.erase()
	f.run.Notef(format, args...)
}

// detached is the error of a wait that was ended while the job goes on.
func (f *follower) detached(ctx context.Context) error {
	return command.Errorf(command.WaitCode(ctx), command.CommandFor(f.seen.GetNamespace(), "job watch "+f.seen.GetName()),
		"stopped waiting; the job goes on")
}

// watch returns nil when the job is gone, else a permanent error.
func (f *follower) watch(ctx context.Context) error {
	for {
		began := time.Now()
		gone, err := f.watchOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !f.wait(ctx, err):
			return err
		case gone:
			return nil
		case err == nil:
			command.Sleep(ctx, command.RetryPause-time.Since(began)) // some servers and proxies end every watch at once
		}
	}
}

// wait pauses after an error and reports whether the error is temporary.
func (f *follower) wait(ctx context.Context, err error) bool {
	if !kube.Retryable(err) {
		return false
	}
	if !f.away {
		f.away = true
		f.say("%s", noAnswer(f.seen, err))
	}
	after, _ := kube.RetryAfter(err)
	command.Sleep(ctx, max(after, command.RetryPause))
	return true
}

// noAnswer is the note that a server is away and waited for.
func noAnswer(job *unstructured.Unstructured, err error) string {
	return fmt.Sprintf("%s %s: no answer, still trying: %s", command.Timestamp(), job.GetName(),
		text.Clean(text.Redact(command.ErrorText(err))))
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
	if len(page.Items) == 0 || !f.see(&page.Items[0]) {
		return true, nil
	}
	if f.left() <= 0 {
		return true, nil
	}
	w, err := jobs.Watch(ctx, metav1.ListOptions{FieldSelector: only, ResourceVersion: page.GetResourceVersion()})
	if err != nil {
		return false, err
	}
	defer w.Stop()
	ask := time.NewTicker(explainInterval)
	defer ask.Stop()
	due, stop := f.bar.ticks()
	defer stop()
	log := f.lines
	for {
		var over <-chan time.Time
		if !f.over.IsZero() {
			over = time.After(f.left())
		}
		select {
		case <-over:
			return true, nil
		case lines, ok := <-log:
			if !ok {
				log = nil // all was read
			}
			f.showLog(lines)
		case <-due:
			f.draw()
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(time.Until(f.printed.Add(progressInterval))): // also across watches
			f.show(true)
		case <-ask.C:
			if f.daemonHangs(ctx) {
				return false, nil // the next request reports it and waits
			}
			f.explainWait(ctx)
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

// daemonHangs reports whether the daemon behind the client does not answer: a watch over its socket would stay
// silent.
func (f *follower) daemonHangs(ctx context.Context) bool {
	daemon := f.session.Daemon
	if base, _ := f.session.Client.Endpoint(); daemon == nil || base.String() != control.BaseURL {
		return false
	}
	again, err := control.Attach(ctx, daemon.Path())
	if err == nil {
		again.Close()
	}
	return errors.Is(err, control.ErrNoDaemon)
}

// explainWait notes why the daemon of this host does not take a pending job.
func (f *follower) explainWait(ctx context.Context) {
	if f.session.Daemon == nil || f.seen.GetLabels()[api.LabelClaim] != "" {
		return
	}
	brief, cancel := context.WithTimeout(ctx, explainInterval)
	defer cancel()
	snap, err := f.session.Daemon.Snapshot(brief)
	if err != nil {
		return // the watch will notice
	}
	for _, j := range snap.Jobs {
		if j.UID == string(f.seen.GetUID()) && j.WaitReason != f.waits {
			f.waits = j.WaitReason
			f.say("%s %s is left alone: %s", command.Timestamp(), j.Name, text.Clean(j.WaitReason))
		}
	}
}

// finalWait is how long a job in a final state may stay in the API before the wait ends. Its agent deletes it
// next; another server may keep it.
const finalWait = 2 * time.Second

// left returns the rest of finalWait, all of it while the job has not ended.
func (f *follower) left() time.Duration {
	if f.over.IsZero() {
		return finalWait
	}
	return finalWait - time.Since(f.over)
}

// see takes a new version of the job; false when it is another job of the same name.
func (f *follower) see(u *unstructured.Unstructured) bool {
	if u.GetUID() != f.seen.GetUID() {
		return false
	}
	f.seen = u
	if job, err := api.JobView(u); err == nil && job.Status.Finished > 0 && slices.Contains(finalStates, job.Status.State) {
		if f.over.IsZero() {
			f.over = time.Now()
		}
	} else {
		f.over = time.Time{}
	}
	f.show(false)
	return true
}

// finalStates are final.
var finalStates = []string{api.StateSuccess, api.StateWarning, api.StateError}

// draw shows the bar.
func (f *follower) draw() {
	if job, err := api.JobView(f.seen); err == nil {
		f.bar.draw(job, f.seen.GetName(), time.Now())
	}
}

// show prints a progress line when state or message have changed, at each tenth of progress, and when forced.
func (f *follower) show(anyway bool) {
	job, err := api.JobView(f.seen)
	if err != nil {
		f.printed = time.Now() // nothing to print for another beat
		return
	}
	st := job.Status
	key := fmt.Sprintf("%s %s %d %d", st.State, st.Message, int(st.Progress)/10, len(st.Errors))
	if key == f.last && !anyway {
		return
	}
	changed := key != f.last
	f.last, f.printed = key, time.Now()
	if f.stream && changed {
		// A stdout that fails ends the command.
		_ = f.run.PrintStream(command.StreamLine{Type: "job", Job: newJobMark(f.seen, job)})
	}
	if f.silent || f.bar.w != nil {
		return
	}
	line := fmt.Sprintf("%s %s %s", command.Timestamp(), f.seen.GetName(), stateText(st.State))
	if st.State == api.StateWorking {
		line += " " + progressText(st)
		if done, total := counts(st); total > 0 {
			line += fmt.Sprintf(" %d/%d", done, total)
		}
	}
	if st.Message != "" {
		line += " " + text.Clean(st.Message)
	}
	if n := len(st.Errors); n > 0 {
		line += fmt.Sprintf(" errors=%d", n)
	}
	f.say("%s", line)
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

func newJobMark(u *unstructured.Unstructured, job api.Job) *progressDoc {
	done, total := counts(job.Status)
	return &progressDoc{Name: u.GetName(), Namespace: u.GetNamespace(), UID: string(u.GetUID()), State: stateText(job.Status.State),
		Progress: min(max(job.Status.Progress, 0),
			100), Done: done, Total: total, Errors: len(job.Status.Errors), Message: job.Status.Message}
}
