package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/jobs/queue"
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

// write takes a while. growth reports that it needs space.
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

func (l simLedger) Claim(_ context.Context, uid string) (state.Claim, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k, ok := l.claims[uid]
	if !ok {
		return k, state.ErrNotFound
	}
	return k, l.read()
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

// simGrafana is a replica of Grafana that works on the same queue, as its source
// does it: what is wrong there is wrong here.
type simGrafana struct {
	world         *simWorld
	name          string
	fate          fate
	generation    int           // 1, 15 for 1.5, or 2
	wrong         time.Duration // of its clock, by which it judges all claims
	expiry, renew time.Duration
	dice          atomic.Uint64 // of its one driver, and of what it archives for its reaper
	reaps         uint64
}

func (w *simWorld) addGrafana(f fate, i int) *simGrafana {
	g := &simGrafana{world: w, name: fmt.Sprint("g", i), fate: f, generation: []int{1, 15, 2}[f.n(3)], expiry: time.Minute,
		renew: 20 * time.Second}
	if g.generation == 1 {
		g.expiry, g.renew = 30*time.Second, 30*time.Second // no margin
	}
	g.wrong = f.of(1).between(-2*time.Second, 2*time.Second)
	if f.of(2).likely(200) {
		g.wrong = f.of(1).between(-3*time.Minute, 3*time.Minute)
	}
	return g
}

// millis is the time that it writes into claims: its own, not the server's.
func (g *simGrafana) millis() int64 { return g.world.now().Add(g.wrong).UnixMilli() }

// call is a request; some are lost.
func (g *simGrafana) call(ctx context.Context, do func() error) error {
	return g.send(ctx, g.fate.of(7, g.dice.Add(1)), do)
}

func (g *simGrafana) send(ctx context.Context, f fate, do func() error) error {
	if !waitFor(ctx, f.between(time.Millisecond, 40*time.Millisecond)) {
		return ctx.Err()
	}
	w := g.world
	if _, down := inside(w.down, time.Now()); down || time.Now().Before(w.calm) && f.likely(w.rough/2) {
		return errNoWay
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return do()
}

// run is the driver: every tick it looks for a job and works on it.
func (g *simGrafana) run(ctx context.Context) {
	for n := uint64(0); waitFor(ctx, g.pause(n)); n++ {
		for g.next(ctx) && ctx.Err() == nil {
		}
	}
}

// pause is the tick of the first generation, and soon after an event later.
func (g *simGrafana) pause(n uint64) time.Duration {
	if g.generation == 1 {
		return g.fate.of(8, n).between(29*time.Second, 31*time.Second)
	}
	return g.fate.of(8, n).between(200*time.Millisecond, 20*time.Second)
}

// next claims and processes one job.
func (g *simGrafana) next(ctx context.Context) bool {
	var found []*unstructured.Unstructured
	err := g.call(ctx, func() error {
		for _, k := range g.world.names() {
			if u := g.world.jobs[k]; api.Label(u, api.LabelClaim) == "" && len(found) < 16 {
				found = append(found, u)
			}
		}
		return nil
	})
	if err != nil {
		return false
	}
	for _, free := range found {
		job := free.DeepCopy()
		token := fmt.Sprint(g.name, ".", g.dice.Add(1))
		setClaim(job, g.millis(), token)
		if g.generation == 1 {
			api.SetLabel(job, api.LabelClaimOwner, "")
		}
		if job = g.put(ctx, job); job != nil {
			g.process(ctx, job)
			return true
		}
	}
	return false
}

func (g *simGrafana) put(ctx context.Context, job *unstructured.Unstructured) (out *unstructured.Unstructured) {
	_ = g.call(ctx, func() (err error) {
		out, err = g.world.putJob(g.name, simSent{}, job)
		return err
	})
	return out
}

func (g *simGrafana) get(ctx context.Context, k queue.Key) (out *unstructured.Unstructured, err error) {
	err = g.call(ctx, func() (err error) {
		out, err = g.world.getJob(k)
		return err
	})
	return out, err
}

// mine is what its generation checks before it renews, completes or gives back.
func (g *simGrafana) mine(local, now *unstructured.Unstructured) bool {
	if g.generation == 1 {
		return api.Label(now, api.LabelClaim) != ""
	}
	return now.GetUID() == local.GetUID() && api.Label(now, api.LabelClaimOwner) == api.Label(local, api.LabelClaimOwner)
}

// process works in steps, with a progress write after each, and renews between.
func (g *simGrafana) process(ctx context.Context, job *unstructured.Unstructured) {
	f := g.fate.about(api.Meta(job, "uid")).of(g.dice.Load())
	local, renewed, failures, lost := job, time.Now(), 0, false
	for step := range 1 + f.n(8) {
		if f.of(uint64(step)).likely(40) && time.Now().Before(g.world.calm) { // it dies
			waitFor(ctx, f.between(5*time.Second, 60*time.Second))
			return
		}
		if !waitFor(ctx, f.of(uint64(step)).between(100*time.Millisecond, 12*time.Second)) {
			return
		}
		local = g.progress(ctx, local)
		if time.Since(renewed) < g.renew {
			continue
		}
		now, err := g.get(ctx, keyOf(local))
		if err == nil && !g.mine(local, now) || apierrors.IsNotFound(err) {
			lost = true
			break
		}
		renewed = time.Now()
		if err == nil {
			api.SetLabel(now, api.LabelClaim, strconv.FormatInt(g.millis(), 10))
			now = g.put(ctx, now)
		}
		if now == nil || err != nil {
			if failures++; failures == 3 {
				lost = true
				break
			}
			continue
		}
		local, failures = now, 0
	}
	g.complete(ctx, local, lost)
}

// progress writes a status. After a conflict it goes on with whatever bears the
// name now: that job may be a stranger's.
func (g *simGrafana) progress(ctx context.Context, local *unstructured.Unstructured) *unstructured.Unstructured {
	for range 3 {
		next := local.DeepCopy()
		setStatus(next, api.JobStatus{State: api.StateWorking, Message: "working"})
		if out := g.put(ctx, next); out != nil {
			return out
		}
		now, err := g.get(ctx, keyOf(local))
		if err != nil {
			break
		}
		local = now
	}
	return local
}

// complete writes history first, also after the lease was lost.
func (g *simGrafana) complete(ctx context.Context, local *unstructured.Unstructured, lost bool) {
	g.archive(ctx, local)
	now, err := g.get(ctx, keyOf(local))
	if lost || err != nil || !g.mine(local, now) {
		return
	}
	uid := ""
	if g.generation > 1 {
		uid = api.Meta(local, "uid")
	}
	_ = g.call(ctx, func() error { return g.world.deleteJob(g.name, simSent{}, keyOf(local), uid, "") })
}

func (g *simGrafana) archive(ctx context.Context, job *unstructured.Unstructured) {
	h := job.DeepCopy()
	h.SetGenerateName(job.GetName() + "-")
	h.SetName("")
	api.SetLabel(h, api.LabelOriginalUID, api.Meta(job, "uid"))
	_ = g.call(ctx, func() error { return g.world.addHistoric(g.name, simSent{}, h) })
}

// reap fails the jobs whose claim is older than the expiry by its own clock, in
// its own order: delete, then history. A renewal in between saves no agent.
func (g *simGrafana) reap(ctx context.Context) {
	every := max(3*g.expiry, 30*time.Second)
	for ; waitFor(ctx, every-g.fate.of(9, g.reaps).between(0, every/5)); g.reaps++ {
		f := g.fate.of(10, g.reaps)
		var dead []unstructured.Unstructured
		_ = g.send(ctx, f, func() error {
			dead = g.world.expired(g.millis() - g.expiry.Milliseconds())
			return nil
		})
		for i := range dead {
			uid := ""
			if g.generation > 1 {
				uid = string(dead[i].GetUID())
			}
			err := g.send(ctx, f.of(uint64(i)), func() error {
				k := keyOf(&dead[i])
				if now := g.world.jobs[k]; now == nil || !g.mine(&dead[i], now) {
					return apierrors.NewNotFound(api.Jobs.GroupResource(), k.Name)
				}
				return g.world.deleteJob(g.name, simSent{}, k, uid, "")
			})
			if err == nil {
				g.archive(ctx, &dead[i])
			}
		}
	}
}
