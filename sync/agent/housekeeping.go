package agent

import (
	"context"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sync/errgroup"

	"limpet/sync/snapshot"
)

const (
	// saveEvery is the interval of saves: the greatest age of the snapshot after a
	// restart without the API. Each save costs one write, so it is rare: flash wears out.
	saveEvery = 5 * time.Minute
	// sweepEvery is how often memory is released, skipped jobs are swept and the
	// history is counted again.
	sweepEvery = 10 * time.Second
	// spareMemory is the memory beyond the live heap, in bytes, that is not worth a
	// collection of its own.
	spareMemory = 4 << 20
)

// housekeeping saves the snapshot, releases memory and refreshes counts until ctx
// ends.
func (a *Agent) housekeeping(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { a.saveSnapshots(ctx); return nil })
	g.Go(func() error { a.sweep(ctx); return nil })
	return g.Wait()
}

// saveSnapshots saves the snapshot for the next start, each saveEvery and at the
// end.
func (a *Agent) saveSnapshots(ctx context.Context) {
	saver := snapshot.NewSaver(a.cfg.Store)
	save := func(ctx context.Context, s *snapshot.Snapshot) {
		if err := saver.Save(ctx, s); err != nil {
			a.log.Warn("save snapshot", "err", err)
		}
	}
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			<-a.hub.Done()
			save(context.WithoutCancel(ctx), a.hub.Latest())
			return
		case <-tick.C:
			if s, err := a.hub.Next(ctx, 0); err == nil {
				save(ctx, s)
			}
		}
	}
}

func (a *Agent) sweep(ctx context.Context) {
	if err := a.activity.Runs.Load(ctx, a.cfg.Store, time.Now()); err != nil && ctx.Err() == nil {
		a.log.Warn("read history", "err", err)
	}
	a.hub.Invalidate()
	released := -1 // the number of jobs that had ended at the last release
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		released = a.releaseMemory(released)
		a.activity.Sweep(func(namespace, name, uid string) bool {
			job, ok := a.jobs.Lookup(namespace, name)
			return !ok || job.UID() != uid
		})
		if err := a.activity.Runs.Recount(ctx, a.cfg.Store); err != nil && ctx.Err() == nil {
			a.log.Warn("count history", "err", err)
		}
	}
}

// releaseMemory returns memory to the system once after a burst of work: an agent
// waits most of its life, and small boards have little to spare. Without jobs since
// the last time, what the heap is about to grow into again stays: each release
// costs a collection. It returns how many jobs have ended.
func (a *Agent) releaseMemory(before int) (ended int) {
	if len(a.controller.Snapshot().Running) > 0 {
		return before
	}
	ended = a.activity.Runs.Ended()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	needs := m.HeapAlloc
	if ended == before {
		needs = max(needs, m.NextGC+m.NextGC/10)
	}
	if m.HeapSys-m.HeapReleased > needs+spareMemory {
		debug.FreeOSMemory()
	}
	return ended
}
