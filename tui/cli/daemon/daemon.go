// Package daemon runs the agent and the dashboard, the demo and the embedded API.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/alecthomas/kong"
	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sync/errgroup"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/control"
	"limpet/sync/text"
	"limpet/sync/worker/sink"
	"limpet/tui"
	"limpet/tui/cli/command"
	"limpet/tui/cli/complete"
	"limpet/tui/cli/config"
	"limpet/tui/cli/status"
	"limpet/tui/screen"
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
	if e.WantsSetUp {
		return untilStopped(ctx, setUp(ctx, e))
	}
	err := untilStopped(ctx, dashboard(ctx, e))
	if to, ok := errors.AsType[*tui.SwitchError](err); ok {
		return switchTo(e, to)
	}
	return err
}

// rebuildPause is the least time between two rebuilds of a state file that is damaged again and
// again, as on a dying disk.
const rebuildPause = time.Minute

// reopening repeats work whenever it ends because the state file is damaged: opening that
// quarantines it and builds a new one from the readable records.
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

// memoryShare of a cgroup's limit is for the heap, as in the unit of 'limpet service install'. What is
// left is for stacks and the mapped state file.
const memoryShare = 0.875

// withAgent calls run with an agent that is made of the flags and serves the log. In a cgroup with a
// limit the heap is collected more often before it comes near to that, unless GOMEMLIMIT is set.
func withAgent(ctx context.Context, e *command.Env, store *state.Store, path string, log *control.Log, run func(*agent.Agent) error) error {
	limit, err := memlimit.Set(memlimit.WithRatio(memoryShare))
	e.Log.Debug("limit of memory", "bytes", limit, "err", err)
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

// untilStopped returns the error of something that runs until it is stopped: that of --timeout, nil
// after a signal.
func untilStopped(ctx context.Context, err error) error {
	if ctx.Err() == nil || err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	if late, ok := errors.AsType[command.TimeoutError](context.Cause(ctx)); ok {
		return late
	}
	return nil
}

// withDashboard runs the agent and the dashboard together; the end of either ends the other. The
// log goes to a file, because stderr is the screen. Extra, if given, runs beside them.
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
			if extra != nil { // a demo
				o.Contexts = nil
			}
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

// RunTogether runs all parts until the last one ends or any fails, then stops and waits for the
// others.
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
	here := e.Invocation.Elsewhere()
	o := tui.Options{ReadOnly: e.Flags.ReadOnly, In: os.Stdin, Out: os.Stdout, Color: e.Color(), Theme: e.Flags.Theme,
		Mouse: e.Flags.Mouse, Frames: e.Flags.FPS, Env: e.Getenv, Invocation: here,
		// Another parse of the command line takes as long as a frame, and most never open the palette.
		Commands: sync.OnceValue(func() []screen.Entry { return complete.Entries(e) })}
	for _, c := range e.Config.Contexts {
		o.Contexts = append(o.Contexts, screen.Entry{Words: c.Name, Help: c.Kind + " " + text.Redact(c.Target)})
	}
	if len(o.Contexts) > 0 {
		o.Contexts = append(o.Contexts, screen.Entry{Words: command.NoContext, Help: "this host"})
	}
	o.Call = func(ctx context.Context, words ...string) *exec.Cmd {
		program, err := os.Executable()
		if err != nil {
			program = os.Args[0]
		}
		if words[0] != "help" {
			words = slices.Concat(here.Args(), words) // what the user gives comes later, and wins
		}
		if e.Flags.ReadOnly {
			words = append(slices.Clone(words), "--read-only")
		}
		c := exec.CommandContext(ctx, program, words...)
		c.Env = append(os.Environ(), command.InDashboard+"=1")
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-Z stops the dashboard alone
		return c
	}
	return o
}

// catch catches signals from now on, so that one during the start is not lost and does not kill the
// process.
func catch(signals ...os.Signal) (got chan os.Signal, stop func()) {
	got = make(chan os.Signal, 3)
	signal.Notify(got, signals...)
	return got, func() { signal.Stop(got) }
}

// obeys has the agent drained on SIGUSR1, resumed on SIGUSR2 and its config file read again on
// SIGHUP, until ctx ends. Two different signals keep a repeated script harmless.
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

// watchdog notifies the service manager that has started this process: ready, alive, stopping.
// Without one it does nothing.
type watchdog struct {
	log *slog.Logger

	probe atomic.Pointer[func() []string] // returns once the agent has answered what of it is stuck; nil while none runs
}

