package controller

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/reconcile"
)

// require finds what the artifact is made of besides the upstream.
func require(ctx context.Context, a *attempt) (done bool, err error) {
	a.upstream = a.spec.Open(Visit{Key: a.key, Object: a.obj, Timeout: a.common.timeout, KeepSymlinks: a.links, Stored: a.artifact})
	err = a.upstream.Require(ctx)
	return err != nil, err
}

// look asks the host what is the newest revision. It ends the reconcile when the artifact is that of
// the answer, made of the same as now.
func (c *Controller) look(ctx context.Context, a *attempt) (done bool, err error) {
	if host := a.spec.Host(); host != "" {
		leave, ok := c.o.Turns.looking.Enter(host) // a host that does not answer must not hold all workers
		if !ok {
			return true, reconcile.ErrBusy
		}
		defer leave()
	}
	limited, cancel := context.WithTimeout(ctx, a.common.timeout)
	defer cancel()
	found, err := a.upstream.Look(limited)
	if err != nil {
		return true, err
	}
	a.found = found
	list, _, _ := unstructured.NestedSlice(a.obj.Object, "status", "conditions")
	_, verified := api.FindCondition(list, SourceVerified) // another revision may have failed since
	demanded, _ := a.upstream.Signatures()
	same := a.artifact.Revision == a.found.Revision && a.artifact.Checksum == a.found.Checksum &&
		(!demanded || verified["status"] == "True")
	_, ready := api.FindCondition(list, condReady) // the note may change while the revision stays
	a.unchanged = same && !found.Newer && a.lost.Revision == "" && ready["message"] == c.readyMessage(a)
	return same, nil
}

// fetch brings the revision to this host. A source that is new or has another spec says in the
// status what takes long.
func (c *Controller) fetch(ctx context.Context, a *attempt) (done bool, err error) {
	if host := a.spec.Host(); host != "" {
		leave, ok := c.o.Turns.fetching.Enter(host)
		if !ok {
			return true, reconcile.ErrBusy
		}
		defer leave()
	}
	fetched := make(chan error, 1)
	go func() {
		received, err := a.upstream.Fetch(ctx)
		c.fetched.Add(received)
		fetched <- err
	}()
	slow := time.NewTimer(progressAfter)
	defer slow.Stop()
	select {
	case err = <-fetched:
	case <-slow.C:
		unwritten := c.writeProgress(ctx, a)
		if err = <-fetched; err == nil {
			err = unwritten
		}
	}
	if s, can := a.upstream.(Settler); can && err == nil {
		if found, is := s.Settled(); is {
			a.found = found
			return true, nil
		}
	}
	return err != nil, err
}
