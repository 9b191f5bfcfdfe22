package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"limpet/state"
	"limpet/sync/api"
)

type gvr = schema.GroupVersionResource

const (
	mergePatch = types.MergePatchType
	applyPatch = types.ApplyPatchType
)

// outcomeWait is how long the record of a finished job may take to appear: the
// agent writes it before it deletes the job, but another server may be slow.
const outcomeWait = 15 * time.Second

type jobWatchCmd struct {
	Job string `arg:"" help:"Name of the job."`
}

func (c jobWatchCmd) Run(ctx context.Context, r *run) error {
	s, err := r.open(ctx, need{API: true})
	if err != nil {
		return err
	}
	defer s.Close()
	u, err := s.find(ctx, api.Jobs, r.g.listNamespace(), c.Job)
	if apierrors.IsNotFound(err) {
		return fail(ExitError, "limpet job list; limpet history show "+c.Job, "no live job %q", c.Job)
	}
	if err != nil {
		return err
	}
	return r.follow(ctx, s, u)
}

// follow prints the progress of a job until it is gone from the API, then how
// it ended. Its error carries the exit code of that end.
func (r *run) follow(ctx context.Context, s *session, u *unstructured.Unstructured) error {
	out := &progressLines{run: r}
	for ctx.Err() == nil {
		gone, err := s.watchOnce(ctx, u, out.show)
		if err != nil {
			return r.detached(ctx, u, err)
		}
		if gone {
			return r.outcome(ctx, s, u)
		}
	}
	return r.detached(ctx, u, context.Cause(ctx))
}

// detached is the end of a follow whose job goes on.
func (r *run) detached(ctx context.Context, u *unstructured.Unstructured, err error) error {
	if ctx.Err() == nil {
		return err
	}
	code := ExitCancelled
	if context.Cause(ctx) == context.DeadlineExceeded {
		code = ExitTimeout
	}
	return fail(code, "limpet job watch "+u.GetName(), "stopped waiting; the job goes on")
}

// watchOnce follows one watch of the job and reports whether it is gone. A
// watch that ends by itself is no error: the caller starts the next.
func (s *session) watchOnce(ctx context.Context, u *unstructured.Unstructured, show func(*unstructured.Unstructured)) (gone bool, err error) {
	res := s.Client.Resource(api.Jobs).Namespace(u.GetNamespace())
	page, err := res.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + u.GetName()})
	if err != nil {
		return false, err
	}
	if len(page.Items) == 0 || page.Items[0].GetUID() != u.GetUID() {
		return true, nil
	}
	show(&page.Items[0])
	w, err := res.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + u.GetName(), ResourceVersion: page.GetResourceVersion()})
	if err != nil {
		return false, err
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case e, ok := <-w.ResultChan():
			if !ok || e.Type == watch.Error {
				return false, nil
			}
			job, ok := e.Object.(*unstructured.Unstructured)
			if !ok || e.Type == watch.Bookmark {
				continue
			}
			if e.Type == watch.Deleted || job.GetUID() != u.GetUID() {
				return true, nil
			}
			show(job)
		}
	}
}

// outcome waits for the record of a finished job and prints it.
func (r *run) outcome(ctx context.Context, s *session, u *unstructured.Unstructured) error {
	deadline := time.Now().Add(outcomeWait)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		job, ok, err := s.finished(ctx, u)
		if err != nil {
			return err
		}
		if ok {
			return r.printOutcome(u, job)
		}
		if time.Now().After(deadline) {
			return fail(ExitError, "limpet history list", "job %s is gone and left no record: it was deleted, or its server keeps history elsewhere", u.GetName())
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// finished finds the record of a job: in the state file when it is at hand,
// else among the HistoricJobs of the API.
func (s *session) finished(ctx context.Context, u *unstructured.Unstructured) (api.Job, bool, error) {
	var job api.Job
	if s.Desk != nil {
		records, err := s.Desk.History(ctx, state.Query{UID: string(u.GetUID()), Limit: 1})
		if err == nil && len(records) == 1 {
			err = json.Unmarshal(records[0].Status, &job.Status)
			return job, err == nil, err
		}
	}
	page, err := s.Client.Resource(api.HistoricJobs).Namespace(u.GetNamespace()).List(ctx, metav1.ListOptions{LabelSelector: api.LabelOriginalUID + "=" + string(u.GetUID())})
	if apierrors.IsNotFound(err) || err == nil && len(page.Items) == 0 {
		return job, false, nil
	}
	if err != nil {
		return job, false, err
	}
	job, err = api.JobView(&page.Items[0])
	return job, err == nil, err
}

func (r *run) printOutcome(u *unstructured.Unstructured, job api.Job) error {
	st := job.Status
	result := map[string]any{"name": u.GetName(), "namespace": u.GetNamespace(), "uid": u.GetUID(), "status": st}
	err := r.g.printOne(r.world.Out, result, "job/"+u.GetName(), func(w io.Writer) {
		took := millis(st.Finished).Sub(millis(st.Started)).Round(10 * time.Millisecond)
		fmt.Fprintf(w, "job/%s %s in %s: %s\n", u.GetName(), st.State, took, plain(st.Message))
		for _, sum := range st.Summary {
			fmt.Fprintf(w, "  %s: %d created, %d updated, %d deleted, %d warnings, %d errors\n", sum.Kind, sum.Create, sum.Update, sum.Delete, sum.Warning, sum.Error)
		}
		for _, e := range st.Errors {
			fmt.Fprintf(w, "  error: %s\n", plain(e))
		}
		for _, e := range st.Warnings {
			fmt.Fprintf(w, "  warning: %s\n", plain(e))
		}
	})
	if err != nil {
		return err
	}
	hint := "limpet history show " + string(u.GetUID())
	switch st.State {
	case api.StateSuccess:
		return nil
	case api.StateWarning:
		return fail(ExitPartial, hint, "the job ended with warnings")
	}
	for _, sum := range st.Summary {
		if sum.Error > 0 && sum.Write > 0 {
			return fail(ExitPartial, hint, "the job ended with errors in some resources")
		}
	}
	return fail(ExitJobFailed, hint, "the job ended in %s", st.State)
}

// progressLines prints one line on stderr when the state or the message of a
// job changes, and at each tenth of the way.
type progressLines struct {
	run  *run
	last string
}

func (p *progressLines) show(u *unstructured.Unstructured) {
	job, err := api.JobView(u)
	if err != nil {
		return
	}
	st := job.Status
	key := fmt.Sprintf("%s %s %d %d", st.State, st.Message, int(st.Progress)/10, len(st.Errors))
	if key == p.last {
		return
	}
	p.last = key
	line := fmt.Sprintf("%s %s %s", time.Now().UTC().Format(time.RFC3339), u.GetName(), stateText(st.State))
	if st.State == api.StateWorking {
		line += fmt.Sprintf(" %.0f%%", min(st.Progress, 100))
	}
	if st.Message != "" {
		line += " " + plain(st.Message)
	}
	if n := len(st.Errors); n > 0 {
		line += fmt.Sprintf(" errors=%d", n)
	}
	p.run.note("%s", line)
}
