package jobs

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"limpet/sync/jobs/joblog"
)

// Types of Event.
const (
	EventSkipped   = "skipped"   // seen and skipped; Text has the reason
	EventClaimed   = "claimed"   //
	EventResumed   = "resumed"   // an own claim of an earlier run was taken up again
	EventProgress  = "progress"  // message or total of the job have changed
	EventTransfer  = "transfer"  // something came from a Git server, or did not; at most one a second
	EventApplied   = "applied"   // a resource was written or deleted
	EventRejected  = "rejected"  // a resource was not written: error or warning
	EventRenewed   = "renewed"   //
	EventRenewal   = "renewal"   // a renewal did not succeed; it is tried again
	EventLost      = "lost"      // the lease is lost, nothing more is written
	EventCancelled = "cancelled" // the job was told to stop
	EventReleased  = "released"  // given back to the queue
	EventRetry     = "retry"     // given back for another attempt after a transient failure
	EventCompleted = "completed" // in history and gone from the queue
	EventDead      = "dead"      // comes before completed: no attempt is left, State has the reason
	EventWaiting   = "waiting"   // the result is kept and sent when the API is back
	EventRequeued  = "requeued"  // the expired claim of another agent was removed
	EventFailed    = "failed"    // the job of an expired claim was ended as error
	EventDrain     = "drain"     // the agent claims nothing new, has nothing left to do, or claims again
	EventPruned    = "pruned"    // history was pruned
	EventNote      = "note"      // anything else worth a line, once
	EventMeasure   = "measure"   // Detail alone counts; neither logged nor shown
)

// Event is one step in the life of a job, for the dashboard, the log, the metrics and the streams.
// It is all that this package reports by itself; the state at a moment is in Snapshot. Job fields
// are empty where the event is about none.
type Event struct {
	At         time.Time `json:"at"`
	Type       string    `json:"type"`
	Level      string    `json:"level"` // debug, info, warn, error
	Namespace  string    `json:"namespace,omitempty"`
	Job        string    `json:"job,omitempty"`
	UID        string    `json:"uid,omitempty"`
	Repository string    `json:"repository,omitempty"`
	Action     string    `json:"action,omitempty"`
	Attempt    int       `json:"attempt,omitempty"`
	State      string    `json:"state,omitempty"` // of a completed job
	Text       string    `json:"text"`
	// Last is a completed job as it was at its end, with its whole log; nil when this agent did not
	// hold it.
	Last *Running `json:"-"`
	// Detail is one of the types below for EventMeasure, else nil.
	Detail any `json:"-"`
}

// Details of EventMeasure. A driver is the index of one of this agent's drivers as text, or
// DriverCleanup.
type (
	// HeldBegan and HeldEnded enclose the time in which a driver has a job under its claim. Each
	// HeldBegan has one HeldEnded with the same UID.
	HeldBegan struct{ UID, Driver, Action string }
	HeldEnded struct{ UID string }
	// ClaimAttempt is one write of claim labels.
	ClaimAttempt struct {
		Driver string
		Result ClaimResult
	}
	// FirstClaim is how long a job that is claimed for the first time has waited since it was created,
	// by the server's clock to the second.
	FirstClaim struct {
		Action string
		Waited time.Duration
	}
	// Processed is a job that has ended and is in history. Outcome is success, warning or error;
	// Changed is how many resources were created, updated or deleted; Took is from the claim to the
	// end.
	Processed struct {
		Action, Outcome string
		Changed         int64
		Took            time.Duration
	}
	// ResourceDone is the result of one resource.
	ResourceDone struct {
		Action string
		Result Result
	}
	// SyncPhase is one part of a sync; Phase "" is the whole of it. Sync is SyncFull or
	// SyncIncremental.
	SyncPhase struct {
		Sync, Phase string
		Took        time.Duration
	}
	// HistoryPruned is how many records of the state file and HistoricJobs of the API a pass has
	// deleted.
	HistoryPruned struct{ Local, Remote int }
	// RecordQueued is a record that was added to state.HistoryQueue.
	RecordQueued struct{}
	// Seen is changes of jobs that the watch has shown (SourceLive after it had synced, SourceInitial
	// before), or jobs that the periodic scan has found (SourceRelist). Late is how long after its
	// creation a job was seen, below 0 when that is not known.
	Seen struct {
		Source string
		Count  int
		Late   time.Duration
	}
	// KeyDone is one key of the queue that a driver is done with: how long it had waited, how long the
	// driver took with it, and whether it is tried again because something went wrong.
	KeyDone struct {
		Waited, Took time.Duration
		Retried      bool
	}
)

