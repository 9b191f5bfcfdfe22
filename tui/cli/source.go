package cli

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	agent "limpet/sync"
	"limpet/sync/api"
	"limpet/sync/socket"
	"limpet/sync/view"
	"limpet/tui"
)

// inProcess is the source of a dashboard that runs in the agent's process.
func inProcess(a *agent.Agent) tui.Source { return &localSource{agent: a} }

type localSource struct {
	agent *agent.Agent
	seq   atomic.Uint64
}

func (s *localSource) Name() string { return tui.Standalone }

func (s *localSource) Next(ctx context.Context) (*view.Snapshot, error) {
	snap, err := s.agent.Next(ctx, s.seq.Load())
	if err == nil {
		s.seq.Store(snap.Seq)
	}
	return snap, err
}

func (s *localSource) Act(ctx context.Context, act tui.Action) error {
	w := &session{Client: s.agent.Client()}
	return w.act(ctx, act, s.agent.Cancel)
}

// attached is the source of a dashboard that shows the daemon's agent. Next
// returns an error while the daemon is away; the next call tries again.
func attached(c *socket.Client) tui.Source {
	s := &remoteSource{client: c}
	s.pid.Store(int64(c.Hello().PID))
	return s
}

type remoteSource struct {
	client *socket.Client
	seq    atomic.Uint64
	pid    atomic.Int64 // of the daemon that sent the last picture
}

func (s *remoteSource) Name() string { return fmt.Sprintf("attached to daemon %d", s.pid.Load()) }

func (s *remoteSource) Next(ctx context.Context) (*view.Snapshot, error) {
	snap, err := s.client.Next(ctx, s.seq.Load())
	if err != nil {
		// Who answers next may be another daemon, which counts anew.
		s.seq.Store(0)
		return nil, err
	}
	s.seq.Store(snap.Seq)
	s.pid.Store(int64(snap.Agent.PID))
	return snap, nil
}

func (s *remoteSource) Act(ctx context.Context, act tui.Action) error {
	client, err := api.Connect(ctx, api.Config{Server: socket.BaseURL, Transport: socket.Transport(s.client.Path()), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer client.Close()
	w := &session{Client: client}
	return w.act(ctx, act, s.client.Cancel)
}

// act does what a key of the dashboard asks for, once: a repeat is refused by
// the name of the job that is there already.
func (s *session) act(ctx context.Context, act tui.Action, cancel func(ctx context.Context, namespace, name string) error) error {
	switch act.Verb {
	case tui.Pull, tui.PullFull:
		spec := map[string]any{"action": "pull", "pull": map[string]any{"incremental": act.Verb == tui.Pull}}
		_, err := s.submit(ctx, act.Namespace, act.Name, spec, nil)
		return err
	case tui.Cancel:
		return cancel(ctx, act.Namespace, act.Name)
	}
	return fmt.Errorf("unknown action %q", act.Verb)
}
