package jobs

import (
	"context"
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Old history is deleted in two places: in the state file, by age, number and
// bytes, and as HistoricJobs in the API when an expiration is set. Age goes by
// the server's clock; while it is unknown nothing is pruned for its age, so that a
// host that wakes up in 1970 or in 2036 loses nothing.
//
// Many agents prune the same HistoricJobs. They begin at times of their own and
// go through each page in an order of their own, and who finds that others have
// been faster leaves the rest of the pass to them.

const (
	minPrune = time.Second
	maxPrune = time.Hour
	// pruneBatch bounds the deletions of HistoricJobs that one pass asks for, to
	// the end of the page, and prunePages the pages that it reads, so that a backlog
	// does not keep the API busy. The next pass goes on behind them.
	pruneBatch = 1000
	prunePages = 200
	// pruneRest is the pause between the passes through a backlog.
	pruneRest = 10 * time.Second
	// pruneYield is how many of the last 16 HistoricJobs have to be gone before a
	// pass takes it that another agent is at the same work, and stops.
	pruneYield = 4
	// refusedRest is how long a server is left alone that has no HistoricJobs or
	// lets nobody delete them. That changes with its configuration only.
	refusedRest = 6 * time.Hour
	// trimEvery is after how many completions the bounds by number and bytes are
	// looked at: the local history is larger than they say by that many records.
	trimEvery = 64
)

// pruneResult is what one pass has done.
type pruneResult struct {
	Local, Remote int
	More          bool // the pass ended before its end
	Yielded       bool // because another agent does the same
}

// pruner is the memory of the prune loop.
type pruner struct {
	c     *Controller
	page  string    // of HistoricJobs where the next pass begins
	quiet time.Time // until then the API is left alone
	full  bool      // the local history has been at its bounds by number or bytes
}

// trimmer counts completions and wakes the prune loop.
type trimmer struct {
	ended atomic.Int64
	wake  chan struct{} // capacity 1
}

func newTrimmer() trimmer { return trimmer{wake: make(chan struct{}, 1)} }

// count notes that a job is in history now.
func (t *trimmer) count() {
	if t.ended.Add(1)%trimEvery != 0 {
		return
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// prune runs a pass every quarter of the window, at least hourly, and looks at the
// bounds of the local history as it grows.
func (c *Controller) prune(ctx context.Context) {
	every := c.pruneInterval()
	if every == 0 {
		return
	}
	p := &pruner{c: c, quiet: time.Now().Add(rand.N(min(every/10, pruneRest) + 1))}
	next := time.Now() // of the pass by age
	for ctx.Err() == nil {
		var r pruneResult
		var err error
		if wait := time.Until(next); wait > 0 {
			r.Local, err = p.trim(ctx)
			if soon := time.Now().Add(pruneRest); r.Local > 0 && c.o.OldestRecord != nil && soon.Before(next) {
				next = soon
			}
		} else {
			r, err = p.runOnce(ctx)
			rest := every
			if r.More {
				rest = min(every, pruneRest)
			}
			if r.Yielded { // for a time of its own, or both would meet again
				rest += rand.N(3*rest + 1)
			}
			next = time.Now().Add(c.host.jitter(rest))
			if p.quiet.After(time.Now()) && p.quiet.Before(next) {
				next = p.quiet
			}
		}
		if err != nil && ctx.Err() == nil {
			c.once("prune", EventNote, about{}, "history cannot be pruned: "+err.Error())
		}
		if r.Local+r.Remote > 0 {
			c.o.Meter.Pruned(r.Local, r.Remote)
			c.tell(EventPruned, about{}, "history pruned: "+plural(r.Local, "record")+", "+plural(r.Remote, "HistoricJob"))
		}
		wait(ctx, c.trims.wake, next, true)
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
	if every == 0 && (c.o.LocalRecords > 0 || c.o.LocalBytes > 0) {
		every = maxPrune
	}
	if every == 0 {
		return 0
	}
	return min(max(every, minPrune), maxPrune)
}

// trim deletes what is too much in the state file, the oldest first. That needs no
// clock.
func (p *pruner) trim(ctx context.Context) (removed int, err error) {
	c := p.c
	defer func() { p.full = p.full || removed > 0 }()
	if c.o.LocalRecords > 0 {
		if removed, err = c.store.TrimHistory(ctx, c.o.LocalRecords); err != nil {
			return removed, err
		}
	}
	if c.o.LocalBytes > 0 {
		n, err := c.store.TrimHistoryBytes(ctx, c.o.LocalBytes)
		if removed += n; err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// runOnce deletes what is too much or too old now.
func (p *pruner) runOnce(ctx context.Context) (r pruneResult, err error) {
	c := p.c
	if r.Local, err = p.trim(ctx); err != nil {
		return r, err
	}
	now, bound, ok := c.clock.Now()
	if !ok || bound > time.Minute {
		return r, nil
	}
	if c.o.LocalHistory > 0 {
		n, err := c.store.PruneHistory(ctx, now.Add(-c.o.LocalHistory))
		if r.Local += n; err != nil {
			return r, err
		}
	}
	if c.o.HistoryExpiration > 0 && !time.Now().Before(p.quiet) {
		before, err := p.window(ctx, now)
		if err != nil {
			return r, err
		}
		return r, p.remote(ctx, before, &r)
	}
	return r, nil
}

// window is the time before which HistoricJobs are too old.
func (p *pruner) window(ctx context.Context, now time.Time) (time.Time, error) {
	before := now.Add(-p.c.o.HistoryExpiration)
	if p.c.o.OldestRecord == nil || !p.full {
		return before, nil
	}
	oldest, err := p.c.o.OldestRecord(ctx)
	if oldest.After(before) {
		before = oldest
	}
	return before, err
}

// remote deletes old HistoricJobs, from the page on where the last pass has
// stopped.
func (p *pruner) remote(ctx context.Context, before time.Time, r *pruneResult) error {
	c := p.c
	asked, recent := 0, uint16(0) // recent has a bit for each of the last deletions: gone already
	for pages := 0; ; pages++ {
		if pages == prunePages || asked >= pruneBatch {
			r.More = true
			return nil
		}
		items, next, err := c.server.archivePage(ctx, c.o.Namespace, p.page)
		switch {
		case refused(err):
			return p.leave(err)
		case apierrors.IsResourceExpired(err) && p.page != "": // it was long ago
			p.page, r.More = "", true
			return nil
		case err != nil:
			return err
		}
		for _, i := range rand.Perm(len(items)) {
			item := &items[i]
			if !finishTime(item).Before(before) {
				continue
			}
			asked++
			recent <<= 1
			err := c.server.deleteArchived(ctx, item.GetNamespace(), item.GetName(), string(item.GetUID()), item.GetResourceVersion())
			switch {
			case err == nil:
				r.Remote++
			case stale(err):
				recent |= 1
			case refused(err):
				return p.leave(err)
			default:
				return err
			}
			if bits.OnesCount16(recent) >= pruneYield {
				p.page, r.More, r.Yielded = "", true, true
				return nil
			}
		}
		if p.page = next; next == "" {
			return nil
		}
	}
}

// refused says that the server has no HistoricJobs or lets nobody delete them.
func refused(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err)
}

// leave lets the API alone for a long time.
func (p *pruner) leave(err error) error {
	p.page, p.quiet = "", time.Now().Add(p.c.host.jitter(refusedRest))
	p.c.once("prune historicjobs", EventNote, about{}, "HistoricJobs are not pruned: "+string(apierrors.ReasonForError(err)))
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