// during runs work and notifies until it ends. Stopping is sent once ctx ends, and not when work
// ends to be repeated.
func (h *watchdog) during(ctx context.Context, work func() error) error {
	done := make(chan struct{})
	var told sync.WaitGroup
	told.Go(func() {
		var beat <-chan time.Time
		period, err := daemon.SdWatchdogEnabled(false)
		if err != nil {
			h.log.Warn("no watchdog", "err", err)
		} else if period > 0 {
			// A third of the period: one notification may be late on a busy board.
			ticker := time.NewTicker(period / 3)
			defer ticker.Stop()
			beat = ticker.C
		}
		stop := ctx.Done()
		for {
			select {
			case <-done:
				if stop != nil && ctx.Err() != nil { // the work has ended at once
					h.notify(daemon.SdNotifyStopping)
				}
				return
			case <-stop:
				h.notify(daemon.SdNotifyStopping)
				stop = nil
			case <-beat:
				var stuck []string
				if probe := h.probe.Load(); probe != nil {
					stuck = (*probe)()
				}
				if len(stuck) == 0 {
					h.notify(daemon.SdNotifyWatchdog)
				} else {
					h.log.Error("the agent is stuck: no watchdog notification is sent", "causes", stuck)
				}
			}
		}
	})
	err := work()
	close(done)
	told.Wait()
	return err
}

// of runs beside an agent: it reports the service ready after the first snapshot, which does not
// need the API, and has the agent probed until ctx ends.
func (h *watchdog) of(a *agent.Agent) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, err := a.Next(ctx, 0); err != nil {
			return nil // it ended before
		}
		// This takes the locks of the agent. The state file is not used: a slow disk must not kill the
		// process.
		probe := func() []string { a.Draining(); return a.Stuck() }
		h.probe.Store(&probe)
		defer h.probe.Store(nil)
		h.notify(daemon.SdNotifyReady)
		<-ctx.Done()
		return nil
	}
}

func (h *watchdog) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		h.log.Warn("cannot notify the service manager", "state", state, "err", err)
	}
}

// reloader reads the config file again while an agent runs. What is in files of its own, as
// credentials, tokens and certificates are, is read again without it.
type reloader struct {
	e       *command.Env
	path    string         // of the state file
	running map[string]any // the settings of the agent by name
}

// live are the settings that hold without a restart.
var live = []string{command.GitRulesKey, command.GitVerifyKey, "token", "log-level"}

// settings returns the settings of a call that concern an agent.
func settings(e *command.Env, call *kong.Context) map[string]any {
	out := map[string]any{}
	for _, flag := range call.Model.Node.Flags {
		if command.GroupOf(flag) != "Output" || flag.Name == "log-level" || flag.Name == "log-format" {
			out[flag.Name] = config.Shown(flag.Target)
		}
	}
	for _, key := range []string{command.GitRulesKey, command.GitVerifyKey} {
		out[key] = e.Config.Values[key]
	}
	return out
}

// reload applies the config file as it is now, or refuses all of it. The log has names of settings
// only: values may be secrets.
func (r *reloader) reload(a *agent.Agent) {
	next, changed, err := r.read(a)
	a.Refuse(err)
	if err != nil {
		_, hint := command.Classify(err)
		r.e.Log.Error("config file refused, the old settings stay", "err", err, "next", hint)
		return
	}
	var restart []string
	for _, name := range changed {
		if !slices.Contains(live, name) || name == "token" && (r.running[name] == "" || next[name] == "" || next[name] != r.e.Flags.Token) {
			restart = append(restart, name)
		} else {
			r.running[name] = next[name]
		}
	}
	r.e.Log.Info("config file reloaded", "file", r.e.Config.Path, "changed", changed, "needs_restart", restart)
	if dir := r.e.Getenv("CREDENTIALS_DIRECTORY"); dir != "" && strings.HasPrefix(r.e.Config.Path, dir+"/") && len(changed) == 0 {
		r.e.Log.Warn("the service manager copies the config file when the service starts", "next", "systemctl restart limpet")
	}
}

// read hands the config file to the agent, and returns the settings and the names of those that
// differ.
func (r *reloader) read(a *agent.Agent) (next map[string]any, changed []string, err error) {
	again, call, err := r.e.Reread()
	if err != nil {
		return nil, nil, err
	}
	cfg, err := again.AgentConfig(nil, r.path, r.e.Log)
	if err != nil {
		return nil, nil, err
	}
	text.RegisterSecret([]byte(cfg.API.Token))
	next = settings(again, call)
	for _, name := range slices.Sorted(maps.Keys(next)) {
		if !reflect.DeepEqual(next[name], r.running[name]) {
			changed = append(changed, name)
		}
	}
	// A token goes only to the server that it was set with.
	token := again.Flags.Token
	if slices.ContainsFunc(changed, func(name string) bool { return name != "token" && slices.Contains(command.ServerFlags, name) }) {
		token = r.e.Flags.Token
	}
	if err := a.Reload(cfg, token); err != nil {
		return nil, nil, fmt.Errorf("config file %s: %w", again.Config.Path, err)
	}
	// An agent that is made anew, with a new state file, has the same.
	r.e.Config, r.e.Flags.Token = again.Config, token
	r.e.Flags.SetLogLevel(again.Flags.LogLevel)
	return next, changed, nil
}
