package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"limpet/state"
)

// simDisk is a state file: what it has acknowledged survives the process, what
// was under way at a crash may or may not. It can be full or refuse writes.
type simDisk struct {
	host     *simHost
	full     []window
	readOnly []window

	mu      sync.Mutex // guards the fields below
	claims  map[string]state.Claim
	records map[string]state.Record
	writes  map[string]uint64 // by kind and UID
}

// simLedger is a process's handle on the disk.
type simLedger struct {
	*simDisk
	p *simProcess
}

var _ store = simLedger{}

func newSimDisk(h *simHost) *simDisk {
	return &simDisk{host: h, claims: map[string]state.Claim{}, records: map[string]state.Record{}, writes: map[string]uint64{}}
}

// write takes a while. growth says that it needs room.
func (l simLedger) write(ctx context.Context, op, uid string, growth bool, fn func() error) error {
	l.mu.Lock()
	id := op + uid
	l.writes[id]++
	f := l.host.fate.about(id).of(l.writes[id])
	l.mu.Unlock()
	if l.p.dead.Load() {
		return errDead
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	<-time.After(l.host.awakeIn() + f.between(200*time.Microsecond, 6*time.Millisecond))
	if l.p.dead.Load() && f.likely(500) { // the crash came before the disk had it
		return errDead
	}
	now := time.Now()
	if _, yes := inside(l.readOnly, now); yes {
		return fmt.Errorf("%w: %w", state.ErrReadOnly, syscall.EROFS)
	}
	if _, yes := inside(l.full, now); yes && growth {
		if f.likely(500) {
			return state.ErrFull
		}
		return syscall.ENOSPC
	}
	l.mu.Lock()
	err := fn()
	l.mu.Unlock() // the lock of the world is taken before that of a disk
	if err != nil {
		return err
	}
	l.host.world.tale(l.p.name, "disk "+op, uid)
	if l.p.dead.Load() {
		return errDead
	}
	return nil
}

func (l simLedger) read() error {
	if l.p.dead.Load() {
		return errDead
	}
	return nil
}

func (l simLedger) PutClaim(ctx context.Context, k state.Claim) error {
	return l.write(ctx, "claim", k.UID, true, func() error { l.claims[k.UID] = k; return nil })
}

func (l simLedger) PutMark(ctx context.Context, uid string, mark json.RawMessage) error {
	return l.write(ctx, "mark", uid, true, func() error {
		k, ok := l.claims[uid]
		if !ok {
			return state.ErrNotFound
		}
		k.Mark = mark
		l.claims[uid] = k
		return nil
	})
}

func (l simLedger) Claims(context.Context) ([]state.Claim, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []state.Claim
	for _, uid := range slices.Sorted(maps.Keys(l.claims)) {
		out = append(out, l.claims[uid])
	}
	return out, l.read()
}

func (l simLedger) DropClaim(ctx context.Context, uid string) error {
	return l.write(ctx, "drop", uid, false, func() error { delete(l.claims, uid); return nil })
}

func (l simLedger) Complete(ctx context.Context, uid string, r state.Record) error {
	return l.write(ctx, "complete", uid, true, func() error {
		k, ok := l.claims[uid]
		if !ok {
			return state.ErrNotFound
		}
		old, again := l.records[uid]
		if again {
			for _, a := range old.Attempts {
				if !slices.ContainsFunc(r.Attempts, func(b state.Attempt) bool { return a.N == b.N }) {
					r.Attempts = append(r.Attempts, a)
				}
			}
			if r.HistoricJob == "" {
				r.HistoricJob = old.HistoricJob
			}
		}
		l.records[uid] = r
		k.Phase = state.PhaseCompleting
		l.claims[uid] = k
		return nil
	})
}

func (l simLedger) EndClaim(ctx context.Context, uid, historic string) error {
	return l.write(ctx, "end", uid, false, func() error {
		if r, ok := l.records[uid]; ok && historic != "" {
			r.HistoricJob = historic
			l.records[uid] = r
		}
		delete(l.claims, uid)
		return nil
	})
}

func (l simLedger) History(_ context.Context, q state.Query) ([]state.Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, ok := l.records[q.UID]; ok {
		return []state.Record{r}, l.read()
	}
	return nil, l.read()
}

func (l simLedger) HistoryCount(context.Context) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.records), l.read()
}

// Pruning keeps everything: the oracle wants to see it.
func (l simLedger) PruneHistory(context.Context, time.Time) (int, error) { return 0, l.read() }
func (l simLedger) TrimHistory(context.Context, int) (int, error)        { return 0, l.read() }
func (l simLedger) TrimHistoryBytes(context.Context, int64) (int, error) { return 0, l.read() }

// remembers says whether a claim is in the state file.
func (d *simDisk) remembers(uid, token string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.claims[uid].Token == token
}
