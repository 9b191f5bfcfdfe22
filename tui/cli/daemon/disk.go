package daemon

import (
	"context"
	"errors"
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
	src := &diskSource{at: agent.SocketPath(home),
		open: func(ctx context.Context) (*state.Store, error) { return quiet.OpenStore(ctx, path, "") }}
	err := src.reading(ctx, func(store *state.Store) (err error) {
		src.left, err = snapshot.Saved(ctx, store, command.Version)
		return err
	})
	if err != nil {
		return err
	}
	src.left.Agent.StorePath = home
	var cancel context.CancelFunc
	src.life, cancel = context.WithCancel(ctx)
	defer cancel()
	return show(src.life, e, src)
}

// attachInterval is how often the socket is tried.
const attachInterval = time.Second

// diskSource is the source of a dashboard without an agent. It turns into that of a daemon once one answers.
type diskSource struct {
	open   func(context.Context) (*state.Store, error)
	life   context.Context    // of the dashboard
	at     string             // the socket
	left   *snapshot.Snapshot // nil after it was shown
	daemon atomic.Pointer[remoteSource]
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
	if s.left != nil {
		snap := s.left
		s.left = nil
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
		if c, err := control.Attach(ctx, s.at); err == nil {
			context.AfterFunc(s.life, c.Close)
			s.daemon.Store(newRemoteSource(s.life, c))
		}
	}
}

// reading opens the file while use runs.
func (s *diskSource) reading(ctx context.Context, use func(*state.Store) error) error {
	store, err := s.open(ctx)
	if err != nil {
		return err
	}
	return errors.Join(use(store), store.Close())
}

func (s *diskSource) HistoryPage(ctx context.Context, q snapshot.HistoryQuery) (page snapshot.HistoryPage, err error) {
	if d := s.daemon.Load(); d != nil {
		return d.HistoryPage(ctx, q)
	}
	err = s.reading(ctx, func(store *state.Store) (err error) { page, err = recordHistory{store}.HistoryPage(ctx, q); return err })
	return page, err
}

func (s *diskSource) PastJob(ctx context.Context, uid string) (job snapshot.Job, err error) {
	if d := s.daemon.Load(); d != nil {
		return d.PastJob(ctx, uid)
	}
	err = s.reading(ctx, func(store *state.Store) (err error) { job, err = recordHistory{store}.PastJob(ctx, uid); return err })
	return job, err
}

func (s *diskSource) RecentRuns(ctx context.Context, namespace, repository string) (out snapshot.RecentRuns, err error) {
	if d := s.daemon.Load(); d != nil {
		return d.RecentRuns(ctx, namespace, repository)
	}
	err = s.reading(ctx, func(store *state.Store) (err error) {
		out, err = recordHistory{store}.RecentRuns(ctx, namespace, repository)
		return err
	})
	return out, err
}

func (s *diskSource) Diagnostics(ctx context.Context) (care snapshot.DiagnosticsReport, err error) {
	if d := s.daemon.Load(); d != nil {
		return d.Diagnostics(ctx)
	}
	err = s.reading(ctx, func(store *state.Store) (err error) { care, err = snapshot.StoreDiagnostics(ctx, store); return err })
	return care, err
}

// Compare needs the Repository to find its mirror: only an agent knows that.
func (s *diskSource) Compare(ctx context.Context, q snapshot.CompareQuery) (snapshot.Comparison, error) {
	if d := s.daemon.Load(); d != nil {
		return d.Compare(ctx, q)
	}
	return snapshot.Comparison{}, errors.New("no agent works on this file: nothing is compared")
}

// Act refuses: there is no agent.
func (s *diskSource) Act(context.Context, screen.Action) error {
	return errors.New("no agent works on this file: nothing was sent")
}
