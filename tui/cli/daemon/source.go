package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/control"
	"limpet/sync/snapshot"
	"limpet/tui/cli/command"
	"limpet/tui/screen"
)

// localSource is the source of a dashboard in the process of the agent, or of one without
// an agent.
type localSource struct{ *control.Local }

func (localSource) Name() string { return screen.Standalone }
func (localSource) Note() string { return "" }

// daemonSource is the source of a dashboard of the agent of a daemon.
type daemonSource struct{ *control.Watch }

func (s daemonSource) Name() string {
	return fmt.Sprintf("attached to daemon %d", s.Hello().PID)
}

func (s daemonSource) Note() string { return versionSkew(s.Hello()) }

// versionSkew describes a daemon of another version: one side knows things that the other
// does not show.
func versionSkew(daemon control.Hello) string {
	if daemon.Version == command.Version && daemon.Protocol == control.Protocol {
		return ""
	}
	return fmt.Sprintf("daemon %s, this %s: reduced view", daemon.Version, command.Version)
}

// fromDisk shows the saved snapshot of a state file. No agent runs, no server is called, and the file is open
// only while it is read, so that a daemon may start meanwhile and is shown then. Home is the file, or the one
// that it is a copy of.
func fromDisk(ctx context.Context, e *command.Env, path, home string) error {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return command.Errorf(command.ExitStore, "limpet    # starts an agent; or give another --state FILE",
			"there is no state file %s, and no daemon answers", path)
	}
	quiet := *e // the dashboard uses the screen
	quiet.Log = slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	src := &diskSource{
		open:   func(ctx context.Context) (*state.Store, error) { return quiet.OpenStore(ctx, path, "") },
		ctx:    ctx,
		socket: agent.SocketPath(home),
	}
	store, err := src.open(ctx)
	if err != nil {
		return err
	}
	src.saved, err = snapshot.Saved(ctx, store, command.Version)
	if err := errors.Join(err, store.Close()); err != nil {
		return err
	}
	src.saved.Agent.StorePath = home
	return show(ctx, e, src)
}

// attachInterval is how often the socket is tried.
const attachInterval = time.Second

// diskSource is the source of a dashboard without an agent. It turns into that of a daemon once one answers.
type diskSource struct {
	open   func(context.Context) (*state.Store, error)
	ctx    context.Context // of the dashboard
	socket string
	saved  *snapshot.Snapshot // nil after it was shown
	daemon atomic.Pointer[daemonSource]
}

func (s *diskSource) Name() string {
	if d := s.daemon.Load(); d != nil {
		return d.Name()
	}
	return screen.FromDisk
}

func (s *diskSource) Note() string {
	if d := s.daemon.Load(); d != nil {
		return d.Note()
	}
	return ""
}

func (s *diskSource) Next(ctx context.Context) (*snapshot.Snapshot, error) {
	if s.saved != nil {
		snap := s.saved
		s.saved = nil
		return snap, nil
	}
	tick := time.NewTicker(attachInterval)
	defer tick.Stop()
	for {
		if d := s.daemon.Load(); d != nil {
			return d.Next(ctx)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if c, err := control.Attach(ctx, s.socket); err == nil {
			context.AfterFunc(s.ctx, c.Close)
			s.daemon.Store(&daemonSource{c.Watch(s.ctx)})
		}
	}
}

// ask calls f with the source of the daemon once one answers, else with that of the file.
func ask[T any](ctx context.Context, s *diskSource, f func(screen.Source) (T, error)) (out T, err error) {
	if d := s.daemon.Load(); d != nil {
		return f(d)
	}
	store, err := s.open(ctx)
	if err != nil {
		return out, err
	}
	out, err = f(localSource{control.NewLocal(nil, store)})
	return out, errors.Join(err, store.Close())
}

func (s *diskSource) HistoryPage(ctx context.Context, q snapshot.HistoryQuery) (snapshot.HistoryPage, error) {
	return ask(ctx, s, func(src screen.Source) (snapshot.HistoryPage, error) { return src.HistoryPage(ctx, q) })
}

func (s *diskSource) PastJob(ctx context.Context, uid string) (snapshot.Job, error) {
	return ask(ctx, s, func(src screen.Source) (snapshot.Job, error) { return src.PastJob(ctx, uid) })
}

func (s *diskSource) RecentRuns(ctx context.Context, namespace, repository string) (snapshot.RecentRuns, error) {
	return ask(ctx, s, func(src screen.Source) (snapshot.RecentRuns, error) {
		return src.RecentRuns(ctx, namespace, repository)
	})
}

func (s *diskSource) Diagnostics(ctx context.Context) (snapshot.DiagnosticsReport, error) {
	return ask(ctx, s, func(src screen.Source) (snapshot.DiagnosticsReport, error) { return src.Diagnostics(ctx) })
}

func (s *diskSource) Compare(ctx context.Context, q snapshot.CompareQuery) (snapshot.Comparison, error) {
	return ask(ctx, s, func(src screen.Source) (snapshot.Comparison, error) { return src.Compare(ctx, q) })
}

func (s *diskSource) Test(ctx context.Context, of snapshot.Subject) ([]snapshot.Finding, error) {
	return ask(ctx, s, func(src screen.Source) ([]snapshot.Finding, error) { return src.Test(ctx, of) })
}

func (s *diskSource) Manifest(ctx context.Context, of snapshot.Subject) (string, error) {
	return ask(ctx, s, func(src screen.Source) (string, error) { return src.Manifest(ctx, of) })
}

func (s *diskSource) Act(ctx context.Context, a screen.Action) error {
	_, err := ask(ctx, s, func(src screen.Source) (struct{}, error) { return struct{}{}, src.Act(ctx, a) })
	return err
}
