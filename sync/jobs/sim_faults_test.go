package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
)

// simDisk is a state file: what it has acknowledged survives the process, what was under way at a
// crash may or may not. It can be full or refuse writes.
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
	// The crash came before the disk had it. The next process locks out what is left of this one.
	if l.p.dead.Load() && (f.likely(500) || l.host.life.Load() != l.p) {
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

func (l simLedger) PutRecord(ctx context.Context, r state.Record) error {
	return l.write(ctx, "record", r.UID, true, func() error { l.records[r.UID] = r; return nil })
}

func (l simLedger) PutQueued(ctx context.Context, r state.Record) error { return l.PutRecord(ctx, r) }

func (l simLedger) EndClaim(ctx context.Context, uid, historic string, _ bool) error {
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

// simGrafana is another controller on the same queue: it claims what is free, whoever works on the
// repository, works, dies at times, and ends or fails jobs by its own clock, which may be wrong.
type simGrafana struct {
	world *simWorld
	name  string
	fate  fate
	wrong time.Duration // of its clock
	dice  atomic.Uint64
}

func (w *simWorld) addGrafana(f fate, i int) *simGrafana {
	g := &simGrafana{world: w, name: fmt.Sprint("g", i), fate: f, wrong: f.of(1).between(-2*time.Second, 2*time.Second)}
	if f.of(2).likely(200) {
		g.wrong = f.of(1).between(-3*time.Minute, 3*time.Minute)
	}
	return g
}

// millis is the time that it writes into claims.
func (g *simGrafana) millis() int64 { return g.world.now().Add(g.wrong).UnixMilli() }

// call is a request; some are lost.
func (g *simGrafana) call(ctx context.Context, verb, resource string, do func(c *call) error) error {
	f, w := g.fate.of(7, g.dice.Add(1)), g.world
	if !waitFor(ctx, f.between(time.Millisecond, 40*time.Millisecond)) {
		return ctx.Err()
	}
	if _, down := inside(w.down, time.Now()); down || time.Now().Before(w.calm) && f.likely(w.rough/2) {
		return errNoWay
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return do(&call{Agent: g.name, Verb: verb, Resource: resource})
}

// run looks for free jobs and works on them, and fails those whose claim has expired.
func (g *simGrafana) run(ctx context.Context) {
	for n := uint64(0); waitFor(ctx, g.fate.of(8, n).between(200*time.Millisecond, 20*time.Second)); n++ {
		for g.next(ctx) && ctx.Err() == nil {
		}
		var dead []*unstructured.Unstructured
		_ = g.call(ctx, "list", "jobs", func(*call) error {
			dead = g.world.expired(g.millis() - DefaultExpiry.Milliseconds())
			return nil
		})
		for _, job := range dead {
			g.end(ctx, job)
		}
	}
}

// next claims and processes one job.
func (g *simGrafana) next(ctx context.Context) bool {
	var job *unstructured.Unstructured
	token := fmt.Sprint(g.name, ".", g.dice.Add(1))
	err := g.call(ctx, "update", "jobs", func(c *call) (err error) {
		all := g.world.sorted("jobs")
		i := slices.IndexFunc(all, func(u *unstructured.Unstructured) bool { return api.Label(u, api.LabelClaim) == "" })
		if i < 0 {
			return errNoWay
		}
		job = all[i].DeepCopy()
		setClaim(job, g.millis(), token)
		_, err = g.world.update(c, job)
		return err
	})
	f := g.fate.about(token)
	if err != nil || !waitFor(ctx, f.between(100*time.Millisecond, 90*time.Second)) || f.likely(150) && time.Now().Before(g.world.calm) {
		return false // there is none, or it dies
	}
	g.end(ctx, job)
	return true
}

// end takes a job out of the queue whose claim is still the one that it has seen.
func (g *simGrafana) end(ctx context.Context, job *unstructured.Unstructured) {
	_ = g.call(ctx, "delete", "jobs", func(c *call) error {
		now := g.world.objects["jobs"][keyOf(job)]
		if now == nil || now.GetUID() != job.GetUID() || claimIn(now) != claimIn(job) {
			return nil
		}
		return g.world.delete(c, keyOf(job), "", "")
	})
	h := job.DeepCopy()
	h.SetGenerateName(job.GetName() + "-")
	h.SetName("")
	api.SetLabel(h, api.LabelOriginalUID, api.Meta(job, "uid"))
	_ = g.call(ctx, "create", "historicjobs", func(c *call) error {
		if g.world.loki {
			return errNoWay
		}
		_, err := g.world.memory.create(c, h)
		return err
	})
}

// simCallTime is the deadline of a call, as apiServer has it.
const simCallTime = 10 * time.Second

// simLink is one process's way to the server: requests and answers take time, get lost, come late;
// a request may be carried out long after its caller gave up.
type simLink struct {
	p *simProcess

	mu    sync.Mutex // guards the fields below
	count map[simCall]uint64
	total int
	proof map[string]simProof // by UID
	late  map[string]func()   // writes that were given up and arrive just before the next one, by name
}

// simProof is the last confirmed claim of a job.
type simProof struct {
	label string
	sent  time.Time // by the host's monotonic clock
}

type simCall struct{ verb, resource, name string }

var errNoWay = errors.New("connection refused")

// way returns the way of ordinary calls, or that of renewals over connections of their own.
func (l *simLink) way(renewals bool) way {
	return way{&l.p.world.memory, func(ctx context.Context, c *call, do func() error) error {
		c.Agent, c.Lease = l.p.name, renewals
		began := l.p.now().Time
		if c.body != nil {
			c.sent = l.leave(uidIn(entry{call: *c, now: c.body}))
		}
		err := l.travel(ctx, c, do)
		if err == nil && c.Verb == "update" {
			l.proved(c.body, began)
		}
		return err
	}}
}

// travel carries a call to the server and its answer back. do runs at the server, under the lock of
// the world.
func (l *simLink) travel(ctx context.Context, c *call, do func() error) error {
	p, w := l.p, l.p.world
	l.mu.Lock()
	id := simCall{c.Verb, c.Resource, c.Name}
	l.count[id]++
	f := p.fate.of(p.nr).about(c.Verb + c.Resource).about(c.Name).of(l.count[id])
	l.mu.Unlock()
	if p.dead.Load() {
		return errDead
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l.mu.Lock()
	l.total++
	l.mu.Unlock()
	if d := p.awakeIn(); d > 0 {
		<-time.After(d + f.between(0, 50*time.Millisecond))
	}
	there, back, fault := l.trouble(f, c.Lease)
	arrive := func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		return do()
	}
	write := c.Verb == "update" || c.Verb == "delete"
	if there >= simCallTime && fault == nil { // it arrives when its caller has given up
		come := sync.OnceFunc(func() { _ = arrive() })
		if write && f.of(15).likely(500) {
			l.hold(c.Name, come)
		}
		time.AfterFunc(there, come)
		waitFor(ctx, simCallTime)
		return l.answer(ctx, context.DeadlineExceeded)
	}
	if !waitFor(ctx, there) {
		if fault == nil {
			time.AfterFunc(f.between(0, there), func() { _ = arrive() })
		}
		return l.answer(ctx, context.Cause(ctx))
	}
	if fault != nil {
		return l.answer(ctx, fault)
	}
	if _, cut := l.cutOff(c.Lease); cut {
		return l.answer(ctx, errNoWay)
	}
	if write {
		l.hold(c.Name, nil)()
	}
	err := arrive()
	if back > 0 && !waitFor(ctx, min(back, simCallTime-there)) {
		return l.answer(ctx, context.Cause(ctx))
	}
	if there+back >= simCallTime {
		return l.answer(ctx, context.DeadlineExceeded)
	}
	return l.answer(ctx, err)
}

// hold keeps a late write back until the next one of the same name is there, and returns the one
// that was kept back before.
func (l *simLink) hold(name string, come func()) (before func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before = l.late[name]
	l.late[name] = come
	if before == nil {
		return func() {}
	}
	return before
}

// answer is what the process hears, if it still can.
func (l *simLink) answer(ctx context.Context, err error) error {
	if d := l.p.awakeIn(); d > 0 {
		<-time.After(d + l.p.fate.of(uint64(time.Now().UnixNano())).between(0, 50*time.Millisecond))
	}
	if l.p.dead.Load() {
		return errDead
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) {
		l.p.clock.observe()
	}
	return err
}

// cutOff says until when nothing gets through.
func (l *simLink) cutOff(renewal bool) (time.Time, bool) {
	now := time.Now()
	if to, yes := inside(l.p.cut, now); yes {
		return to, true
	}
	if to, yes := inside(l.p.mute, now); yes && renewal {
		return to, true
	}
	return inside(l.p.world.down, now)
}

// trouble decides how a call goes.
func (l *simLink) trouble(f fate, renewal bool) (there, back time.Duration, fault error) {
	w := l.p.world
	there = f.of(10).between(time.Millisecond, 40*time.Millisecond)
	if _, cut := l.cutOff(renewal); cut {
		if f.of(11).likely(500) { // without an answer
			return simCallTime - there, 0, context.DeadlineExceeded
		}
		return there, 0, errNoWay
	}
	if time.Now().After(w.calm) || !f.of(12).likely(w.rough) {
		return there, 0, nil
	}
	switch f.of(13).n(10) {
	case 0: // lost on its way
		return there, 0, errNoWay
	case 1: // without a trace
		return simCallTime - there, 0, context.DeadlineExceeded
	case 2: // the answer is lost
		return there, simCallTime, nil
	case 3, 4: // slow
		return f.of(14).between(time.Second, 9*time.Second), 0, nil
	case 5: // the answer is slow
		return there, f.of(14).between(time.Second, 9*time.Second), nil
	case 6: // later than anybody waits
		return f.of(14).between(simCallTime, 25*time.Second), 0, nil
	case 7:
		return there, 0, apierrors.NewTooManyRequests("slow down", 1+f.of(14).n(8))
	case 8:
		return there, 0, apierrors.NewServiceUnavailable("not now")
	}
	return there, 0, apierrors.NewInternalError(errors.New("etcdserver: leader changed"))
}

// leave notes how things stand when a write is sent.
func (l *simLink) leave(uid string) simSent {
	l.mu.Lock()
	defer l.mu.Unlock()
	proof, held := l.proof[uid]
	_, err := l.p.clock.Millis(DefaultExpiry / 6)
	return simSent{at: time.Now(), clock: err == nil, held: held, proof: l.p.now().Sub(proof.sent), asleep: l.p.awakeIn() > 0, process: l.p}
}

// proved notes a write that was answered: one with a new claim renews the lease.
func (l *simLink) proved(job *unstructured.Unstructured, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	uid, label := api.Meta(job, "uid"), api.Label(job, api.LabelClaim)
	if label != "" && l.proof[uid].label != label {
		l.proof[uid] = simProof{label, sent}
	}
}
