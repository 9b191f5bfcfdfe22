package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/text"
	"limpet/tui/cli/command"
	"limpet/tui/cli/history"
)

const (
	// recordWait is how long the record of a finished job may take to appear: the agent
	// writes it before it deletes the job, but another server may be slow.
	recordWait = 15 * time.Second
	// shortRecordWait is the same for a job whose status is final, and for one that was
	// last seen pending: it may have run and ended between two requests.
	shortRecordWait = time.Second
)

// finishedJob returns a finished job: from the history of this host, which it opens if
// local, or from that of the API.
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
		err = command.Errorf(command.ExitError, "limpet job list; limpet history list", "no job %q, neither live nor finished", job)
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
		wait = shortRecordWait
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
			took := api.TimeOfMillis(st.Finished).Sub(api.TimeOfMillis(st.Started)).Round(10 * time.Millisecond)
			fmt.Fprintf(w, "job/%s %s in %s: %s\n", rec.Name, text.Clean(rec.State), took, text.Clean(st.Message))
			for _, sum := range st.Summary {
				fmt.Fprintf(w, "  %s: %s\n", history.KindText(sum.Kind), history.SummaryText(sum))
			}
			for _, e := range st.Errors {
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
