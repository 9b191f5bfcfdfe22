package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"limpet/tui/cli/command"
	"limpet/tui/cli/job"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/agent"
	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/repos"
	"limpet/sync/snapshot"
	"limpet/sync/source"
	"limpet/tui/screen"
)

// newLocalSource is the source of a dashboard in the agent's process.
func newLocalSource(a *agent.Agent) screen.Source {
	return &localSource{agent: a, recordHistory: recordHistory{a.Store()}}
}

type localSource struct {
	recordHistory
	agent *agent.Agent
	seq   atomic.Uint64
}

func (s *localSource) Diagnostics(ctx context.Context) (snapshot.DiagnosticsReport, error) {
	return s.agent.Diagnostics(ctx)
}

func (s *localSource) Compare(ctx context.Context, q snapshot.CompareQuery) (snapshot.Comparison, error) {
	return s.agent.Compare(ctx, q)
}

func (s *localSource) Name() string { return screen.Standalone }
func (s *localSource) Note() string { return "" }

func (s *localSource) Next(ctx context.Context) (*snapshot.Snapshot, error) {
	snap, err := s.agent.Next(ctx, s.seq.Load())
	if err == nil {
		s.seq.Store(snap.Seq)
	}
	return snap, err
}

func (s *localSource) Act(ctx context.Context, act screen.Action) error {
	w := &command.Session{Client: s.agent.Client(), Store: s.agent.Store()}
	return perform(ctx, w, act, localActor{s.agent})
}

// localActor adapts the agent of this process to actor.
type localActor struct{ *agent.Agent }

func (l localActor) Drain(_ context.Context, on bool) (out control.Drained, err error) {
	out.Since, out.Busy = l.Agent.Drain(on)
	return out, nil
}

func (l localActor) Hurry(context.Context) error {
	l.Agent.Hurry()
	return nil
}

// newRemoteSource is the source of a dashboard of the daemon's agent, until ctx ends. Next fails while the daemon is
// away; the next call tries again.
func newRemoteSource(ctx context.Context, c *control.Client) *remoteSource {
	return &remoteSource{client: c, watch: c.Watch(ctx), recordHistory: recordHistory{c}}
}

type remoteSource struct {
	recordHistory
	client *control.Client
	watch  *control.Watch
}

func (s *remoteSource) Name() string {
	return fmt.Sprintf("attached to daemon %d", s.watch.Hello().PID)
}

func (s *remoteSource) Diagnostics(ctx context.Context) (snapshot.DiagnosticsReport, error) {
	return s.client.Diagnostics(ctx)
}

func (s *remoteSource) Compare(ctx context.Context, q snapshot.CompareQuery) (snapshot.Comparison, error) {
	return s.client.Compare(ctx, q)
}

func (s *remoteSource) Note() string { return versionSkew(s.watch.Hello()) }

// versionSkew describes a daemon of another version, so that one side knows things that the other does not show.
func versionSkew(daemon control.Hello) string {
	if daemon.Version == command.Version && daemon.Protocol == control.Protocol {
		return ""
	}
	return fmt.Sprintf("daemon %s, this %s: reduced view", daemon.Version, command.Version)
}

func (s *remoteSource) Next(ctx context.Context) (*snapshot.Snapshot, error) {
	return s.watch.Next(ctx)
}

func (s *remoteSource) Act(ctx context.Context, act screen.Action) error {
	return s.through(ctx, func(w *command.Session) error { return perform(ctx, w, act, s.client) })
}

// actor has the actions that only a running agent can do.
type actor interface {
	Cancel(ctx context.Context, namespace, name string) error
	Drain(ctx context.Context, on bool) (control.Drained, error)
	Hurry(ctx context.Context) error
	control.Suspender
}

// perform does the action of a key, once: a repetition is refused by the name of the existing job, or is
// harmless.
func perform(ctx context.Context, s *command.Session, act screen.Action, who actor) error {
	switch act.Verb {
	case screen.Hurry:
		err := who.Hurry(ctx)
		if errors.Is(err, errors.ErrUnsupported) {
			return nil // an older daemon requeues at its own pace
		}
		return err
	case screen.Suspend:
		now := time.Now().Round(0)
		return who.Suspend(ctx, repos.Suspension{Namespace: act.Namespace, Repository: act.Name, UID: act.UID, Since: now,
			Until: now.Add(screen.SuspendFor)})
	case screen.Resume:
		_, err := who.Resume(ctx, act.Namespace, act.Name)
		return err
	case screen.Drain, screen.Undrain:
		_, err := who.Drain(ctx, act.Verb == screen.Drain)
		return err
	case screen.Pull, screen.PullFull:
		spec := map[string]any{"action": "pull", "pull": map[string]any{"incremental": act.Verb == screen.Pull}}
		_, err := s.Client.Submit(ctx, act.Namespace, act.Name, spec, nil)
		return err
	case screen.Reconcile:
		_, err := source.Reconcile(ctx, s.Client, act.Namespace, act.Name, act.UID)
		return err
	case screen.SuspendSource, screen.ResumeSource:
		_, err := source.Suspend(ctx, s.Client, act.Namespace, act.Name, act.UID, act.Verb == screen.SuspendSource)
		return err
	case screen.Cancel, screen.Retry:
		return actOnJob(ctx, s, act, who.Cancel)
	}
	return fmt.Errorf("unknown action %q", act.Verb)
}

// actOnJob cancels or retries the job of a UID. A pending job is deleted, as by 'limpet job cancel': an agent
// that would end it may never come.
func actOnJob(ctx context.Context, s *command.Session, act screen.Action,
	cancel func(ctx context.Context, namespace, name string) error) error {
	u, err := s.Find(ctx, api.Jobs, act.Namespace, act.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	live := err == nil && string(u.GetUID()) == act.UID
	switch {
	case act.Verb == screen.Retry && live:
		_, err = job.EndBackoff(ctx, s, u)
		return err
	case act.Verb == screen.Retry:
		past, err := job.FindFinished(ctx, s, act.Namespace, act.UID)
		if err != nil {
			return err
		}
		_, err = job.RunAgain(ctx, s, past)
		return err
	case !live:
		return fmt.Errorf("job %s has just ended", act.Name)
	case u.GetLabels()[api.LabelClaim] != "":
		return cancel(ctx, act.Namespace, act.Name)
	}
	_, err = job.Cancel(ctx, s, u)
	return err
}
