package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"limpet/sync/jobs/queue"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/jobs/lease"
	"limpet/sync/kube"
	"limpet/sync/resources"
)

// simWorld is one simulated installation: an API server in memory, agents on hosts, Grafana's own
// drivers, people. One seed decides everything in it.
type simWorld struct {
	seed  uint64
	fate  fate
	start time.Time
	calm  time.Time // from here on nothing goes wrong any more
	down  []window  // the server does not answer
	loki  bool      // it keeps no HistoricJobs
	rough int       // how many calls in a thousand go wrong
	hosts []*simHost
	repos cache

	grafanas []*simGrafana

	ordered bool // watches show all jobs in the order of their writes, as one server does
	deadly  int  // how many steps of a job in a thousand kill the process
	options Options
	change  func(*simProcess) // nil but in TestSimulationFinds
	over    atomic.Bool

	memory    // its lock guards everything below
	watches   []*simWatch
	processes []*simProcess
	oracle    simOracle
}

// simSent is how it stood with a process when it sent a write.
type simSent struct {
	at      time.Time     // of the bubble
	clock   bool          // it knew the server's time
	held    bool          // it had a confirmed claim of the job
	proof   time.Duration // age of that claim by its own monotonic clock
	asleep  bool          // the host slept before the request left
	process *simProcess   // nil for everybody else
}

var errSimClock = errors.New("the time of the server is not known")

// judged lets the oracle judge a change and tells the watches.
func (w *simWorld) judged(e entry) {
	w.oracle.judge(w, e)
	for _, watch := range w.watches {
		if e.Resource == "jobs" {
			watch.expect(w.rev, e)
		}
	}
}

// expired lists the claims older than a time.
func (w *simWorld) expired(before int64) (out []*unstructured.Unstructured) {
	for _, u := range w.sorted("jobs") {
		if at := claimTime(u); at != 0 && at < before {
			out = append(out, u)
		}
	}
	return out
}

func (w *simWorld) archived(uid string) bool {
	for _, h := range w.objects["historicjobs"] {
		if api.Label(h, api.LabelOriginalUID) == uid {
			return true
		}
	}
	return false
}

// What people do.

func (w *simWorld) newJob(repository, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": "Job",
		"spec": map[string]any{"action": "pull", "repository": repository, "pull": map[string]any{"incremental": false}}}}
	u.SetNamespace("default")
	u.SetName(name)
	u.SetLabels(map[string]string{api.LabelRepository: repository})
	return u
}

func uidIn(e entry) string {
	switch {
	case e.Resource == "historicjobs":
		return api.Label(e.now, api.LabelOriginalUID)
	case e.now != nil:
		return string(e.now.GetUID())
	}
	return string(e.before.GetUID())
}

func (e entry) String() string {
	show := func(u *unstructured.Unstructured) string {
		if u == nil {
			return "-"
		}
		state, _, _ := unstructured.NestedString(u.Object, "status", "state")
		l := u.GetLabels()
		return fmt.Sprintf("rv%s [%s %s] %s %v", u.GetResourceVersion(), l[api.LabelClaimOwner], l[api.LabelClaim], state, u.GetAnnotations())
	}
	return fmt.Sprintf("%s %s: %s -> %s", e.Verb, uidIn(e), show(e.before), show(e.now))
}

// simWorker works as long and ends as the seed says for the job and the attempt.
type simWorker struct {
	p      *simProcess
	action string
}

func (s simWorker) Action() string { return s.action }

func (s simWorker) Ready(context.Context, Task) error { return nil }

