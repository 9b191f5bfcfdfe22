package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/control"
	"limpet/sync/snapshot"
	"limpet/tui"
	"limpet/tui/cli/command"
	"limpet/tui/screen"
)

// dashboard shows the agent of the host of the context, else the daemon that answers on the socket
// of a state file, else an agent in this process, or with --read-only the saved snapshot.
func dashboard(ctx context.Context, e *command.Env) error {
	path, daemon, err := e.Attach(ctx)
	site := e.Context
	switch {
	case err == nil:
		defer daemon.Close()
		same, err := e.Serves(ctx, daemon)
		if err != nil {
			return err
		}
		if !same {
			h := daemon.Hello()
			return command.Usagef("limpet --provisioning-server-url '' --kubeconfig ''    # shows that daemon; or give another --state FILE",
				"the daemon %d that holds %s works on another server: %s", h.PID, path, h.Server)
		}
		// This process only draws. With more than one processor each message wakes another one for a
		// moment, which is most of the cost at rest.
		if e.Getenv("GOMAXPROCS") == "" {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		}
		return tui.Run(ctx, daemonSource{daemon.Watch(ctx), site}, tuiOptions(e))
	case !errors.Is(err, control.ErrNoDaemon), errors.As(err, new(*command.UnresponsiveError)):
		return err
	case e.Flags.ReadOnly:
		return fromDisk(ctx, e, path)
	case site != nil && e.Config.From["drain"].Kind == "": // to look at a server is not to work for it
		e.Flags.Drain = true
	}
	return reopening(ctx, e, func() error {
		store, err := e.OpenStore(ctx, path, agent.SocketPath(path))
		if err != nil {
			return err
		}
		defer store.Close()
		return withDashboard(ctx, e, store, path, path+".log", nil)
	})
}

// localSource is the source of a dashboard in the process of the agent.
type localSource struct{ *control.Local }

func (localSource) Name() string { return screen.Standalone }
func (localSource) Note() string { return "" }

// switchTo starts over with another context, in place of this process. Of the flags of the call
// those hold that concern the output and the config file.
func switchTo(e *command.Env, to *tui.SwitchError) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	args := append([]string{os.Args[0], "--context", to.Context}, e.Invocation.Output()...)
	return syscall.Exec(exe, args, os.Environ())
}

// daemonSource is the source of a dashboard of the agent of a daemon, perhaps of a site.
type daemonSource struct {
	*control.Watch
	site *command.Context // nil = this host
}

func (s daemonSource) Name() string {
	if s.site != nil {
		return fmt.Sprintf("%s, daemon %d", s.site.Name, s.Hello().PID)
	}
	return fmt.Sprintf("attached to daemon %d", s.Hello().PID)
}

func (s daemonSource) Note() string { return versionSkew(s.Hello()) }

// versionSkew describes a daemon of another version: one side knows things that the other does not
// show.
func versionSkew(daemon control.Hello) string {
	if daemon.Version == command.Version && daemon.Protocol == control.Protocol {
		return ""
	}
	return fmt.Sprintf("daemon %s, this %s: reduced view", daemon.Version, command.Version)
}

// fromDisk shows the saved snapshot of a state file until a daemon answers. No agent runs and no
// server is called.
func fromDisk(ctx context.Context, e *command.Env, path string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return command.Errorf(command.ExitStore, "limpet    # starts an agent; or give another --state FILE",
			"there is no state file %s, and no daemon answers", path)
	}
	quiet := *e // the dashboard uses the screen
	quiet.Log = slog.New(slog.DiscardHandler)
	file := diskFile(func(ctx context.Context) (*state.Store, error) { return quiet.OpenStore(ctx, path, "") })
	saved, err := opened(ctx, file, func(s *state.Store) (*snapshot.Snapshot, error) { return snapshot.Saved(ctx, s, command.Version) })
	if err != nil {
		return err
	}
	shown, end := context.WithCancel(ctx)
	defer end()
	src := &diskSource{Local: control.NewLocal(nil, file), saved: saved, path: path, end: end}
	err = tui.Run(shown, src, tuiOptions(e))
	if err != nil || !src.found.Load() {
		return err
	}
	// Begin anew, which attaches to it: in this process the ended dashboard would still read the keys.
	exe, err := os.Executable()
	if err == nil {
		err = syscall.Exec(exe, os.Args, os.Environ())
	}
	return err
}

// diskFile opens a state file. It is open only while it is read, so that a daemon may start
// meanwhile.
type diskFile func(context.Context) (*state.Store, error)

func opened[T any](ctx context.Context, file diskFile, read func(*state.Store) (T, error)) (out T, err error) {
	store, err := file(ctx)
	if err != nil {
		return out, err
	}
	out, err = read(store)
	return out, errors.Join(err, store.Close())
}

func (f diskFile) History(ctx context.Context, q state.Query) ([]state.Record, error) {
	return opened(ctx, f, func(s *state.Store) ([]state.Record, error) { return s.History(ctx, q) })
}

func (f diskFile) Info(ctx context.Context) (state.Info, error) {
	return opened(ctx, f, func(s *state.Store) (state.Info, error) { return s.Info(ctx) })
}

func (f diskFile) Artifacts(ctx context.Context, of state.SourceKey) ([]state.Artifact, error) {
	return opened(ctx, f, func(s *state.Store) ([]state.Artifact, error) { return s.Artifacts(ctx, of) })
}

// diskSource is the source of a dashboard without an agent.
type diskSource struct {
	*control.Local
	saved *snapshot.Snapshot // nil after it was shown
	path  string
	found atomic.Bool // a daemon has started since
	end   func()      // ends the dashboard of the file
}

// attachEvery is how often a dashboard of a file looks for a daemon.
const attachEvery = 2 * time.Second

func (*diskSource) Name() string { return screen.FromDisk }
func (*diskSource) Note() string { return "" }

func (s *diskSource) Next(ctx context.Context) (*snapshot.Snapshot, error) {
	if snap := s.saved; snap != nil {
		s.saved = nil
		return snap, nil
	}
	for ctx.Err() == nil {
		command.Sleep(ctx, attachEvery)
		if daemon, err := control.Attach(ctx, agent.SocketPath(s.path)); err == nil {
			daemon.Close()
			s.found.Store(true)
			s.end()
			<-ctx.Done()
		}
	}
	return nil, context.Cause(ctx)
}
