// Package daemon runs the agent and the dashboard, the demo and the embedded API.
package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/sync/errgroup"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/control"
	"limpet/sync/text"
	"limpet/sync/worker/sink"
	"limpet/tui"
	"limpet/tui/cli/command"
	"limpet/tui/cli/status"
)

// Command is 'limpet' itself and 'limpet --daemon'.
type Command struct {
	Daemon bool `help:"Run the agent without a dashboard; logs go to stderr."`
}

func (c Command) Run(ctx context.Context, e *command.Env, call *kong.Context) error {
	switch {
	case c.Daemon && e.Flags.ReadOnly:
		return command.Usagef("limpet --daemon    # without --read-only", "an agent changes things, and --read-only refuses that")
	case c.Daemon:
		path, err := e.StatePath()
		if err != nil {
			return err
		}
		signals, stop := catch(syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGHUP)
		defer stop()
		kept := keepLog(e, e.Log)
		beat := &watchdog{log: e.Log}
		config := &reloader{e: e, path: path, running: settings(e, call)}
		return beat.during(ctx, func() error {
			return reopening(ctx, e, func() error {
				return headless(ctx, e, path, kept, beat, func(a *agent.Agent) part { return obeys(signals, a, config) })
			})
		})
	case !e.OnScreen():
		return status.Command{}.Run(ctx, e)
	}
	path, err := e.StatePath()
	if err != nil {
		return err
	}
	if e.WantsSetUp {
		return untilStopped(ctx, setUp(ctx, e))
	}
	return untilStopped(ctx, dashboard(ctx, e, path))
}

// rebuildPause is the least time between two rebuilds of a state file that is damaged again and again, as on a
// dying disk.
const rebuildPause = time.Minute

// reopening repeats work whenever it ends because the state file is damaged: opening that quarantines it and
// builds a new one from the readable records.
func reopening(ctx context.Context, e *command.Env, work func() error) error {
	var last time.Time
	for {
		err := work()
		if !errors.Is(err, state.ErrCorrupt) || ctx.Err() != nil {
			return untilStopped(ctx, err)
		}
		pause := max(0, rebuildPause-time.Since(last))
		e.Log.Error("the state file is damaged: opening it again, which builds a new one", "err", err, "in", pause)
		command.Sleep(ctx, pause)
		if ctx.Err() != nil {
			return untilStopped(ctx, nil)
		}
		last = time.Now()
	}
}

// headless runs the agent once, from the opening of the state file on.
func headless(ctx context.Context, e *command.Env, path string, kept *control.Log, beat *watchdog, obeys func(*agent.Agent) part) error {
	store, err := e.OpenStore(ctx, path, agent.SocketPath(path))
	if err != nil {
		return err
	}
	defer store.Close()
	return withAgent(ctx, e, store, path, kept, func(a *agent.Agent) error {
		if e.Embedded() {
			e.Log.Info("no server is configured: working on the embedded API", "state", path, "next",
				e.CommandFor("", "apply -f FILE")+", or --provisioning-server-url URL")
		}
		for _, dir := range e.Flags.SinkPrefix {
			if err := sink.CheckPrefix(dir); err != nil {
				e.Log.Warn("directory of --sink-prefix is missing", "err", err, "next", "mkdir -p "+text.ShellWord(dir))
			}
		}
		e.Log.Info("agent started", "version", command.Version, "state", path, "drivers", e.Flags.Drivers)
		err := RunTogether(ctx, obeys(a), beat.of(a), a.Run)
		// The next run after a rebuild stays drained.
		since, _ := a.Draining()
		e.Flags.Drain = !since.IsZero()
		if err == nil {
			e.Log.Info("agent stopped", "cause", context.Cause(ctx))
		}
		return err
	})
}

