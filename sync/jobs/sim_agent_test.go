package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"limpet/sync/kube"
)

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
		if !rest(ctx, d) {
			if g.of(2).likely(150) && !s.p.dead.Load() { // it takes its time to end
				<-time.After(g.of(3).between(time.Second, 15*time.Second))
			}
			return context.Cause(ctx)
		}
		t.Progress.SetMessage(ctx, fmt.Sprint("step ", step))
		<-time.After(time.Microsecond) // not beside the write that this causes
		t.Progress.Record(ctx, Result{Action: Created, Kind: "Dashboard", Name: "d"})
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
	calls := &simCalls{count: map[simCall]uint64{}, proof: map[string]simProof{}, late: map[string]func(){}}
	p.clock = &simClock{world: w, fate: h.fate.of(p.nr, 5)}
	p.link = &simLink{p: p, simCalls: calls}
	p.watch = newSimWatch(p)
	o := w.options
	o.Agent = h.name
	o.Observe = func(e Event) {
		if !p.dead.Load() && e.Type != EventMeasure {
			w.tale(fmt.Sprint(h.name, ".", p.nr), fmt.Sprintf("%s %d %s: %s", e.Type, e.Attempt, e.State, e.Text), e.UID)
		}
	}
	o.hook = p.step
	o = o.withDefaults()
	p.agent = newController(&env{
		o: o, server: p.link, renewals: &simLink{p: p, simCalls: calls, lease: true}, store: simLedger{h.disk, p},
		clock: clock{server: p.clock, host: p, maxError: o.terms().ClockError()},
	}, p.watch, w.repos)
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
	w.tale(h.name, "boot", "")
	h.life.Store(p)
	go func() { p.done <- p.agent.Run(ctx) }()
}

// crash is the end of a process at once: what it does from now on has no effect.
func (p *simProcess) crash(restart time.Duration) {
	if p.dead.Swap(true) {
		return
	}
	p.world.tale(p.name, fmt.Sprint("crash, back in ", restart), "")
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