func (s simWorker) Run(ctx context.Context, t *Task) error {
	w := s.p.world
	run := &simRun{s.p, ctx, t.UID, t.Job.Spec.Repository}
	w.oracle.begin(w, run)
	defer w.oracle.end(w, run)
	f := w.fate.about(t.UID).of(uint64(t.Attempt))
	for step := range 1 + f.n(3) {
		g := f.of(uint64(step))
		d := g.between(50*time.Millisecond, 8*time.Second)
		if g.likely(120) {
			d = g.of(1).between(20*time.Second, 90*time.Second)
		}
		if !waitFor(ctx, d) {
			if g.of(2).likely(150) && !s.p.dead.Load() { // it takes its time to end
				<-time.After(g.of(3).between(time.Second, 15*time.Second))
			}
			return context.Cause(ctx)
		}
		t.Progress.SetMessage(ctx, fmt.Sprint("step ", step))
		<-time.After(time.Microsecond) // not beside the write that this causes
		t.Progress.Record(ctx, Result{Action: resources.Created, Kind: "Dashboard", Name: "d"})
		if err := t.Progress.Mark(ctx, step); err != nil {
			return err
		}
	}
	switch f.of(99).n(20) {
	case 0:
		return errors.New("bad luck")
	case 1:
		panic("worse luck")
	case 2:
		return &kube.UnavailableError{Err: errNoWay}
	}
	return nil
}

// boot starts a process on the host.
func (h *simHost) boot() {
	w := h.world
	if h.gone.Load() {
		return
	}
	w.mu.Lock()
	h.lives++
	p := &simProcess{simHost: h, nr: uint64(h.lives), done: make(chan error, 1)}
	w.processes = append(w.processes, p)
	w.mu.Unlock()
	p.clock = &simClock{world: w, fate: h.fate.of(p.nr, 5)}
	p.link = &simLink{p: p, count: map[simCall]uint64{}, proof: map[string]simProof{}, late: map[string]func(){}}
	p.watch = newSimWatch(p)
	o := w.options
	o.Agent = h.name
	o.hook = p.step
	o = o.withDefaults()
	p.agent = newController(&env{
		o: o, server: p.link.way(false), renewals: p.link.way(true), store: simLedger{h.disk, p},
		clock: clock{server: p.clock, host: p, maxError: o.terms().ClockError()},
	}, p.watch, &w.repos)
	for _, action := range []string{"pull", "push"} {
		p.agent.admission.workers[action] = simWorker{p, action}
	}
	if w.change != nil {
		w.change(p)
	}
	p.watch.handler = p.agent.jobHandler()
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	w.mu.Lock()
	w.watches = append(w.watches, p.watch)
	w.mu.Unlock()
	p.watch.relist(0)
	h.life.Store(p)
	go func() { p.done <- p.agent.Run(ctx) }()
}

// crash is the end of a process at once: what it does from now on has no effect.
func (p *simProcess) crash(restart time.Duration) {
	if p.dead.Swap(true) {
		return
	}
	p.stop()
	time.AfterFunc(restart, p.boot)
}

// step crashes the process at the step that the seed has chosen.
func (p *simProcess) step(name string, a jobRef) {
	if now := time.Now(); now.Before(p.world.calm) && p.fate.of(p.nr, uint64(now.UnixNano())).about(name).likely(p.world.deadly) {
		p.crash(p.fate.of(p.nr, 6).between(100*time.Millisecond, 100*time.Second))
	}
}

var simLog = slog.New(slog.DiscardHandler)

// simHost is a machine with a wall clock that is wrong and jumps, and that is put to sleep. It
// outlives its processes and has the disk.
type simHost struct {
	world  *simWorld
	id     uint64
	name   string
	fate   fate
	wrong  time.Duration // of the wall clock
	jumps  []jump
	sleeps []sleep // in their order
	disk   *simDisk
	cut    []window // no connection at all
	mute   []window // no connection for renewals
	lives  int      // processes so far
	life   atomic.Pointer[simProcess]
	gone   atomic.Bool // it never comes back
}

// jump is a step of the wall clock.
type jump struct {
	at time.Time
	by time.Duration
}

// sleep is a time in which nothing of the host runs. The monotonic clock stands still in a
// suspended host and goes on under a stopped process.
type sleep struct {
	window
	stopped bool
}

// simProcess is one life of an agent: the host as its controller sees it.
type simProcess struct {
	*simHost
	nr     uint64
	dead   atomic.Bool
	tokens atomic.Uint64
	dice   atomic.Uint64
	clock  *simClock
	link   *simLink
	watch  *simWatch
	agent  *Controller
	stop   func()
	done   chan error
}

