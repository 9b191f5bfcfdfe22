package snapshot

import (
	"slices"
	"sync"
	"time"

	"limpet/sync/jobs"
)

const (
	// finishedFor is how long a finished job stays in the list of live ones.
	finishedFor = 60 * time.Second
	// maxEvents, maxFinished and maxSkipped bound the lists of events, of finished
	// jobs with their logs, and of jobs that this agent skips.
	maxEvents   = 200
	maxFinished = 200
	maxSkipped  = 2 * maxJobs
)

// Activity collects recent activity: events, finished jobs, the reasons why
// jobs are skipped, lost leases, and the results of the last hours. It is the
// consumer of the events of the job controller.
type Activity struct {
	hub  *Hub
	jobs JobOptions
	Runs *Runs

	mu       sync.Mutex // guards all below
	events   []Event    // oldest first
	finished []Job      // oldest first
	ends     []time.Time
	skipped  map[string]skippedJob // by UID
	lost     int
}

// skippedJob is a pending job that this agent does not claim.
type skippedJob struct{ namespace, name, reason string }

// NewActivity returns an Activity whose changes invalidate the snapshot of hub.
func NewActivity(hub *Hub, jobs JobOptions) *Activity {
	return &Activity{hub: hub, jobs: jobs, Runs: newRuns(), skipped: map[string]skippedJob{}}
}

// AddEvent adds one line to the event list.
func (a *Activity) AddEvent(e Event) {
	a.mu.Lock()
	a.events = append(a.events, e)
	if len(a.events) > maxEvents {
		a.events = slices.Clone(a.events[len(a.events)-maxEvents:])
	}
	a.mu.Unlock()
	a.hub.Invalidate()
}

// Observe consumes one event of the job controller. It does no I/O, because drivers
// wait for it.
func (a *Activity) Observe(e jobs.Event) {
	switch e.Type {
	case jobs.EventMeasure:
		return
	case jobs.EventRenewed, jobs.EventProgress, jobs.EventApplied:
		a.hub.Invalidate()
		return
	case jobs.EventSkipped:
		a.skip(e.UID, skippedJob{e.Namespace, e.Job, e.Text})
	case jobs.EventClaimed, jobs.EventResumed:
		a.unskip(e.UID)
	case jobs.EventLost:
		a.mu.Lock()
		a.lost++
		a.mu.Unlock()
	case jobs.EventCompleted:
		a.Runs.add(e.Namespace+"/"+e.Repository, e.State, e.At)
		a.addFinished(finishedRow(e, a.jobs))
	}
	level := e.Level
	if level == "debug" {
		level = "info"
	}
	a.AddEvent(Event{At: e.At, Level: level, Job: e.Job, Repo: e.Repository, Text: e.Text})
}

// addFinished keeps a finished job for finishedFor.
func (a *Activity) addFinished(j Job) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire(time.Now())
	a.ends = append(a.ends, j.Finished)
	a.finished = append(a.finished, j)
	if len(a.finished) > maxFinished {
		a.finished = slices.Clone(a.finished[len(a.finished)-maxFinished:])
	}
}

// skip records why a job is skipped, for at most maxSkipped jobs.
func (a *Activity) skip(uid string, s skippedJob) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.skipped[uid]; known || len(a.skipped) < maxSkipped {
		a.skipped[uid] = s
	}
}

func (a *Activity) unskip(uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.skipped, uid)
}

// skipReason returns why a job is skipped, "" when it is not known to be.
func (a *Activity) skipReason(uid string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.skipped[uid].reason
}

// Sweep drops skipped jobs that no longer exist.
func (a *Activity) Sweep(gone func(namespace, name, uid string) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid, s := range a.skipped {
		if gone(s.namespace, s.name, uid) {
			delete(a.skipped, uid)
		}
	}
}

// recentActivity is a copy of an Activity.
type recentActivity struct {
	events   []Event
	finished []Job // the latest
	ended    int   // number of jobs finished in the last minute
	lost     int
}

func (a *Activity) recent(now time.Time) recentActivity {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire(now)
	return recentActivity{slices.Clone(a.events), slices.Clone(a.finished), len(a.ends), a.lost}
}

// expire drops finished jobs after finishedFor. The caller holds mu.
func (a *Activity) expire(now time.Time) {
	old := func(at time.Time) bool { return now.Sub(at) >= finishedFor }
	a.finished = slices.DeleteFunc(a.finished, func(j Job) bool { return old(j.Finished) })
	a.ends = slices.DeleteFunc(a.ends, old)
}
