package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/text"
)

// outcomeWait is how long the record of a finished job may take to appear: the
// agent writes it before it deletes the job, but another server may be slow.
const outcomeWait = 15 * time.Second

// deletedWait is the same for a job that nobody had claimed when it was seen
// last. It may have been claimed, run and ended between two looks.
const deletedWait = time.Second

// ending is how a job has ended.
type ending struct {
	state  string // as the history calls it
	status api.JobStatus
}

// outcome waits for the record of a job that is gone.
func (f *follower) outcome(ctx context.Context) (*ending, error) {
	patience := outcomeWait
	if !f.over.IsZero() {
		patience = deletedWait // its status says it all
	}
	if f.unclaimed() {
		patience = deletedWait
	}
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		end, err := f.session.ending(ctx, f.seen)
		if end != nil {
			return end, nil
		}
		if err != nil && !f.wait(ctx, err) {
			return nil, err
		}
		if err == nil && time.Now().After(deadline) {
			return f.guess()
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// unclaimed says that nobody had taken the job when it went.
func (f *follower) unclaimed() bool {
	job, err := api.JobView(f.seen)
	return err == nil && f.seen.GetLabels()[api.LabelClaim] == "" && stateText(job.Status.State) == api.StatePending
}

// guess is the ending of a job that has left no record: what was seen last, if
// that was an end.
func (f *follower) guess() (*ending, error) {
	job, err := api.JobView(f.seen)
	if err != nil {
		return nil, err
	}
	switch {
	case f.unclaimed():
		return nil, fail(ExitCancelled, "limpet job list", "job %s was deleted before it was claimed", f.seen.GetName())
	case job.Status.Finished > 0:
		return &ending{job.Status.State, job.Status}, nil
	}
	return nil, fail(ExitError, "limpet history list", "job %s is gone and left no record: it was deleted, or its server keeps history elsewhere", f.seen.GetName())
}

// ending finds the record of a job: in the state file when it is at hand, else
// among the HistoricJobs of the API. It returns nil when there is none (yet).
func (s *session) ending(ctx context.Context, u *unstructured.Unstructured) (*ending, error) {
	if s.Desk != nil {
		records, err := s.Desk.History(ctx, state.Query{UID: string(u.GetUID()), Limit: 1})
		// A daemon that is away is no reason not to ask the API.
		if err == nil && len(records) == 1 {
			return endingOf(records[0]), nil
		}
	}
	page, err := s.Client.Resource(api.HistoricJobs).Namespace(u.GetNamespace()).List(ctx, metav1.ListOptions{LabelSelector: api.LabelOriginalUID + "=" + string(u.GetUID())})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err):
		return nil, nil // normal for servers that keep history elsewhere
	case err != nil || len(page.Items) == 0:
		return nil, err
	}
	job, err := api.JobView(&page.Items[0])
	return &ending{job.Status.State, job.Status}, err
}

// watchEnded is the end of a watch whose job had ended before it began: as if it had
// been there, with the exit code of that.
func (r *run) watchEnded(ctx context.Context, s *session, job string) error {
	// The history here is of the server that this host's agent works on.
	if s.Daemon == nil && !r.embedded() {
		s.Desk = nil
	} else if err := r.desk(ctx, s); err != nil {
		return err
	}
	u, end, at, err := s.ended(ctx, r.g.listNamespace(), job)
	if err != nil {
		return err
	}
	if u == nil {
		return fail(ExitError, "limpet job list; limpet history list", "no job %q, neither live nor finished", job)
	}
	r.note("%s has ended already, %s ago", u.GetName(), since(time.Now(), at))
	return r.printEnding(u, end, r.g.data())
}

// ended finds how a job has ended by its UID or name, and when: in the history of this
// host, which Desk is unless it is of another server, or among the HistoricJobs of the
// API, where other agents leave theirs; of two the one that ended later. A nil object
// says that there is none.
func (s *session) ended(ctx context.Context, namespace, job string) (*unstructured.Unstructured, *ending, time.Time, error) {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	var rec state.Record
	err := errNoRecord
	if s.Desk != nil {
		rec, err = findRecord(ctx, s.Desk, namespace, job)
	}
	if err != nil && !errors.Is(err, errNoRecord) {
		return nil, nil, time.Time{}, err
	}
	known := err == nil
	var past api.Job
	kept, err := s.archived(ctx, namespace, job)
	if err == nil && kept != nil {
		past, err = api.JobView(kept)
	}
	if known && (err != nil || kept == nil || !api.TimeOfMillis(past.Status.Finished).After(rec.Finished)) {
		u.SetName(rec.Name)
		u.SetNamespace(rec.Namespace)
		u.SetUID(types.UID(rec.UID))
		return u, endingOf(rec), rec.Finished, nil
	}
	if err != nil || kept == nil {
		return nil, nil, time.Time{}, err
	}
	u.SetName(archivedName(kept))
	u.SetNamespace(kept.GetNamespace())
	u.SetUID(types.UID(kept.GetLabels()[api.LabelOriginalUID]))
	return u, &ending{past.Status.State, past.Status}, api.TimeOfMillis(past.Status.Finished), nil
}

// endingOf is how a record tells the end.
func endingOf(rec state.Record) *ending {
	end := &ending{state: rec.State}
	_ = json.Unmarshal(rec.Status, &end.status) // one without a status tells less
	return end
}

// recordHint is the command that shows a record.
func recordHint(uid string) string { return "limpet history show " + uid }

// printEnding prints how a job has ended and returns the error for its exit
// code.
func (r *run) printEnding(u *unstructured.Unstructured, end *ending, stream bool) error {
	st := end.status
	result := map[string]any{"name": u.GetName(), "namespace": u.GetNamespace(), "uid": u.GetUID(), "state": end.state, "status": st}
	if stream {
		if err := r.printStream(streamLine{Type: "ended", Ended: result}); err != nil {
			return err
		}
		return end.failure(recordHint(string(u.GetUID())))
	}
	err := r.printOne(result, "job/"+u.GetName(), func(w io.Writer) {
		took := api.TimeOfMillis(st.Finished).Sub(api.TimeOfMillis(st.Started)).Round(10 * time.Millisecond)
		fmt.Fprintf(w, "job/%s %s in %s: %s\n", u.GetName(), text.Clean(end.state), took, text.Clean(st.Message))
		for _, sum := range st.Summary {
			fmt.Fprintf(w, "  %s: %d created, %d updated, %d deleted, %d warnings, %d errors\n", kindText(sum.Kind), sum.Create, sum.Update, sum.Delete, sum.Warning, sum.Error)
		}
		for _, e := range st.Errors {
			fmt.Fprintf(w, "  error: %s\n", text.Clean(e))
		}
		for _, e := range st.Warnings {
			fmt.Fprintf(w, "  warning: %s\n", text.Clean(e))
		}
	})
	if err != nil {
		return err
	}
	return end.failure(recordHint(string(u.GetUID())))
}

// failure is nil for a success, else an error with the exit code of the ending.
func (e *ending) failure(hint string) error {
	switch e.state {
	case api.StateSuccess:
		return nil
	case api.StateWarning:
		return fail(ExitPartial, hint, "the job ended with warnings")
	case stateCancelled:
		return fail(ExitCancelled, hint, "the job was cancelled")
	case stateDead:
		return fail(ExitJobFailed, hint, "the job has no attempt left")
	}
	for _, sum := range e.status.Summary {
		if sum.Error > 0 && sum.Write > 0 {
			return fail(ExitPartial, hint, "the job ended with errors in some resources")
		}
	}
	return fail(ExitJobFailed, hint, "the job ended in %s", text.Clean(e.state))
}
