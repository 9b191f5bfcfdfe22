package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"limpet/sync/api"
	"limpet/sync/view"
)

const (
	// beat is the longest time without a progress line, so that a log shows
	// that the job still works.
	beat = 30 * time.Second
	// awayPause lies between tries while the API does not answer.
	awayPause = time.Second
	// askEvery is how often a daemon is asked why it does not take the job.
	askEvery = 2 * time.Second
)

type jobWatchCmd struct {
	Job string `arg:"" help:"Name or UID of a live job."`
}

func (c jobWatchCmd) Run(ctx context.Context, r *run) error {
	s, err := r.open(ctx, need{API: true})
	if err != nil {
		return err
	}
	defer s.Close()
	u, err := s.liveJob(ctx, r.g.listNamespace(), c.Job)
	if err != nil {
		return err
	}
	if u == nil {
		return fail(ExitError, "limpet job list; limpet history show "+c.Job, "no live job %q", c.Job)
	}
	return r.follow(ctx, s, u)
}

// follower waits for the end of one job. The job goes on whatever becomes of
// the follower; an API that does not answer for a while is waited for.
type follower struct {
	run     *run
	session *session
	seen    *unstructured.Unstructured // the job as it was seen last
	last    string                     // progress that was printed last
	printed time.Time
	away    bool   // the API did not answer when it was asked last
	waits   string // why the daemon does not take the job, as told last
}

// follow prints the progress of a job until it is gone from the API, then how
// it ended. Its error carries the exit code of that end.
func (r *run) follow(ctx context.Context, s *session, u *unstructured.Unstructured) error {
	f := &follower{run: r, session: s, seen: u}
	err := f.watch(ctx)
	var end *ending
	if err == nil {
		end, err = f.outcome(ctx)
	}
	if ctx.Err() != nil {
		return f.detached(ctx)
	}
	if err != nil {
		return err
	}
	return r.printEnding(u, end)
}

// detached is the end of a wait whose job goes on.
func (f *follower) detached(ctx context.Context) error {
	code := ExitCancelled
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		code = ExitTimeout
	}
	return fail(code, "limpet job watch "+f.seen.GetName(), "stopped waiting; the job goes on")
}

// watch returns nil when the job is gone, else the error that makes waiting
// pointless.
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
			rest(ctx, awayPause-time.Since(began)) // some servers and proxies end every watch at once
		}
	}
}

// rest lets some time pass, unless ctx ends.
func rest(ctx context.Context, d time.Duration) {
	pause := time.NewTimer(d)
	defer pause.Stop()
	select {
	case <-ctx.Done():
	case <-pause.C:
	}
}

// wait lets some time pass after an error, and says whether it is one that can
// pass away.
func (f *follower) wait(ctx context.Context, err error) bool {
	if !api.Retryable(err) {
		return false
	}
	if !f.away {
		f.away = true
		f.run.note("%s %s: no answer, still trying: %s", stamp(), f.seen.GetName(), view.Clean(api.Redact(errorText(err))))
	}
	after, _ := api.RetryAfter(err)
	rest(ctx, max(after, awayPause))
	return true
}

// watchOnce follows one watch of the job and reports whether it is gone. A
// watch that ends by itself is no error: the caller starts the next.
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
	w, err := jobs.Watch(ctx, metav1.ListOptions{FieldSelector: only, ResourceVersion: page.GetResourceVersion()})
	if err != nil {
		return false, err
	}
	defer w.Stop()
	still, ask := time.NewTicker(beat), time.NewTicker(askEvery)
	defer still.Stop()
	defer ask.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-still.C:
			f.show(time.Since(f.printed) >= beat)
		case <-ask.C:
			f.tellWhy(ctx)
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

// tellWhy says why the daemon of this host leaves a waiting job alone; without
// that a person would wait for ever and not know for what.
func (f *follower) tellWhy(ctx context.Context) {
	if f.session.Daemon == nil || f.seen.GetLabels()[api.LabelClaim] != "" {
		return
	}
	snap, err := f.session.Daemon.Snapshot(ctx)
	if err != nil {
		return // the watch finds out soon enough
	}
	for _, j := range snap.Jobs {
		if j.UID == string(f.seen.GetUID()) && j.Waits != f.waits {
			f.waits = j.Waits
			f.run.note("%s %s is left alone: %s", stamp(), j.Name, view.Clean(j.Waits))
		}
	}
}

// see takes a new picture of the job; false when it is of another job that has
// the same name.
func (f *follower) see(u *unstructured.Unstructured) bool {
	if u.GetUID() != f.seen.GetUID() {
		return false
	}
	f.seen = u
	f.show(false)
	return true
}

// show prints one line on stderr when the state or the message of the job has
// changed, at each tenth of its way, and when it is asked for.
func (f *follower) show(anyway bool) {
	job, err := api.JobView(f.seen)
	if err != nil {
		return
	}
	st := job.Status
	key := fmt.Sprintf("%s %s %d %d", st.State, st.Message, int(st.Progress)/10, len(st.Errors))
	if key == f.last && !anyway {
		return
	}
	f.last, f.printed = key, time.Now()
	line := fmt.Sprintf("%s %s %s", stamp(), f.seen.GetName(), stateText(st.State))
	if st.State == api.StateWorking {
		line += " " + progressText(st)
	}
	if st.Message != "" {
		line += " " + view.Clean(st.Message)
	}
	if n := len(st.Errors); n > 0 {
		line += fmt.Sprintf(" errors=%d", n)
	}
	f.run.note("%s", line)
}

func stamp() string { return time.Now().UTC().Format(time.RFC3339) }
