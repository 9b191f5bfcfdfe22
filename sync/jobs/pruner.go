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

// Old history is deleted in two places: in the state file, by age, number and bytes, and as
// HistoricJobs in the API when an expiration is set. Age goes by the server's clock; while
// it is unknown nothing is pruned for its age.
//
// Many agents prune the same HistoricJobs: at times and in an order of their own, and one
// that finds that others have been faster leaves the rest of the pass to them.

const (
	minPrune = time.Second
	maxPrune = time.Hour
	// pruneBatch bounds the deletions of HistoricJobs that one pass asks for, to
	// the end of the page, and maxPrunePages the pages that it reads, so that a backlog
	// does not keep the API busy. The next pass goes on behind them.
	pruneBatch    = 1000
	maxPrunePages = 200
	// backlogPause is the pause between the passes through a backlog.
	backlogPause = 10 * time.Second
	// pruneYield is how many of the last 16 HistoricJobs have to be gone before a
	// pass takes it that another agent is at the same work, and stops.
	pruneYield = 4
	// refusedPause is how long a server is not called that has no HistoricJobs or
	// does not let them be deleted. That changes with its configuration only.
	refusedPause = 6 * time.Hour
	// trimEvery is after how many completions the bounds by number and bytes are
	// checked: the local history exceeds them by that many records at most.
	trimEvery = 64
)

// pruneResult is what one pass has done.
type pruneResult struct {
	Local, Remote int
	More          bool // the pass ended before its end
	Yielded       bool // because another agent does the same
}

// pruner prunes history.
type pruner struct {
	*env
	added atomic.Int64  // records
	wake  chan struct{} // capacity 1

	// Memory of Run.
	page       string    // of HistoricJobs where the next pass begins
	pauseUntil time.Time // of the calls to the API
	trimmed    bool      // the local history has been at its bounds by number or bytes
}

func newPruner(e *env) *pruner { return &pruner{env: e, wake: make(chan struct{}, 1)} }

// recordAdded records that a job is in history now.
func (p *pruner) recordAdded() {
	if p.added.Add(1)%trimEvery == 0 {
		notify(p.wake)
	}
}

// Run makes a pass every quarter of the window, at least hourly, and checks the
// bounds of the local history as it grows.
func (p *pruner) Run(ctx context.Context) {
	every := p.interval()
	if every == 0 {
		return
	}
	p.pauseUntil = time.Now().Add(rand.N(min(every/10, backlogPause) + 1))
	next := time.Now() // of the pass by age
	for ctx.Err() == nil {
		var r pruneResult
		var err error
		if wait := time.Until(next); wait > 0 {
			r.Local, err = p.trim(ctx)
			if soon := time.Now().Add(backlogPause); r.Local > 0 && p.o.OldestRecord != nil && soon.Before(next) {
				next = soon
			}
		} else {
			r, err = p.runOnce(ctx)
			next = p.after(r, every)
		}
		if err != nil && ctx.Err() == nil {
			p.events.once("prune", EventNote, jobRef{}, "history cannot be pruned: "+err.Error())
		}
		if r.Local+r.Remote > 0 {
			p.pruned(r.Local, r.Remote, "history pruned: "+plural(r.Local, "record")+", "+plural(r.Remote, "HistoricJob"))
		}
		wait(ctx, p.wake, next, true)
	}
}

// after is when the next pass is due.
func (p *pruner) after(r pruneResult, every time.Duration) time.Time {
	pause := every
	if r.More {
		pause = min(every, backlogPause)
	}
	if r.Yielded { // for a time of its own, or both would meet again
		pause += rand.N(3*pause + 1)
	}
	next := time.Now().Add(p.clock.host.jitter(pause))
	if p.pauseUntil.After(time.Now()) && p.pauseUntil.Before(next) {
		next = p.pauseUntil
	}
	return next
}

func (p *pruner) pruned(local, remote int, text string) {
	p.events.measure(HistoryPruned{local, remote})
	p.events.emit(EventPruned, jobRef{}, text)
}

