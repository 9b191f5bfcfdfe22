package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"limpet/tui/cli/command"
	"limpet/tui/cli/history"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/text"
)

// outcomeWait is how long the record of a finished job may take to appear: the agent writes it before it
// deletes the job, but another server may be slow.
const outcomeWait = 15 * time.Second

// deletedWait is the same for a job that was last seen pending. It may have run and ended between two
// requests.
const deletedWait = time.Second

// End is the end of a job.
type End struct {
	state  string // as the history names it
	status api.JobStatus
}

// outcome waits for the record of a job that is gone.
func (f *follower) outcome(ctx context.Context) (*End, error) {
	patience := outcomeWait
	if !f.over.IsZero() {
		patience = deletedWait // its status is complete
	}
	if f.unclaimed() {
		patience = deletedWait
	}
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		end, err := ending(ctx, f.session, f.seen)
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

// unclaimed reports whether the job was last seen pending.
func (f *follower) unclaimed() bool {
	job, err := api.JobView(f.seen)
	return err == nil && f.seen.GetLabels()[api.LabelClaim] == "" && stateText(job.Status.State) == api.StatePending
}

// guessEnd returns the end of a job without a record: the last status, if it is final.
func (f *follower) guess() (*End, error) {
	job, err := api.JobView(f.seen)
	if err != nil {
		return nil, err
	}
	switch {
	case f.unclaimed():
		return nil, command.Errorf(command.ExitCancelled, "limpet job list", "job %s was deleted before it was claimed", f.seen.GetName())
	case job.Status.Finished > 0:
		return &End{job.Status.State, job.Status}, nil
	}
	return nil, command.Errorf(command.ExitError, "limpet history list",
		"job %s is gone and left no record: it was deleted, or its server keeps history elsewhere", f.seen.GetName())
}

// ending returns the record of a job, from the state file when it is open, else from the HistoricJobs of the
// API. It returns nil when there is none yet.
func ending(ctx context.Context, s *command.Session, u *unstructured.Unstructured) (*End, error) {
	if s.Store != nil {
		records, err := s.Store.History(ctx, state.Query{UID: string(u.GetUID()), Limit: 1})
		// The API may answer although the daemon does not.
		if err == nil && len(records) == 1 {
			return endingOf(records[0]), nil
		}
	}
	page, err := s.Client.Resource(api.HistoricJobs).Namespace(u.GetNamespace()).List(ctx,
		metav1.ListOptions{LabelSelector: api.LabelOriginalUID + "=" + string(u.GetUID())})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err):
		return nil, nil // normal for servers that keep history elsewhere
	case err != nil || len(page.Items) == 0:
		return nil, err
	}
	job, err := api.JobView(&page.Items[0])
	return &End{job.Status.State, job.Status}, err
}

// watchEnded prints the end of a job that had ended before the watch began, and returns its error.
func watchEnded(ctx context.Context, e *command.Env, s *command.Session, job string) error {
	// The local history belongs to the server of the local agent.
	if s.Daemon == nil && !e.Embedded() {
		s.Store = nil
	} else if err := OpenHistory(ctx, e, s); err != nil {
		return err
	}
	u, end, at, err := ended(ctx, s, e.Flags.ListNamespace(), job)
	if err != nil {
		return err
	}
	if u == nil {
		return command.Errorf(command.ExitError, "limpet job list; limpet history list", "no job %q, neither live nor finished", job)
	}
	e.Notef("%s has ended already, %s ago", u.GetName(), command.Since(time.Now(), at))
	return printEnding(e, u, end, e.Flags.Data())
}

// ended returns the end of a finished job by its UID or name, and when: from the history of this host, unless
// it belongs to another server, or from the HistoricJobs of the API, where other agents leave theirs; the
// later one of both. A nil object means there is none.
func ended(ctx context.Context, s *command.Session, namespace, job string) (*unstructured.Unstructured, *End, time.Time, error) {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	var rec state.Record
	err := history.ErrNoRecord
	if s.Store != nil {
		rec, err = history.FindRecord(ctx, s.Store, namespace, job)
	}
	if err != nil && !errors.Is(err, history.ErrNoRecord) {
		return nil, nil, time.Time{}, err
	}
	known := err == nil
	var past api.Job
	kept, err := archived(ctx, s, namespace, job)
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
	return u, &End{past.Status.State, past.Status}, api.TimeOfMillis(past.Status.Finished), nil
}

// endingOf returns the end of a record.
func endingOf(rec state.Record) *End {
	end := &End{state: rec.State}
	_ = json.Unmarshal(rec.Status, &end.status) // a record without a status has less to show
	return end
}

// recordHint is the command that shows a record.
func recordHint(uid string) string { return "limpet history show " + uid }

// printEnding prints the end of a job and returns the error for its exit code.
func printEnding(e *command.Env, u *unstructured.Unstructured, end *End, stream bool) error {
	st := end.status
	result := map[string]any{"name": u.GetName(), "namespace": u.GetNamespace(), "uid": u.GetUID(), "state": end.state, "status": st}
	if stream {
		if err := e.PrintStream(command.StreamLine{Type: "ended", Ended: result}); err != nil {
			return err
		}
		return end.Err(recordHint(string(u.GetUID())))
	}
	err := e.PrintOne(result, "job/"+u.GetName(), func(w io.Writer) {
		took := api.TimeOfMillis(st.Finished).Sub(api.TimeOfMillis(st.Started)).Round(10 * time.Millisecond)
		fmt.Fprintf(w, "job/%s %s in %s: %s\n", u.GetName(), text.Clean(end.state), took, text.Clean(st.Message))
		for _, sum := range st.Summary {
			fmt.Fprintf(w, "  %s: %d created, %d updated, %d deleted, %d warnings, %d errors\n", history.KindText(sum.Kind), sum.Create,
				sum.Update, sum.Delete, sum.Warning, sum.Error)
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
	return end.Err(recordHint(string(u.GetUID())))
}

// Err returns nil for a success, else an error with the exit code of the end.
func (e *End) Err(hint string) error {
	switch e.state {
	case api.StateSuccess:
		return nil
	case api.StateWarning:
		return command.Errorf(command.ExitPartial, hint, "the job ended with warnings")
	case history.StateCancelled:
		return command.Errorf(command.ExitCancelled, hint, "the job was cancelled")
	case history.StateDead:
		return command.Errorf(command.ExitJobFailed, hint, "the job has no attempt left")
	}
	for _, sum := range e.status.Summary {
		if sum.Error > 0 && sum.Write > 0 {
			return command.Errorf(command.ExitPartial, hint, "the job ended with errors in some resources")
		}
	}
	return command.Errorf(command.ExitJobFailed, hint, "the job ended in %s", text.Clean(e.state))
}