// keepLog has the logger of a call write to log, and to the Log that it returns.
func keepLog(e *command.Env, log *slog.Logger) *control.Log {
	kept := &control.Log{}
	e.Log = slog.New(slog.NewMultiHandler(log.Handler(), command.JSONHandler(e.Flags, kept)))
	return kept
}

// withAgent calls run with an agent that is made of the flags and serves the log.
func withAgent(ctx context.Context, e *command.Env, store *state.Store, path string, log *control.Log, run func(*agent.Agent) error) error {
	cfg, err := e.AgentConfig(store, path, e.Log)
	if err != nil {
		return err
	}
	cfg.Log = log
	a, err := agent.New(ctx, cfg)
	if err != nil {
		return err
	}
	defer a.Close()
	return run(a)
}

// untilStopped returns the error of something that runs until it is stopped: that of --timeout, nil after a signal.
func untilStopped(ctx context.Context, err error) error {
	if ctx.Err() == nil || err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	if late, ok := errors.AsType[command.TimeoutError](context.Cause(ctx)); ok {
		return late
	}
	return nil
}

// withDashboard runs the agent and the dashboard together; the end of either ends the other. The log goes to a file, because
// stderr is the screen. Extra, if given, runs beside them.
func withDashboard(ctx context.Context, e *command.Env, store *state.Store, path, logPath string,
	extra func(context.Context, *agent.Agent) error) error {
	logFile, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()
	signals, stop := catch(syscall.SIGUSR1, syscall.SIGUSR2)
	defer stop()
	defer func(outside *slog.Logger) { e.Log = outside }(e.Log)
	return withAgent(ctx, e, store, path, keepLog(e, command.NewLogger(e.Flags, logFile, true)), func(a *agent.Agent) error {
		parts := []part{a.Run, obeys(signals, a, nil)}
		if extra != nil {
			parts = append(parts, func(ctx context.Context) error { return extra(ctx, a) })
		}
		return RunTogether(ctx, append(parts, func(ctx context.Context) error {
			o := tuiOptions(e)
			_, configured := command.FindConfig(e.Flags.Config, e.Getenv)
			o.SetUp = extra == nil && !configured && e.Flags.Config == "" && !e.Flags.ReadOnly && e.Embedded()
			err := tui.Run(ctx, localSource{control.NewLocal(a, a.Store())}, o)
			// The screen is gone and claims are being released. A second Ctrl-C kills.
			e.StopSignals()
			return err
		})...)
	})
}

// part is what runs until its context ends.
type part = func(context.Context) error

// RunTogether runs all parts until the last one ends or any fails, then stops and waits for the others.
func RunTogether(ctx context.Context, parts ...part) error {
	g, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i, part := range parts {
		g.Go(func() error {
			err := part(ctx)
			if err == nil && i == len(parts)-1 {
				cancel()
			}
			return err
		})
	}
	return g.Wait()
}

func tuiOptions(e *command.Env) tui.Options {
	return tui.Options{ReadOnly: e.Flags.ReadOnly, In: os.Stdin, Out: os.Stdout, Color: e.Color(), Theme: e.Flags.Theme,
		Mouse: e.Flags.Mouse, Frames: e.Flags.FPS, Env: e.Getenv, Invocation: e.Invocation.Elsewhere()}
}

// catch catches signals from now on, so that one during the start is not lost and does not kill the process.
func catch(signals ...os.Signal) (got chan os.Signal, stop func()) {
	got = make(chan os.Signal, 3)
	signal.Notify(got, signals...)
	return got, func() { signal.Stop(got) }
}

// obeys has the agent drained on SIGUSR1, resumed on SIGUSR2 and its config file read again on SIGHUP, until ctx ends.
// Two different signals keep a repeated script harmless.
func obeys(got <-chan os.Signal, a *agent.Agent, config *reloader) part {
	return func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case s := <-got:
				if s == syscall.SIGHUP {
					config.reload(a)
				} else {
					a.Drain(s == syscall.SIGUSR1)
				}
			}
		}
	}
}