// freeTries is how often history makes space for one result. When the disk is
// full of other files, more would cost history and gain nothing.
const freeTries = 3

// freeSpace drops a tenth of the local history, oldest first.
func (p *pruner) freeSpace(ctx context.Context) {
	n, err := p.store.HistoryCount(ctx)
	if err != nil || n == 0 {
		return
	}
	removed, err := p.store.TrimHistory(ctx, n*9/10)
	if err == nil && removed > 0 {
		p.pruned(removed, 0, plural(removed, "history record")+" removed to free space in the state file")
	}
}

// interval is 0 when there is nothing to prune ever.
func (p *pruner) interval() time.Duration {
	every := time.Duration(0)
	for _, window := range []time.Duration{p.o.HistoryExpiration, p.o.LocalHistory} {
		if window > 0 && (every == 0 || window/4 < every) {
			every = window / 4
		}
	}
	if every == 0 && (p.o.LocalRecords > 0 || p.o.LocalBytes > 0) {
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
	defer func() { p.trimmed = p.trimmed || removed > 0 }()
	if p.o.LocalRecords > 0 {
		if removed, err = p.store.TrimHistory(ctx, p.o.LocalRecords); err != nil {
			return removed, err
		}
	}
	if p.o.LocalBytes > 0 {
		n, err := p.store.TrimHistoryBytes(ctx, p.o.LocalBytes)
		if removed += n; err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// runOnce deletes what is too much or too old now.
func (p *pruner) runOnce(ctx context.Context) (r pruneResult, err error) {
	if r.Local, err = p.trim(ctx); err != nil {
		return r, err
	}
	now, bound, ok := p.clock.server.Now()
	if !ok || bound > time.Minute {
		return r, nil
	}
	if p.o.LocalHistory > 0 {
		n, err := p.store.PruneHistory(ctx, now.Add(-p.o.LocalHistory))
		if r.Local += n; err != nil {
			return r, err
		}
	}
	if p.o.HistoryExpiration > 0 && !time.Now().Before(p.pauseUntil) {
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
	before := now.Add(-p.o.HistoryExpiration)
	if p.o.OldestRecord == nil || !p.trimmed {
		return before, nil
	}
	oldest, err := p.o.OldestRecord(ctx)
	if oldest.After(before) {
		before = oldest
	}
	return before, err
}

// remote deletes old HistoricJobs, from the page on where the last pass has
// stopped.
func (p *pruner) remote(ctx context.Context, before time.Time, r *pruneResult) error {
	asked, recent := 0, uint16(0) // recent has a bit for each of the last deletions: gone already
	for pages := 0; ; pages++ {
		if pages == maxPrunePages || asked >= pruneBatch {
			r.More = true
			return nil
		}
		items, next, err := p.server.archivePage(ctx, p.o.Namespace, p.page)
		switch {
		case refused(err):
			return p.forbidden(err)
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
			err := p.server.deleteArchived(ctx, item.GetNamespace(), item.GetName(), string(item.GetUID()), item.GetResourceVersion())
			switch {
			case err == nil:
				r.Remote++
			case stale(err):
				recent |= 1
			case refused(err):
				return p.forbidden(err)
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

// refused reports that the server has no HistoricJobs or does not let them be deleted.
func refused(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err)
}

// forbidden stops the calls to the API for a long time.
func (p *pruner) forbidden(err error) error {
	p.page, p.pauseUntil = "", time.Now().Add(p.clock.host.jitter(refusedPause))
	p.events.once("prune historicjobs", EventNote, jobRef{}, "HistoricJobs are not pruned: "+string(apierrors.ReasonForError(err)))
	return nil
}

// secondsBelow tells a time in seconds from one in milliseconds: as milliseconds
// it would be before 1973. Older Grafana versions wrote seconds.
const secondsBelow = 100_000_000_000

// finishTime is when a HistoricJob ended, as far as it says.
func finishTime(u *unstructured.Unstructured) time.Time {
	for _, field := range []string{"finished", "started"} {
		v, _, _ := unstructured.NestedFieldNoCopy(u.Object, "status", field)
		n := number(v)
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
