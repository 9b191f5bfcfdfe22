package apiserver

import (
	"cmp"
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/state"
)

// Events expire: a request for Events first deletes those that are old, or too many.
const (
	eventsKept     = 24 * time.Hour // as long as a failure that lasts is not recorded again
	mostEvents     = 1000
	expiryInterval = 10 * time.Second // between two looks
)

// expireEvents deletes the Events that were not counted up for eventsKept, and the oldest beyond
// mostEvents. What cannot be deleted now is deleted by a later request.
func (c *call) expireEvents(ctx context.Context) {
	now, last := time.Now(), c.server.expired.Load()
	if now.UnixNano()-last < int64(expiryInterval) || !c.server.expired.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	page, err := c.server.store.Objects(ctx, state.ObjectQuery{Resource: resourceName(c.target.kind)})
	slices.SortFunc(page.Items, func(a, b state.Object) int { return cmp.Compare(b.Revision, a.Revision) })
	for i, event := range page.Items {
		seen := text(event.Data, find(event.Data, "lastTimestamp"))
		at, bad := time.Parse(time.RFC3339, cmp.Or(seen, text(event.Data, find(event.Data, "metadata", "creationTimestamp"))))
		if i >= mostEvents || bad != nil || now.Sub(at) >= eventsKept {
			gone := c.target
			gone.namespace, gone.name, gone.subresource = event.Key.Namespace, event.Key.Name, ""
			_, _, failed := c.server.remove(ctx, gone, metav1.DeleteOptions{}, nil)
			err = cmp.Or(err, failed)
		}
	}
	if err != nil {
		c.server.log.Debug("events not expired", "err", err)
	}
}
