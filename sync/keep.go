package sync

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	stdsync "sync"
	"time"

	"limpet/state"
	"limpet/sync/jobs"
	"limpet/sync/view"
)

const (
	// keepEvery is the period at which the picture is put aside for the
	// offline dashboard. One small write; the picture is a help, not a record.
	keepEvery = 30 * time.Second
	// runsEvery is the least time between two looks into the history for the
	// 24 hour line of the repositories.
	runsEvery = 10 * time.Second
	// hours is the length of that line.
	hours = 24
)

// SnapshotKind is the name under which the picture is kept in the state file.
const SnapshotKind = "view"

// observe takes the steps of the drivers: they become events, wake the board,
// and a finished job stays visible for a while.
func (a *Agent) observe(e jobs.Event) {
	switch e.Type {
	case jobs.EventLost:
		a.runs.lose()
	case jobs.EventCompleted:
		a.runs.refresh()
		a.board.finish(a.finished(e))
	case jobs.EventRenewed, jobs.EventProgress, jobs.EventApplied:
		a.board.touch()
		return
	}
	level := e.Level
	if level == "debug" {
		level = "info"
	}
	a.board.note(view.Event{At: e.At, Level: level, Job: e.Job, Repo: e.Repository, Text: e.Text})
}

// finished is the row of a job that has just ended: the last picture of it with
// the outcome of its record.
func (a *Agent) finished(e jobs.Event) view.Job {
	row := view.Job{UID: e.UID, Namespace: e.Namespace, Name: e.Job, Repository: e.Repository, Action: e.Action, Attempt: e.Attempt}
	for _, j := range a.board.snapshot().Jobs {
		if j.UID == e.UID {
			row = j
		}
	}
	row.State, row.Finished, row.Owner = e.State, e.At, "this"
	row.LeaseUntil, row.RenewAt = time.Time{}, time.Time{}
	records, err := a.cfg.Store.History(context.Background(), state.Query{UID: e.UID, Limit: 1})
	if err != nil || len(records) == 0 {
		return row
	}
	rec := records[0]
	row.State, row.Message, row.Started, row.Finished = rec.State, rec.Message, rec.Started, rec.Finished
	row.RefFrom, row.RefTo = rec.RefFrom, rec.RefTo
	row.Progress = 100
	var status struct {
		Errors   []string       `json:"errors"`
		Warnings []string       `json:"warnings"`
		Summary  []view.Summary `json:"summary"`
	}
	if json.Unmarshal(rec.Status, &status) == nil {
		row.Errors, row.Warnings, row.Summary = status.Errors, status.Warnings, status.Summary
	}
	return row
}

// keep puts the picture into the state file now and then, and reads the
// history for the board.
func (a *Agent) keep(ctx context.Context) error {
	save, look := time.NewTicker(keepEvery), time.NewTicker(runsEvery)
	defer save.Stop()
	defer look.Stop()
	a.lookBack(ctx)
	a.board.touch()
	for {
		select {
		case <-ctx.Done():
			// The last picture is worth one more write.
			a.saveSnapshot(context.WithoutCancel(ctx))
			return nil
		case <-save.C:
			a.saveSnapshot(ctx)
		case <-look.C:
			a.rest()
			if a.runs.stale() {
				a.lookBack(ctx)
				a.board.touch()
			}
		}
	}
}

// rest gives memory back to the system once after a burst of work: an agent
// waits most of its life, and what it waits with is what a board has to spare.
func (a *Agent) rest() {
	if len(a.controller.Live()) > 0 {
		return
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapSys-m.HeapReleased > m.HeapAlloc+spare {
		debug.FreeOSMemory()
	}
}

// spare is the memory beyond the live heap, in bytes, that is not worth a
// collection of its own.
const spare = 4 << 20

func (a *Agent) saveSnapshot(ctx context.Context) {
	snap := *a.board.snapshot()
	if !snap.API.Synced {
		return // it would replace a good picture by an empty one
	}
	snap.Events = nil
	data, err := json.Marshal(snap)
	if err == nil {
		err = a.cfg.Store.PutSnapshot(ctx, SnapshotKind, data)
	}
	if err != nil {
		a.log.Warn("cannot keep the picture for the offline dashboard", "err", err)
	}
}

func (a *Agent) lookBack(ctx context.Context) {
	now := time.Now()
	records, err := a.cfg.Store.History(ctx, state.Query{Since: now.Add(-hours * time.Hour)})
	if err != nil {
		a.log.Warn("cannot read the history", "err", err)
		return
	}
	count, err := a.cfg.Store.HistoryCount(ctx)
	if err != nil {
		a.log.Warn("cannot count the history", "err", err)
	}
	var size int64
	if info, err := os.Stat(a.cfg.StatePath); err == nil {
		size = info.Size()
	}
	a.runs.set(lines(records, now), size, count)
}

// lines makes the 24 hour line of each repository: the worst end of each hour,
// oldest hour first.
func lines(records []state.Record, now time.Time) map[string][]byte {
	out := map[string][]byte{}
	worse := map[byte]int{'.': 0, 's': 1, 'w': 2, 'e': 3}
	for _, rec := range records {
		ago := int(now.Sub(rec.Finished) / time.Hour)
		if ago < 0 || ago >= hours {
			continue
		}
		key := rec.Namespace + "/" + rec.Repository
		if out[key] == nil {
			out[key] = bytes.Repeat([]byte{'.'}, hours)
		}
		letter := byte('e')
		switch rec.State {
		case "success":
			letter = 's'
		case "warning":
			letter = 'w'
		}
		if at := hours - 1 - ago; worse[letter] > worse[out[key][at]] {
			out[key][at] = letter
		}
	}
	return out
}

// runHistory is what the board remembers of the state file between two looks.
type runHistory struct {
	mu      stdsync.Mutex // guards all below
	lines   map[string][]byte
	size    int64
	records int
	lost    int
	at      time.Time
	old     bool
}

func (r *runHistory) set(lines map[string][]byte, size int64, records int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines, r.size, r.records, r.at, r.old = lines, size, records, time.Now(), false
}

func (r *runHistory) of(namespace, name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.lines[namespace+"/"+name])
}

func (r *runHistory) store() (size int64, records int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.size, r.records
}

func (r *runHistory) lose() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost++
}

func (r *runHistory) lostCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

func (r *runHistory) refresh() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.old = true
}

// stale says that the history has changed, or that its hours have moved on.
func (r *runHistory) stale() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.old || time.Since(r.at) > time.Minute*10
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
