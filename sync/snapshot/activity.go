package snapshot

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"limpet/state"
	"limpet/sync/jobs"
	"limpet/sync/kube"
)

const (
	// finishedFor is how long a finished job stays in the list of live ones.
	finishedFor = 60 * time.Second
	// maxEvents, maxFinished and maxSkipped bound the lists of events, of finished jobs with their
	// logs, and of jobs that this agent skips.
	maxEvents   = 200
	maxFinished = 200
	maxSkipped  = 2 * maxJobs
	// sweepEvery is how often memory is released, skipped jobs are swept and the history is counted
	// again.
	sweepEvery = 10 * time.Second
)

// Activity collects recent activity: events, finished jobs, the reasons why jobs are skipped, lost
// leases, and the results of the last hours. It is the consumer of the events of the job
// controller.
type Activity struct {
	hub  *Hub
	jobs JobOptions
	Runs *Runs

	mu     sync.Mutex // guards all below
	recent recentActivity
	ends   []time.Time           // of the jobs of finishedFor
	skips  map[string]skippedJob // by UID
}

// recentActivity is what a snapshot shows of an Activity.
type recentActivity struct {
	events   []Event // oldest first
	finished []Job   // oldest first; the latest
	ended    int     // number of jobs finished in the last minute
	lost     int
}

// skippedJob is a pending job that this agent does not claim.
type skippedJob struct{ namespace, name, reason string }

// NewActivity returns an Activity whose changes invalidate the snapshot of hub.
func NewActivity(hub *Hub, jobs JobOptions) *Activity {
	return &Activity{hub: hub, jobs: jobs, Runs: newRuns(), skips: map[string]skippedJob{}}
}

// AddEvent adds one line to the event list.
func (a *Activity) AddEvent(e Event) {
	a.mu.Lock()
	a.recent.events = appendLatest(a.recent.events, e, maxEvents)
	a.mu.Unlock()
	a.hub.Invalidate()
}

// Note adds an event about a repository, "" for none, that has just happened.
func (a *Activity) Note(repository, text string) {
	a.AddEvent(Event{At: time.Now(), Level: "info", Repo: repository, Text: text})
}

func appendLatest[T any](list []T, v T, limit int) []T {
	list = append(list, v)
	return slices.Delete(list, 0, max(len(list)-limit, 0))
}

// Observe consumes one event of the job controller. It does no I/O, because drivers wait for it.
func (a *Activity) Observe(e jobs.Event) {
	switch e.Type {
	case jobs.EventMeasure:
		return
	case jobs.EventRenewed, jobs.EventProgress, jobs.EventTransfer, jobs.EventApplied:
		a.hub.Invalidate()
		return
	case jobs.EventCompleted:
		var started time.Time
		if e.Last != nil {
			started = e.Last.Started
		}
		a.Runs.add(e.Namespace+"/"+e.Repository, e.State, e.At, started)
	}
	a.mu.Lock()
	switch e.Type {
	case jobs.EventSkipped:
		if _, known := a.skips[e.UID]; known || len(a.skips) < maxSkipped {
			a.skips[e.UID] = skippedJob{e.Namespace, e.Job, e.Text}
		}
	case jobs.EventClaimed, jobs.EventResumed:
		delete(a.skips, e.UID)
	case jobs.EventLost:
		a.recent.lost++
	case jobs.EventCompleted:
		a.addFinished(finishedRow(e, a.jobs))
	}
	a.mu.Unlock()
	level := e.Level
	if level == "debug" {
		level = "info"
	}
	a.AddEvent(Event{At: e.At, Level: level, Job: e.Job, UID: e.UID, Repo: e.Repository, Text: e.Text})
}

// addFinished keeps a finished job for finishedFor. The caller holds mu.
func (a *Activity) addFinished(j Job) {
	a.expire(time.Now())
	a.ends = append(a.ends, j.Finished)
	a.recent.finished = appendLatest(a.recent.finished, j, maxFinished)
}

// skipReason returns why a job is skipped, "" when it is not known to be.
func (a *Activity) skipReason(uid string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.skips[uid].reason
}

// Run releases memory after the start and once after a burst of work, because an agent waits most of
// its life and small boards have little to spare, drops skipped jobs that are gone, and counts the
// history, until ctx ends. busy reports whether a job runs.
func (a *Activity) Run(ctx context.Context, store *state.Store, queue *kube.Informer, busy func() bool, log *slog.Logger) error {
	if err := a.Runs.Load(ctx, store, time.Now()); err != nil && ctx.Err() == nil {
		log.Warn("read history", "err", err)
	}
	a.hub.Invalidate()
	releaseProgram() // the start does not come again
	released := -1   // the number of jobs that had ended at the last release
	for kube.Sleep(ctx, sweepEvery) == nil {
		if ended := a.Runs.Ended(); ended != released && !busy() {
			releaseMemory()
			released = ended
		}
		a.sweep(func(namespace, name, uid string) bool {
			job, ok := queue.Lookup(namespace, name)
			return !ok || job.UID() != uid
		})
		if err := a.Runs.Recount(ctx, store); err != nil && ctx.Err() == nil {
			log.Warn("count history", "err", err)
		}
	}
	return nil
}

// sweep drops skipped jobs that no longer exist.
func (a *Activity) sweep(gone func(namespace, name, uid string) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid, s := range a.skips {
		if gone(s.namespace, s.name, uid) {
			delete(a.skips, uid)
		}
	}
}

func (a *Activity) read(now time.Time) recentActivity {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire(now)
	out := a.recent
	out.events = slices.Clone(out.events)
	out.finished = slices.Clone(out.finished)
	out.ended = len(a.ends)
	return out
}

// expire drops finished jobs after finishedFor. The caller holds mu.
func (a *Activity) expire(now time.Time) {
	old := func(at time.Time) bool { return now.Sub(at) >= finishedFor }
	a.recent.finished = slices.DeleteFunc(a.recent.finished, func(j Job) bool { return old(j.Finished) })
	a.ends = slices.DeleteFunc(a.ends, old)
}
