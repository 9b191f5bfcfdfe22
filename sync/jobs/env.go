package jobs

import (
	"context"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/failpoint"
	"limpet/sync/kube"
)

// store is the part of the state file that jobs need.
type store interface {
	PutClaim(ctx context.Context, k state.Claim) error
	Claims(ctx context.Context) ([]state.Claim, error)
	PutMark(ctx context.Context, uid string, mark json.RawMessage) error
	DropClaim(ctx context.Context, uid string) error
	Complete(ctx context.Context, uid string, r state.Record) error
	EndClaim(ctx context.Context, uid, historicJob string) error
	History(ctx context.Context, q state.Query) ([]state.Record, error)
	HistoryCount(ctx context.Context) (int, error)
	PruneHistory(ctx context.Context, before time.Time) (int, error)
	TrimHistory(ctx context.Context, maxRecords int) (int, error)
	TrimHistoryBytes(ctx context.Context, maxBytes int64) (int, error)
}

var _ store = (*state.Store)(nil)

// lister is the part of an informer that jobs need.
type lister interface {
	Get(namespace, name string) (*unstructured.Unstructured, bool)
	Objects() []kube.Object
	WaitSynced(ctx context.Context) error
	HasSynced() bool
}

var _ lister = (*kube.Informer)(nil)

// env is what every part of a Controller works with.
type env struct {
	o        Options
	server   server
	renewals server // over connections of its own
	store    store
	clock    clock
	events   *emitter
	claims   *claimTable
}

// pass marks a failpoint of a job: for tests of this package by the hook of one
// controller, for those of the whole program by the failpoint.
func (e *env) pass(point string, job jobRef) {
	if e.o.hook != nil {
		e.o.hook(point, job)
	}
	_ = failpoint.Pass(point) // errors are for places that can fail
}