// DriverCleanup stands for a driver where the cleanup of expired claims works on a job.
const DriverCleanup = "cleanup"

// ClaimResult is the result of one write of claim labels.
type ClaimResult string

// Values of ClaimResult.
const (
	ClaimWon      ClaimResult = "won"
	ClaimConflict ClaimResult = "conflict" // another client has taken or changed the job
	ClaimError    ClaimResult = "error"
)

// Values of SyncPhase.Sync and Seen.Source.
const (
	SyncFull        = "full"
	SyncIncremental = "incremental"
	SourceLive      = "live"
	SourceInitial   = "initial"
	SourceRelist    = "relist"
)

// eventLevels has the level of each type of event that is not info.
var eventLevels = map[string]slog.Level{
	EventApplied: slog.LevelDebug, EventRenewed: slog.LevelDebug, EventProgress: slog.LevelDebug, EventSkipped: slog.LevelDebug,
	EventTransfer: slog.LevelDebug,
	EventRejected: slog.LevelWarn, EventRenewal: slog.LevelWarn, EventLost: slog.LevelWarn, EventCancelled: slog.LevelWarn,
	EventWaiting: slog.LevelWarn, EventRequeued: slog.LevelWarn, EventFailed: slog.LevelWarn, EventNote: slog.LevelWarn,
	EventRetry: slog.LevelWarn,
}

type emitter struct {
	log     *slog.Logger
	observe func(Event)
	logs    *joblog.Buffer

	mu   sync.Mutex // guards seen
	seen map[string]struct{}
}

func newEmitter(log *slog.Logger, observe func(Event)) *emitter {
	return &emitter{log: log, observe: observe, logs: joblog.New(), seen: map[string]struct{}{}}
}

// emit reports an event without a state.
func (e *emitter) emit(typ string, job jobRef, text string) { e.emitState(typ, job, "", text, nil) }

// emitState reports an event of a job that has ended in a state; last is what this agent knows of
// it.
func (e *emitter) emitState(typ string, job jobRef, state, text string, last *Running) {
	level := eventLevels[typ]
	switch {
	case typ == EventDead || state == "error" || state == stateDead:
		level = slog.LevelError
	case state == "warning" || state == stateCancelled: // a cancellation on request is no error
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{slog.String("step", typ)}
	if job.Name != "" {
		attrs = append(attrs, slog.String("job", job.String()), slog.String("uid", job.uid),
			slog.String("repo", job.repository), slog.Int("attempt", job.attempt))
	}
	if state != "" {
		attrs = append(attrs, slog.String("state", state))
	}
	e.log.LogAttrs(context.Background(), level, text, attrs...)
	event := Event{
		At: time.Now(), Type: typ, Level: strings.ToLower(level.String()), State: state, Text: text, Last: last,
		Namespace: job.Namespace, Job: job.Name, UID: job.uid, Repository: job.repository, Action: job.action, Attempt: job.attempt,
	}
	if typ != EventTransfer { // the log of the job would be nothing else
		e.logs.Add(job.uid, joblog.Line{At: event.At, Level: event.Level, Text: text})
	}
	if last != nil {
		last.Lines = e.logs.Lines(job.uid)
	}
	e.observe(event)
}

func (e *emitter) measure(detail any) {
	e.observe(Event{At: time.Now(), Type: EventMeasure, Detail: detail})
}

// maxSeen bounds the memory of once.
const maxSeen = 4096

// once reports an event only the first time that id occurs. It forgets all ids when there are too
// many, so at worst a line is repeated.
func (e *emitter) once(id, typ string, job jobRef, text string) {
	e.mu.Lock()
	if len(e.seen) >= maxSeen {
		clear(e.seen)
	}
	_, known := e.seen[id]
	e.seen[id] = struct{}{}
	e.mu.Unlock()
	if !known {
		e.emit(typ, job, text)
	}
}

// logger returns a logger whose lines carry the name of the job and are kept for the dashboard too:
// debug lines only when the log has them as well.
func (e *emitter) logger(job jobRef) *slog.Logger {
	level := slog.LevelInfo
	if e.log.Enabled(context.Background(), slog.LevelDebug) {
		level = slog.LevelDebug
	}
	base := e.log.With("job", job.String(), "uid", job.uid, "repo", job.repository, "attempt", job.attempt)
	return slog.New(slog.NewMultiHandler(base.Handler(), e.logs.Handler(job.uid, level)))
}
