package agent

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"
)

const (
	// keepEvery is how old the picture may get that a restart without the API
	// shows. Each time costs one write, so it is rare: flash wears out.
	keepEvery = 5 * time.Minute
	// restEvery is how often the agent looks whether it has memory to give back.
	restEvery = 10 * time.Second
)

// keep puts the picture into the state file now and then, and gives memory back.
func (a *Agent) keep(ctx context.Context) error {
	save, rest := time.NewTicker(keepEvery), time.NewTicker(restEvery)
	defer save.Stop()
	defer rest.Stop()
	if err := a.runs.load(ctx, a.cfg.Store, time.Now()); err != nil {
		a.log.Warn("cannot read the history", "err", err)
	}
	a.board.touch()
	var kept []byte
	rested := -1 // the number of jobs that had ended when memory was given back last
	for {
		select {
		case <-ctx.Done():
			// The last picture is worth one more write.
			<-a.board.ended
			a.keepPicture(context.WithoutCancel(ctx), a.board.snapshot(), &kept)
			return nil
		case <-save.C:
			if now, err := a.board.glance(ctx); err == nil {
				a.keepPicture(ctx, now, &kept)
			}
		case <-rest.C:
			rested = a.rest(rested)
			a.board.forget(a.gone)
			if err := a.runs.recount(ctx, a.cfg.Store); err != nil && ctx.Err() == nil {
				a.log.Warn("cannot count the history", "err", err)
			}
		}
	}
}

// gone says that a job is not there any more.
func (a *Agent) gone(namespace, name, uid string) bool {
	seen, ok := a.jobs.Lookup(namespace, name)
	return !ok || seen.UID() != uid
}

// rest gives memory back to the system once after a burst of work: an agent
// waits most of its life, and what it waits with is what a board has to spare.
// Without jobs since the last time, what the heap is about to grow into again stays:
// each time costs a collection. It returns how many jobs have ended.
func (a *Agent) rest(before int) (ended int) {
	if len(a.controller.Snapshot().Running) > 0 {
		return before
	}
	ended = a.runs.ended()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	needs := m.HeapAlloc
	if ended == before {
		needs = max(needs, m.NextGC+m.NextGC/10)
	}
	if m.HeapSys-m.HeapReleased > needs+spare {
		debug.FreeOSMemory()
	}
	return ended
}

// spare is the memory beyond the live heap, in bytes, that is not worth a
// collection of its own.
const spare = 4 << 20

// storeSize is the size of the state file in bytes, 0 when it cannot be told.
func (a *Agent) storeSize() int64 {
	info, err := os.Stat(a.cfg.StatePath)
	if err != nil {
		return 0
	}
	return info.Size()
}

// residentBytes is the resident memory of this process, 0 where the system
// does not tell. Source: proc(5), statm, second field in pages.
func residentBytes() int64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(data)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