// frozen is the bubble's time, and while the host sleeps the time at which it fell asleep: what
// runs then is thought of as having run just before.
func (h *simHost) frozen() time.Time {
	now := time.Now()
	for _, s := range h.sleeps {
		if s.has(now) {
			return s.from
		}
	}
	return now
}

// awakeIn is how long the host goes on sleeping.
func (h *simHost) awakeIn() time.Duration {
	now := time.Now()
	for _, s := range h.sleeps {
		if s.has(now) {
			return s.to.Sub(now)
		}
	}
	return 0
}

func (h *simHost) slept(since, until time.Time) bool {
	for _, s := range h.sleeps {
		if s.from.Before(until) && s.to.After(since) {
			return true
		}
	}
	return false
}

func (h *simHost) now() lease.Reading {
	t := h.frozen()
	m := lease.Reading{Time: t, Wall: t.Add(h.wrong)}
	for _, s := range h.sleeps {
		if !s.stopped && !s.to.After(t) {
			m.Time = m.Add(-s.to.Sub(s.from))
		}
	}
	for _, j := range h.jumps {
		if !j.at.After(t) {
			m.Wall = m.Wall.Add(j.by)
		}
	}
	return m
}

// after fires late when the host sleeps over it.
func (h *simHost) after(d time.Duration, f func()) *time.Timer {
	at := h.frozen().Add(d)
	for _, s := range h.sleeps {
		switch {
		case !s.to.After(h.frozen()) || s.from.After(at):
		case s.stopped && s.has(at):
			at = s.to.Add(h.fate.of(uint64(at.UnixNano())).between(0, 200*time.Millisecond))
		case !s.stopped:
			at = at.Add(s.to.Sub(s.from))
		}
	}
	// Not at once, so that it does not run beside what its caller does next.
	return time.AfterFunc(max(time.Until(at), 0)+h.fate.of(uint64(at.UnixNano())).between(1, 1000), f)
}

func (p *simProcess) token() string {
	return fmt.Sprintf("%s.%d.%d", p.name, p.nr, p.tokens.Add(1))
}

func (p *simProcess) jitter(d time.Duration) time.Duration {
	return d - d/10 + p.fate.of(p.nr, p.dice.Add(1)).between(0, d/5)
}

// simClock is what a process knows of the server's time.
type simClock struct {
	world *simWorld
	fate  fate
	known atomic.Int64 // how often it was told
}

func (c *simClock) observe() { c.known.Add(1) }

// Now is off by less than its bound, which gets smaller with the first answers.
func (c *simClock) Now() (time.Time, time.Duration, bool) {
	n := c.known.Load()
	if n == 0 {
		return time.Time{}, 0, false
	}
	bound := 300 * time.Millisecond
	if slow := c.fate.n(8); slow == 0 && n < 4 { // too slow an answer to know the time by
		bound = 25 * time.Second / time.Duration(n)
	}
	return c.world.now().Add(c.fate.between(-bound, bound)), bound, true
}

func (c *simClock) Millis(most time.Duration) (int64, error) {
	t, bound, ok := c.Now()
	if !ok || bound > most {
		return 0, errSimClock
	}
	return t.UnixMilli(), nil
}

// simWatch is a process's cache of the jobs. Events of one object come in order; those of several
// do so in half of the worlds. They come late, twice, or not at all until the next list.
type simWatch struct {
	cache
	p *simProcess

	gaps map[queue.Key]bool      // jobs of which nothing is shown until the next list, the empty name is for all; under the lock of the world
	last map[queue.Key]time.Time // when the last event of a job comes, of any where watches keep the order; under the lock of the world

	turn   chan struct{}       // handlers run one at a time; guards seen and broken. A mutex would hold up the bubble's time
	broken bool                // nothing is shown until the next list
	seen   map[queue.Key]int64 // revision of what is in the cache, or of its deletion
}

func newSimWatch(p *simProcess) *simWatch {
	return &simWatch{cache: newCache(), p: p, turn: make(chan struct{}, 1),
		seen: map[queue.Key]int64{}, gaps: map[queue.Key]bool{}, last: map[queue.Key]time.Time{}}
}

