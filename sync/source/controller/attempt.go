package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/reconcile"
	"limpet/sync/source/artifact"
)

// attempt is one reconcile of a source. Each step reads what the steps before it have found, and
// adds its own.
type attempt struct {
	key    reconcile.Key
	obj    *unstructured.Unstructured
	memory *memory
	common common
	spec   Spec // nil = it was not looked at
	over   bool // the status is not written
	links  bool // symbolic links are kept

	sunk    string        // digest of the artifact that the directory was compared with
	sink    api.Condition // of the directory; zero = as it is
	sinkErr error         // is tried again
	program bool          // one follows the switch of the directory
	written bool          // the status was written, and the program may run

	artifact artifact.Artifact // the newest whose bytes are right; zero = none
	lost     artifact.Artifact // one whose bytes are not

	upstream  Upstream // nil until it is required
	found     Found
	unchanged bool // the artifact is that of the revision, made of the same as now
}

// common is the part of a spec that all kinds have.
type common struct {
	interval time.Duration
	timeout  time.Duration
}

// run runs the steps. An error that is no *Failure, or that is about the API, is not written to the
// status: nothing can be said of the source then.
func (c *Controller) run(ctx context.Context, a *attempt) (*Failure, error) {
	_, err := reconcile.Run(ctx, a, c.steps)
	_, away := errors.AsType[*kube.UnavailableError](err)
	if failed, is := errors.AsType[*Failure](err); is && !away && ctx.Err() == nil {
		return failed, nil
	}
	return nil, err
}

// Failure is why a source is not ready.
type Failure struct {
	Condition string // that says so
	Reason    string
	Err       error
	Stalled   bool          // until the spec changes or a reconcile is requested
	Unsigned  bool          // SourceVerified says so, too
	Wait      time.Duration // until it is tried again; 0 = the backoff, or stalledRetry
}

func (f *Failure) Error() string { return f.Reason + ": " + f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// Failed returns a failure of an upstream.
func Failed(reason, format string, args ...any) *Failure {
	return &Failure{Condition: FetchFailed, Reason: reason, Err: fmt.Errorf(format, args...)}
}

// Stalled returns a failure that ends with another spec.
func Stalled(reason, format string, args ...any) *Failure {
	f := Failed(reason, format, args...)
	f.Stalled = true
	return f
}

// The conditions of a source. Source: fluxcd/source-controller, api/v1/condition_types.go.
const (
	FetchFailed        = "FetchFailed"
	IncludeUnavailable = "IncludeUnavailable"
	BuildFailed        = "BuildFailed"
	StorageFailed      = "StorageOperationFailed"
	SourceVerified     = "SourceVerified" // its Failure makes it False

	condReady       = "Ready"
	condReconciling = "Reconciling"
	condStalled     = "Stalled"
	condStored      = "ArtifactInStorage"
	condOutdated    = "ArtifactOutdated"
)
