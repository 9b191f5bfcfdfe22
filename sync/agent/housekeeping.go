package agent

import (
	"context"
	"runtime/debug"
	"time"

	"limpet/sync/snapshot"
)

const (
	// saveEvery is the interval of saves: the greatest age of the snapshot after a
	// restart without the API. Each save costs one write, so it is rare: flash wears out.
	saveEvery = 5 * time.Minute
	// sweepEvery is how often memory is released, skipped jobs are swept and the
	// history is counted again.
	sweepEvery = 10 * time.Second
)

// saveSnapshots saves the snapshot for the next start, each saveEvery and at the
// end.
func (a *Agent) saveSnapshots(ctx context.Context) error {
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
			return nil
		case <-tick.C:
			if s, err := a.hub.Next(ctx, 0); err == nil {
				save(ctx, s)
			}
		}
	}
}

// sweep releases memory once after a burst of work, because an agent waits most of its
// life and small boards have little to spare, drops what is known of jobs that are gone,
// and counts the history.
func (a *Agent) sweep(ctx context.Context) error {
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
			return nil
		case <-tick.C:
		}
		if ended := a.activity.Runs.Ended(); ended != released && len(a.controller.Snapshot().Running) == 0 {
			debug.FreeOSMemory()
			released = ended
		}
		a.activity.Sweep(func(namespace, name, uid string) bool {
			job, ok := a.jobs.Lookup(namespace, name)
			return !ok || job.UID() != uid
		})
		if err := a.activity.Runs.Recount(ctx, a.cfg.Store); err != nil && ctx.Err() == nil {
			a.log.Warn("count history", "err", err)
		}
	}
}