// expect is told of every change, under the lock of the world.
func (s *simWatch) expect(rev int64, e entry) {
	u := e.now
	if u == nil {
		u = e.before
	}
	k := keyOf(u)
	w := s.p.world
	one := k
	if w.ordered {
		one = queue.Key{}
	}
	if s.p.dead.Load() || s.gaps[one] {
		return
	}
	f := s.p.fate.of(s.p.nr, uint64(rev))
	late, again := f.between(time.Millisecond, 60*time.Millisecond), time.Duration(0)
	if e.at.Before(w.calm) && f.of(20).likely(w.rough) {
		switch f.of(21).n(3) {
		case 0:
			late = f.of(22).between(time.Second, 20*time.Second)
		case 1: // twice
			again = f.of(22).between(time.Second, 5*time.Second)
		case 2: // lost, until it is noticed
			s.gaps[one] = true // and all that follow
			s.relist(f.of(22).between(time.Second, 40*time.Second))
			return
		}
	}
	at := e.at.Add(late)
	if last := s.last[one]; !at.After(last) {
		at = last.Add(1)
	}
	s.last[one] = at
	time.AfterFunc(time.Until(at), func() { s.event(k, rev, e.now) })
	if again > 0 { // not before the first time: that would be another order
		time.AfterFunc(time.Until(at)+again, func() { s.event(k, rev, e.now) })
	}
}

// event shows a change to the controller, unless the way is cut.
func (s *simWatch) event(k queue.Key, rev int64, now *unstructured.Unstructured) {
	if s.p.dead.Load() {
		return
	}
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if away := s.away(); away > 0 {
		s.broken = s.p.world.ordered
		s.relist(away)
		return
	}
	if s.broken || !s.HasSynced() {
		return
	}
	switch {
	case rev < s.seen[k]:
		return
	case rev == s.seen[k]: // again
		if now != nil {
			s.handler.Update(kube.ObjectOf(now), kube.ObjectOf(now))
		}
		return
	}
	s.show(k, rev, now)
}

// show shows a revision.
func (s *simWatch) show(k queue.Key, rev int64, now *unstructured.Unstructured) {
	s.seen[k] = max(rev, s.seen[k])
	s.cache.show(k, now)
}

// away is how long the watch cannot be had.
func (s *simWatch) away() time.Duration {
	if d := s.p.awakeIn(); d > 0 {
		return d
	}
	if to, yes := s.p.link.cutOff(false); yes {
		return time.Until(to)
	}
	return 0
}

// relist makes the cache anew after a while. One at a time is enough.
func (s *simWatch) relist(after time.Duration) {
	after += s.p.fate.of(s.p.nr, uint64(time.Now().UnixNano())).between(10*time.Millisecond, 3*time.Second)
	time.AfterFunc(after, func() {
		if s.p.dead.Load() || s.p.world.over.Load() {
			return
		}
		if away := s.away(); away > 0 {
			s.relist(away)
			return
		}
		s.p.clock.observe()
		time.AfterFunc(10*time.Minute, func() { s.relist(0) }) // whatever the watch says
		w := s.p.world
		w.mu.Lock()
		rev, now := w.rev, maps.Clone(w.objects["jobs"])
		clear(s.gaps)
		w.mu.Unlock()
		s.turn <- struct{}{}
		defer func() { <-s.turn }()
		s.broken = false
		keys := slices.SortedFunc(maps.Keys(now), byName)
		for _, k := range slices.SortedFunc(maps.Keys(s.objects), byName) {
			if now[k] == nil {
				keys = append(keys, k)
			}
		}
		s.handler.Listing(true)
		for _, k := range keys {
			if s.seen[k] <= rev {
				s.show(k, rev, now[k])
				// An instant of its own for each, so that what follows from one does not depend on whose turn
				// it is on a busy machine.
				<-time.After(time.Nanosecond)
			}
		}
		s.handler.Listing(false)
		s.complete()
	})
}
