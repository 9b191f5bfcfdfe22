package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/resources"
)

// Causes with which the context of a worker ends (context.Cause). After any of them the worker returns as soon as it
// can, without beginning anything new.
var (
	// ErrLost reports that the job is no longer ours. Nothing may be written about it any more, neither to the job nor
	// to anything that it syncs.
	ErrLost = errors.New("lease lost")
	// ErrCancelled reports that the job was cancelled or deleted on request.
	ErrCancelled = errors.New("job cancelled")
	// ErrShutdown reports that the agent stops; the job goes back to the queue unless the worker finishes it within the
	// grace period.
	ErrShutdown = errors.New("agent is shutting down")
)

// Worker does the work of one job action. One Worker serves all drivers at once.
type Worker interface {
	// Action is the value of spec.action that the worker serves.
	Action() string
	// Ready returns nil when this agent can run the job, else why not (credentials missing, kind of repository
	// unknown): then the job is left alone for others. It must be quick; ctx has a deadline of a few seconds. Task has
	// no Progress and no Log here.
	Ready(ctx context.Context, job Task) error
	// Run does the work. It is at-least-once: all that it writes must be harmless when written twice. It ends soon
	// after ctx, whose cause is ErrLost, ErrCancelled, ErrShutdown or wraps context.DeadlineExceeded. A returned error
	// makes the job end as error, unless it is a *TransientError or a *kube.UnavailableError: then the job is released
	// and tried again, and ends as error when no attempt is left. Single resources that went wrong are recorded in
	// Progress instead. A panic ends the job as error.
	Run(ctx context.Context, t *Task) error
}

// Task is one run of a job.
type Task struct {
	// Object and Job are the job as it was claimed; they are not kept up to date and must not be changed.
	Object *unstructured.Unstructured
	Job    api.Job
	// Repo and Repository are the repository that the job names. Repo is nil for the orphan actions when the repository
	// is gone.
	Repo       *unstructured.Unstructured
	Repository api.Repository

	Namespace, Name, UID string
	// Attempt counts the claims of this job, from 1. Last reports that no other follows this one.
	Attempt int
	Last    bool
	// Mark is the last resume mark of an earlier run of this job by this agent, or nil.
	Mark     json.RawMessage
	Progress *Progress
	// Log carries the job's name; its lines also go to the dashboard.
	Log *slog.Logger
}

// Result is what happened to one resource. One with Err counts as an error, one with Warning as a warning, else its
// Action counts. Err of an Ignored result is shown but does not make the job fail.
type Result = resources.Result

// TransientError reports that work failed for a reason that is not the job's and may be over soon: a host that does not
// answer or is busy, a connection that broke. A worker returns it to have the job tried again.
type TransientError struct {
	Err error
	// After is how long the other side asked not to be called; 0 = it did not.
	After time.Duration
}

func (e *TransientError) Error() string { return e.Err.Error() }
func (e *TransientError) Unwrap() error { return e.Err }

// Transient reports whether err releases the job for another attempt, if there is one left: it is a *TransientError or
// a *kube.UnavailableError, or the run took longer than it may. Workers that write the state of a job elsewhere ask it.
func Transient(err error) bool {
	return errors.As(err, new(*TransientError)) || errors.As(err, new(*kube.UnavailableError)) || errors.As(err, new(timeoutError))
}

// timeoutError is the cause of a context whose job has run longer than this.
type timeoutError time.Duration

func (d timeoutError) Error() string { return "job did not end within " + time.Duration(d).String() }

// Is makes it a deadline for callers that do not know it.
func (d timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }
