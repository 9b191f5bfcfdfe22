package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/snapshot"
	"limpet/tui/cli/history"
)

// recordHistory answers the history queries of a dashboard from a state file.
type recordHistory struct{ desk control.Store }

// HistoryPage implements screen.Source.
func (c recordHistory) HistoryPage(ctx context.Context, q snapshot.HistoryQuery) (snapshot.HistoryPage, error) {
	records, err := c.desk.History(ctx, state.Query{Namespace: q.Namespace, Repository: q.Repository, Action: q.Action, States: q.States,
		Since: q.Since, Until: q.Until, Ref: q.Ref, Words: q.Words, Limit: q.Limit, Before: q.After, Brief: true})
	if err != nil {
		return snapshot.HistoryPage{}, err
	}
	info, err := c.desk.Info(ctx)
	if err != nil {
		return snapshot.HistoryPage{}, err
	}
	page := snapshot.HistoryPage{All: info.History, Rows: make([]snapshot.HistoryRow, len(records))}
	for i, r := range records {
		page.Rows[i] = rowOf(r)
	}
	if n := len(records); q.Limit > 0 && n == q.Limit {
		page.Next = records[n-1].Cursor()
	}
	return page, nil
}

func rowOf(r state.Record) snapshot.HistoryRow {
	row := snapshot.HistoryRow{UID: r.UID, Namespace: r.Namespace, Name: r.Name, Repository: r.Repository, Action: r.Action, State: r.State,
		Message: r.Message,
		Agent:   r.Agent, Started: r.Started, Finished: r.Finished, RefTo: r.RefTo, Attempts: len(r.Attempts)}
	if r.Commit != nil {
		row.Subject = r.Commit.Subject
	}
	if t := r.Tally; t != nil {
		row.Result = snapshot.JobResult{Errors: t.Errors, Warnings: t.Warnings, Only: t.Only, Created: t.Create, Updated: t.Update,
			Deleted: t.Delete, Counted: t.Counted}
	}
	return row
}

// PastJob implements screen.Source.
func (c recordHistory) PastJob(ctx context.Context, uid string) (snapshot.Job, error) {
	r, err := history.FindRecord(ctx, c.desk, "", uid)
	if err != nil {
		return snapshot.Job{}, err
	}
	return jobOf(r), nil
}

// jobOf returns a record as a finished job.
func jobOf(r state.Record) snapshot.Job {
	j := snapshot.Job{UID: r.UID, Namespace: r.Namespace, Name: r.Name, Repository: r.Repository, Action: r.Action, State: r.State,
		Message: r.Message,
		Created: r.Created, Started: r.Started, Finished: r.Finished, RefFrom: r.RefFrom, RefTo: r.RefTo, Attempt: max(len(r.Attempts),
			1), Progress: 100, Owner: "this"}
	if c := r.Commit; c != nil {
		j.Commit = &snapshot.Commit{Subject: c.Subject, Author: c.Author, At: c.At}
	}
	// Steps belong to the last attempt, which may have begun long after the job.
	at := r.Finished
	for _, s := range slices.Backward(r.Steps) {
		took := time.Duration(s.Seconds * float64(time.Second))
		at = at.Add(-took)
		j.Steps = append(j.Steps, snapshot.Step{Text: s.Text, At: at, Took: took})
	}
	slices.Reverse(j.Steps)
	var status api.JobStatus
	if json.Unmarshal(r.Status, &status) == nil { // else the record has no more
		j.Summary, j.Errors, j.Warnings, j.URLs = snapshot.Summaries(status.Summary), status.Errors, status.Warnings, snapshot.Links(status.URLs)
	}
	var spec api.JobSpec
	if json.Unmarshal(r.Spec, &spec) == nil {
		j.Detail = snapshot.JobDetail(r.Name, spec)
	}
	for _, a := range r.Attempts {
		level := "info"
		if a.State == api.StateError {
			level = "error"
		}
		at := a.Finished
		if at.IsZero() {
			at = a.Started
		}
		j.Log = append(j.Log, snapshot.Event{At: at, Level: level, Text: fmt.Sprintf("attempt %d: %s", a.N, history.AttemptText(a))})
	}
	return j
}
