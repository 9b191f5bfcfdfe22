package jobs

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/text"
)

const (
	minPrune = time.Second
	maxPrune = time.Hour
	// refusedPause is how long a server is not called that has no HistoricJobs or does not let them be
	// deleted. That changes with its configuration only.
	refusedPause = 6 * time.Hour
	// trimEvery is after how many completions the bounds by number and bytes are checked: the local
	// history exceeds them by that many records at most.
	trimEvery = 64
	// trimPause is the least time between two passes through the HistoricJobs.
	trimPause = 10 * time.Second
)

// pruner deletes old history: in the state file by age, number and bytes, and as HistoricJobs in
// the API when an expiration is set. Age goes by the server's clock; while it is unknown nothing is
// pruned for its age.
type pruner struct {
	env   *env
	added atomic.Int64  // records
	wake  chan struct{} // capacity 1

	// Memory of Run.
	last       time.Time // when the HistoricJobs were pruned
	pauseUntil time.Time // of the calls to the API
	trimmed    bool      // the local history has been at its bounds by number or bytes
}

func (p *pruner) recordAdded() {
	if p.added.Add(1)%trimEvery == 0 {
		notify(p.wake)
	}
}

// Run makes a pass every quarter of the window, at least hourly, and whenever the local history has
// grown.
func (p *pruner) Run(ctx context.Context) {
	every := p.interval()
	if every == 0 {
		return
	}
	for ctx.Err() == nil {
		local, err := p.local(ctx)
		remote := 0
		pause := every
		if local > 0 && p.env.o.OldestRecord != nil {
			pause = min(every, trimPause)
		}
		if err == nil && time.Since(p.last) >= pause*9/10 {
			remote, err = p.remote(ctx)
		}
		if err != nil && ctx.Err() == nil {
			p.env.events.once("prune", EventNote, jobRef{}, "history cannot be pruned: "+err.Error())
		}
		if local+remote > 0 {
			p.pruned(local, remote, "history pruned: "+text.Plural(local, "record")+", "+text.Plural(remote, "HistoricJob"))
		}
		wait(ctx, p.wake, time.Now().Add(p.env.clock.host.jitter(every)), true)
	}
}

func (p *pruner) pruned(local, remote int, text string) {
	p.env.events.measure(HistoryPruned{local, remote})
	p.env.events.emit(EventPruned, jobRef{}, text)
}

// freeSpace drops a tenth of the local history, oldest first.
func (p *pruner) freeSpace(ctx context.Context) {
	n, err := p.env.store.HistoryCount(ctx)
	if err != nil || n == 0 {
		return
	}
	removed, err := p.env.store.TrimHistory(ctx, n*9/10)
	if err == nil && removed > 0 {
		p.pruned(removed, 0, text.Plural(removed, "history record")+" removed to free space in the state file")
	}
}

// interval is 0 when there is nothing to prune ever.
func (p *pruner) interval() time.Duration {
	if p.env.o.HistoryExpiration == 0 && p.env.o.LocalHistory == 0 && p.env.o.LocalRecords == 0 && p.env.o.LocalBytes == 0 {
		return 0
	}
	every := maxPrune
	for _, window := range []time.Duration{p.env.o.HistoryExpiration, p.env.o.LocalHistory} {
		every = min(every, cmp.Or(window/4, maxPrune))
	}
	return max(every, minPrune)
}

// local deletes what is too much or too old in the state file, the oldest first.
func (p *pruner) local(ctx context.Context) (removed int, err error) {
	count := func(n int, failed error) { removed, err = removed+n, cmp.Or(err, failed) }
	if p.env.o.LocalRecords > 0 {
		count(p.env.store.TrimHistory(ctx, p.env.o.LocalRecords))
	}
	if p.env.o.LocalBytes > 0 {
		count(p.env.store.TrimHistoryBytes(ctx, p.env.o.LocalBytes))
	}
	p.trimmed = p.trimmed || removed > 0
	if now, known := p.now(); known && p.env.o.LocalHistory > 0 {
		count(p.env.store.PruneHistory(ctx, now.Add(-p.env.o.LocalHistory)))
	}
	return removed, err
}

func (p *pruner) now() (now time.Time, known bool) {
	now, bound, ok := p.env.clock.server.Now()
	return now, ok && bound <= time.Minute
}

// window is the time before which HistoricJobs are too old.
func (p *pruner) window(ctx context.Context, now time.Time) (before time.Time, err error) {
	before = now.Add(-p.env.o.HistoryExpiration)
	if p.env.o.OldestRecord == nil || !p.trimmed {
		return before, nil
	}
	oldest, err := p.env.o.OldestRecord(ctx)
	if oldest.After(before) {
		before = oldest
	}
	return before, err
}

// pruneParallel is how many HistoricJobs are deleted at a time: each delete waits for the disk of
// the server, which takes several in one write.
const pruneParallel = 16

// remote deletes old HistoricJobs, as other agents may do too.
func (p *pruner) remote(ctx context.Context) (removed int, err error) {
	now, known := p.now()
	if p.env.o.HistoryExpiration == 0 || !known || time.Now().Before(p.pauseUntil) {
		return 0, nil
	}
	p.last = time.Now()
	before, err := p.window(ctx, now)
	if err == nil {
		removed, err = p.deleteBefore(ctx, before)
	}
	if !refused(err) {
		return removed, err
	}
	p.pauseUntil = time.Now().Add(p.env.clock.host.jitter(refusedPause))
	p.env.events.once("prune historicjobs", EventNote, jobRef{}, "HistoricJobs are not pruned: "+string(apierrors.ReasonForError(err)))
	return removed, nil
}

// deleteBefore deletes the HistoricJobs of jobs that finished before a time.
func (p *pruner) deleteBefore(ctx context.Context, before time.Time) (int, error) {
	var deleted atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(pruneParallel)
	err := p.env.server.list(ctx, api.HistoricJobs, p.env.o.Namespace, "", func(historic *unstructured.Unstructured) error {
		if finishTime(historic).Before(before) {
			g.Go(func() error {
				err := p.env.server.delete(ctx, api.HistoricJobs, historic)
				if err == nil {
					deleted.Add(1)
				} else if stale(err) { // another agent was faster
					return nil
				}
				return err
			})
		}
		return nil
	})
	err = cmp.Or(g.Wait(), err) // a delete that fails ends the list
	return int(deleted.Load()), err
}

// refused reports that the server has no HistoricJobs or does not let them be deleted.
func refused(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err)
}

// secondsBelow tells a time in seconds from one in milliseconds: as milliseconds it would be before 1973. Older Grafana
// versions wrote seconds.
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
