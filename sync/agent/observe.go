package agent

import (
	"time"

	"limpet/sync/api"
	"limpet/sync/jobs"
	"limpet/sync/snapshot"
)

// observe takes the steps of the drivers: they become events, wake the board,
// and a finished job stays visible for a while. It does no I/O; the drivers
// wait for it.
func (a *Agent) observe(e jobs.Event) {
	a.metrics.Observe(e)
	switch e.Type {
	case jobs.EventMeasure:
		return
	case jobs.EventSkipped:
		a.board.leave(e.UID, leaving{e.Namespace, e.Job, e.Text})
	case jobs.EventClaimed, jobs.EventResumed:
		a.board.take(e.UID)
	case jobs.EventLost:
		a.lost.Add(1)
	case jobs.EventCompleted:
		a.runs.add(e.Namespace+"/"+e.Repository, e.State, e.At)
		a.board.finish(a.finished(e))
	case jobs.EventRenewed, jobs.EventProgress, jobs.EventApplied:
		a.board.touch()
		return
	}
	level := e.Level
	if level == "debug" {
		level = "info"
	}
	a.board.note(snapshot.Event{At: e.At, Level: level, Job: e.Job, Repo: e.Repository, Text: e.Text})
}

// finished is the row of a job that has just ended.
func (a *Agent) finished(e jobs.Event) snapshot.Job {
	row := snapshot.Job{UID: e.UID, Namespace: e.Namespace, Name: e.Job, Repository: e.Repository, Action: e.Action, Attempt: e.Attempt}
	if e.Last != nil {
		if job, err := api.JobView(e.Last.Job); err == nil {
			row = a.paintJob(e.Last.Job, job)
		}
		hold(&row, *e.Last)
	}
	row.State, row.Message, row.Finished, row.Owner = e.State, e.Text, e.At, "this"
	row.Progress = 100
	if len(row.Errors) == 0 && row.State == api.StateError {
		row.Errors = []string{e.Text} // the driver's own, which no resource has told
	}
	row.LeaseUntil, row.RenewAt = time.Time{}, time.Time{}
	return row
}
