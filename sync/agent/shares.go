package agent

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/members"
	"limpet/sync/neighbour"
	"limpet/sync/repos"
	"limpet/sync/snapshot"
)

// shares is what this agent looks after of the Repositories and Connections of an
// API: nothing while a neighbour does, else its part among the agents. While it
// looks after nothing it has no Lease.
type shares struct {
	agent     *Agent
	neighbour *neighbour.Watch
	members   *members.Members // nil where it never looks after anything
	turned    chan struct{}    // capacity 1: a neighbour has come or gone
}

// newShares is nil on the embedded API, where there is nobody else.
func (a *Agent) newShares(ctx context.Context) (*shares, error) {
	if a.embedded != nil {
		return nil, nil
	}
	id, err := a.identity(ctx)
	if err != nil {
		return nil, err
	}
	s := &shares{agent: a, turned: make(chan struct{}, 1)}
	auto := a.cfg.Controllers == "auto" || a.cfg.Controllers == ""
	s.neighbour = neighbour.New(neighbour.Options{
		Times: a.cfg.Neighbour, ID: id, Changed: s.turn, Mute: !auto, Logger: a.log.With("room", "repos"),
		Now: func() time.Time {
			if now, _, ok := a.client.Clock().Now(); ok {
				return now
			}
			return time.Now()
		},
		Blind: func() bool {
			_, err := a.client.Down()
			return err != nil || !a.repos.HasSynced()
		},
		Grafana: func(ctx context.Context) (bool, error) {
			if !auto {
				return false, nil // nothing follows from it
			}
			return a.client.Serves(ctx, grafanasOwn)
		},
	})
	if a.keeps() {
		s.members = a.newMembers(id)
	}
	return s, nil
}

// grafanasOwn is what no other API than Grafana's serves.
const grafanasOwn = "repositories/webhook"

// watched are the options of an informer of objects that are looked after.
func (s *shares) watched(kind string, o kube.InformerOptions) kube.InformerOptions {
	if s != nil {
		o.Seen = func(u *unstructured.Unstructured) { s.neighbour.Saw(kind, u) }
	}
	return o
}

// gone has the neighbour's Watch forget what is deleted.
func (s *shares) gone(kind string, objects *kube.Informer) {
	objects.AddHandler(kube.Handler{Delete: func(u *unstructured.Unstructured) {
		s.neighbour.Gone(kind, u.GetNamespace(), u.GetName(), string(u.GetUID()))
	}})
}

// rival is whom the controllers of this agent give way to, nil when to nobody.
func (s *shares) rival() repos.Neighbour {
	if s == nil || s.agent.cfg.Controllers == "on" {
		return nil
	}
	return s.neighbour
}

// active says whether this agent looks after anything now.
func (s *shares) active() bool { return s.rival() == nil || s.neighbour.Active() }

// passive says that another program looks after all of it, so that this agent does
// not.
func (a *Agent) passive() bool {
	return a.shares.rival() != nil && a.shares.neighbour.State().Phase == neighbour.Passive
}

// turn tells that a neighbour has come or gone.
func (s *shares) turn(state neighbour.State) {
	a := s.agent
	if a.keeper == nil || s.rival() == nil {
		return
	}
	text := "repositories: " + a.paintControllers().Text(time.Now())
	a.board.note(snapshot.Event{At: time.Now(), Level: "info", Text: text})
	if state.Phase == neighbour.Active {
		a.keeper.Begin()
	}
	select {
	case s.turned <- struct{}{}:
	default:
	}
	s.wake()
}

// wake has all that is looked after looked into.
func (s *shares) wake() {
	a := s.agent
	for _, o := range a.repos.Objects() {
		a.keeper.Wake(o.Namespace(), o.Name())
	}
	for _, o := range a.linked.Objects() {
		a.links.Wake(o.Namespace(), o.Name())
	}
}

// Run finds out about neighbours, and has this agent among the members while it
// looks after anything, until ctx ends.
func (s *shares) Run(ctx context.Context) error {
	s.gone(repos.Repository, s.agent.repos)
	var g errgroup.Group
	g.Go(func() error { return s.neighbour.Run(ctx) })
	if s.members != nil {
		s.gone(repos.Connection, s.agent.linked)
		g.Go(func() error { return s.take(ctx) })
	}
	return g.Wait()
}

func (s *shares) take(ctx context.Context) error {
	for ctx.Err() == nil {
		term, end := context.WithCancel(ctx)
		var g errgroup.Group
		if s.active() {
			g.Go(func() error { return s.members.Run(term) })
		}
		select {
		case <-ctx.Done():
		case <-s.turned:
		}
		end()
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// paintControllers is who looks after Repositories.
func (a *Agent) paintControllers() snapshot.Controllers {
	v := snapshot.Controllers{Mode: a.cfg.Controllers, Phase: neighbour.Active.String(), Since: a.started}
	if v.Mode == "" {
		v.Mode = "auto"
	}
	if a.shares != nil {
		s := a.shares.neighbour.State()
		v.By, v.Wrote, v.Seen = s.By, s.What, api.Time(s.Seen)
		if a.shares.rival() != nil {
			v.Phase, v.Since, v.Until = s.Phase.String(), s.Since, s.Until
		}
	}
	if v.Mode == "off" {
		v.Phase = "off"
	}
	return v
}
