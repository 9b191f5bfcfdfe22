package jobs

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Old history is deleted in two places: in the state file, and as HistoricJobs
// in the API when an expiration is set. Both go by the server's clock; while it
// is unknown nothing is pruned, so that a host that wakes up in 1970 or in 2036
// loses nothing.

const (
	minPrune = time.Second
	maxPrune = time.Hour
	// pruneBatch bounds the HistoricJobs that one pass deletes, so that a backlog
	// does not keep the API busy.
	pruneBatch = 1000
)

// pruneResult is what one pass has done.
type pruneResult struct {
	Local, Remote int
	More          bool // the pass ended at its bound
}

// prune runs a pass every quarter of the window, at least hourly.
func (c *Controller) prune(ctx context.Context) {
	every := c.pruneInterval()
	if every == 0 {
		return
	}
	for ctx.Err() == nil {
		r, err := c.pruneOnce(ctx)
		if err != nil && ctx.Err() == nil {
			c.once("prune", EventNote, about{}, "history cannot be pruned: "+err.Error())
		}
		if r.Local+r.Remote > 0 {
			c.tell(EventPruned, about{}, "history pruned: "+plural(r.Local, "record")+", "+plural(r.Remote, "HistoricJob"))
		}
		rest := every
		if r.More {
			rest = min(every, 10*time.Second)
		}
		pause(ctx, c.host.jitter(rest))
	}
}

// pruneInterval is 0 when there is nothing to prune ever.
func (c *Controller) pruneInterval() time.Duration {
	every := time.Duration(0)
	for _, window := range []time.Duration{c.o.HistoryExpiration, c.o.LocalHistory} {
		if window > 0 && (every == 0 || window/4 < every) {
			every = window / 4
		}
	}
	if every == 0 && c.o.LocalRecords > 0 {
		every = maxPrune
	}
	if every == 0 {
		return 0
	}
	return min(max(every, minPrune), maxPrune)
}

// pruneOnce deletes what is too old now.
func (c *Controller) pruneOnce(ctx context.Context) (r pruneResult, err error) {
	now, bound, ok := c.clock.Now()
	if !ok || bound > time.Minute {
		return r, nil
	}
	if c.o.LocalHistory > 0 {
		if r.Local, err = c.store.PruneHistory(ctx, now.Add(-c.o.LocalHistory)); err != nil {
			return r, err
		}
	}
	if c.o.LocalRecords > 0 {
		n, err := c.store.TrimHistory(ctx, c.o.LocalRecords)
		if r.Local += n; err != nil {
			return r, err
		}
	}
	if c.o.HistoryExpiration > 0 {
		err = c.pruneRemote(ctx, now.Add(-c.o.HistoryExpiration), &r)
	}
	return r, err
}

// pruneRemote deletes old HistoricJobs. Many agents may do it at once: what is
// gone is gone.
func (c *Controller) pruneRemote(ctx context.Context, before time.Time, r *pruneResult) error {
	for page := ""; ; {
		items, next, err := c.server.archivePage(ctx, c.o.Namespace, page)
		if refused(err) {
			return c.noPruning(err)
		}
		if apierrors.IsResourceExpired(err) && page != "" { // the list took too long
			r.More = true
			return nil
		}
		if err != nil {
			return err
		}
		for i := range items {
			if !finishTime(&items[i]).Before(before) {
				continue
			}
			if r.Remote >= pruneBatch {
				r.More = true
				return nil
			}
			err := c.server.deleteArchived(ctx, items[i].GetNamespace(), items[i].GetName(), string(items[i].GetUID()), items[i].GetResourceVersion())
			switch {
			case err == nil:
				r.Remote++
			case stale(err):
			case refused(err):
				return c.noPruning(err)
			default:
				return err
			}
		}
		if page = next; page == "" {
			return nil
		}
	}
}

// refused says that the server has no HistoricJobs or lets nobody delete them.
func refused(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err)
}

func (c *Controller) noPruning(err error) error {
	c.once("prune historicjobs", EventNote, about{}, "HistoricJobs are not pruned: "+string(apierrors.ReasonForError(err)))
	return nil
}

// secondsBelow tells a time in seconds from one in milliseconds: as milliseconds
// it would be before 1973. Older Grafana versions wrote seconds.
const secondsBelow = 100_000_000_000

// finishTime is when a HistoricJob ended, as far as it says.
func finishTime(u *unstructured.Unstructured) time.Time {
	for _, field := range []string{"finished", "started"} {
		v, _, _ := unstructured.NestedFieldNoCopy(u.Object, "status", field)
		n := updates(v)
		switch {
		case n <= 0:
		case n < secondsBelow:
			return time.Unix(n, 0)
		default:
			return time.UnixMilli(n)
		}
	}
	return u.GetCreationTimestamp().Time
}
