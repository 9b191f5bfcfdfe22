package control

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/snapshot"
)

// HistoryPage returns a page of the history.
func (l *Local) HistoryPage(ctx context.Context, q snapshot.HistoryQuery) (page snapshot.HistoryPage, err error) {
	q.Brief = true
	if page.Rows, err = l.store.History(ctx, q); err != nil {
		return page, err
	}
	if n := len(page.Rows); q.Limit > 0 && n == q.Limit {
		page.Next = page.Rows[n-1].Cursor()
	}
	info, err := l.store.Info(ctx)
	page.All = info.History
	return page, err
}

// PastJob returns a finished job.
func (l *Local) PastJob(ctx context.Context, uid string) (snapshot.Job, error) {
	r, err := FindRecord(ctx, l.store, "", uid)
	if err != nil {
		return snapshot.Job{}, err
	}
	j := snapshot.Job{
		UID:        r.UID,
		Namespace:  r.Namespace,
		Name:       r.Name,
		Repository: r.Repository,
		Action:     r.Action,
		State:      r.State,
		Message:    r.Message,
		Created:    r.Created,
		Started:    r.Started,
		Finished:   r.Finished,
		RefFrom:    r.RefFrom,
		RefTo:      r.RefTo,
		Attempt:    max(len(r.Attempts), 1),
		Progress:   100,
		Owner:      "this",
		Commit:     r.Commit,
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
	for level, list := range map[string]*[]string{api.StateError: &j.Errors, api.StateWarning: &j.Warnings} {
		if all := issueTexts(r, level); len(all) > len(*list) {
			*list = all
		}
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
		j.Log = append(j.Log, snapshot.Event{
			At: cmp.Or(a.Finished, a.Started), Level: level, Text: fmt.Sprintf("attempt %d: %s", a.N, AttemptText(a)),
		})
	}
	return j, nil
}

// issueTexts returns the errors or the warnings that a record keeps beside its status, in the form of the texts there.
func issueTexts(r state.Record, level string) (out []string) {
	for _, i := range r.Issues {
		if i.State != level {
			continue
		}
		if i.Path != "" {
			i.Message += fmt.Sprintf(" (file: %s, name: %s, action: %s)", i.Path, i.Name, i.Action)
		}
		out = append(out, i.Message)
	}
	return out
}
