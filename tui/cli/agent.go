package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/tui"
)

type dashboardCmd struct {
	Daemon bool `help:"Run the agent without a dashboard; logs go to stderr."`
}

func (c dashboardCmd) Run(ctx context.Context, r *run) error {
	switch {
	case c.Daemon && r.g.ReadOnly:
		return usage("limpet --daemon    # without --read-only", "an agent changes things, and --read-only refuses that")
	case c.Daemon:
		return r.daemon(ctx)
	case !r.onScreen():
		return statusCmd{}.Run(ctx, r)
	}
	path, err := r.statePath()
	if err != nil {
		return err
	}
	if r.asks {
		return asTold(ctx, r.setUp(ctx))
	}
	return asTold(ctx, r.dashboard(ctx, path))
}

// daemon runs the agent headless until SIGTERM or SIGINT.
func (r *run) daemon(ctx context.Context) error {
	path, err := r.statePath()
	if err != nil {
		return err
	}
	signals, stop := drainSignals()
	defer stop()
	beat := &heartbeat{log: r.log}
	return beat.during(ctx, func() error {
		return r.mending(ctx, func() error { return r.headless(ctx, path, signals, beat) })
	})
}

// mendPause is the least time between two openings of a state file that turns
// out to be damaged again and again, as on a dying disk.
const mendPause = time.Minute

// mending calls work anew whenever it ends because the state file was found
// damaged: opening it puts it aside and builds a new one from what can be read.
func (r *run) mending(ctx context.Context, work func() error) error {
	var last time.Time
	for {
		err := work()
		if !errors.Is(err, state.ErrCorrupt) || ctx.Err() != nil {
			return asTold(ctx, err)
		}
		pause := max(0, mendPause-time.Since(last))
		r.log.Error("the state file is damaged: opening it again, which builds a new one", "err", err, "in", pause)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return lateEnd(ctx)
		}
		last = time.Now()
	}
}

// headless is one life of the agent, from the opening of the state file on.
func (r *run) headless(ctx context.Context, path string, signals <-chan os.Signal, beat *heartbeat) error {
	store, err := r.openStore(ctx, path, agent.SocketPath(path))
	if err != nil {
		return err
	}
	defer store.Close()
	cfg, err := r.agentConfig(store, path, r.log)
	if err != nil {
		return err
	}
	if r.embedded() {
		r.log.Info("no server is configured: working on the embedded API", "state", path, "next", "limpet apply -f FILE, or --provisioning-server-url URL")
	}
	a, err := agent.New(ctx, cfg)
	if err != nil {
		return err
	}
	defer a.Close()
	r.log.Info("agent started", "version", Version, "state", path, "drivers", r.g.Drivers)
	err = together(ctx, func(ctx context.Context) error { return heedDrain(ctx, signals, a) }, beat.of(a), a.Run)
	// A life that ends because the file has to be mended hands this on.
	since, _ := a.Draining()
	r.g.Drain = !since.IsZero()
	if err != nil {
		return err
	}
	r.log.Info("agent stopped", "cause", context.Cause(ctx))
	return lateEnd(ctx)
}

// asTold is the error of what runs until it is told to end: that it was told while
// it started is none.
func asTold(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return lateEnd(ctx)
	}
	return err
}

// lateEnd is the error of what runs until it is told to end, when --timeout has
// told it: nil after a signal.
func lateEnd(ctx context.Context) error {
	var late timedOut
	if errors.As(context.Cause(ctx), &late) {
		return late
	}
	return nil
}

// standalone runs the agent in this process under the dashboard. Its log goes
// to a file: stderr is the screen.
func (r *run) standalone(ctx context.Context, path string) error {
	store, err := r.openStore(ctx, path, agent.SocketPath(path))
	if err != nil {
		return err
	}
	defer store.Close()
	logFile, err := os.OpenFile(path+".log", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()
	return r.withDashboard(ctx, store, path, newLogger(r.g, logFile, true), nil)
}

// withDashboard runs the agent and the dashboard together; the end of either
// ends the other. Extra, if given, runs beside them.
func (r *run) withDashboard(ctx context.Context, store *state.Store, path string, log *slog.Logger, extra func(context.Context, *agent.Agent) error) error {
	cfg, err := r.agentConfig(store, path, log)
	if err != nil {
		return err
	}
	a, err := agent.New(ctx, cfg)
	if err != nil {
		return err
	}
	defer a.Close()
	signals, stop := drainSignals()
	defer stop()
	err = together(ctx,
		a.Run,
		func(ctx context.Context) error { return heedDrain(ctx, signals, a) },
		func(ctx context.Context) error {
			if extra == nil {
				<-ctx.Done()
				return nil
			}
			return extra(ctx, a)
		},
		func(ctx context.Context) error {
			o := r.tuiOptions()
			o.SetUp = extra == nil && r.maySetUp()
			err := tui.Run(ctx, inProcess(a), o)
			// The screen is gone and the claims are being given back. Who
			// presses Ctrl-C now has asked twice.
			r.signals.stop()
			return err
		},
	)
	if err != nil {
		return err
	}
	return lateEnd(ctx)
}

// together runs all parts until the last one ends or any of them fails, then
// ends and waits for the others.
func together(ctx context.Context, parts ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type end struct {
		last bool
		err  error
	}
	ends := make(chan end, len(parts))
	for i, part := range parts {
		go func() { ends <- end{last: i == len(parts)-1, err: part(ctx)} }()
	}
	var first error
	for range parts {
		e := <-ends
		if e.last || e.err != nil {
			cancel()
		}
		if first == nil {
			first = e.err
		}
	}
	return first
}

func (r *run) tuiOptions() tui.Options {
	return tui.Options{ReadOnly: r.g.ReadOnly, In: os.Stdin, Out: os.Stdout, Color: r.color(), Theme: r.g.Theme, Mouse: r.g.Mouse, Frames: r.g.FPS, Env: r.Getenv,
		Accessible: r.g.Accessible, Text: r.Out, Interrupts: r.signals.interrupts}
}

// drainSignals catches SIGUSR1 and SIGUSR2 from now on, so that one which comes
// while the agent starts is not lost and does not end the process.
func drainSignals() (got chan os.Signal, stop func()) {
	got = make(chan os.Signal, 2)
	signal.Notify(got, syscall.SIGUSR1, syscall.SIGUSR2)
	return got, func() { signal.Stop(got) }
}

// heedDrain lets SIGUSR1 drain an agent and SIGUSR2 have it claim again, until
// ctx ends. Each may come twice: a script that is run again undoes nothing.
func heedDrain(ctx context.Context, got <-chan os.Signal, a *agent.Agent) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-got:
			a.Drain(s == syscall.SIGUSR1)
		}
	}
}
