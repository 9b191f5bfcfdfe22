package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"limpet/state"
	"limpet/sync/jobs"
	"limpet/sync/repos/lease"
	"limpet/sync/snapshot"
)

// Values of Config.Controllers.
const (
	controllersOn   = "on"
	controllersAuto = "auto"
)

// reconciles reports whether this agent manages Repositories and Connections. Grafana
// runs its own controllers, so on any API but the embedded one it has to be
// configured.
func (a *Agent) reconciles() bool {
	return a.cfg.Controllers == controllersOn || a.embedded != nil && cmp.Or(a.cfg.Controllers, controllersAuto) == controllersAuto
}

// Names of the Lease of the controllers. Agents with another selector have other
// Repositories, and so another Lease.
const (
	leaseNamespace = "default" // of agents that watch all namespaces
	leaseName      = "limpet-controllers"
)

// newLease returns the Lease for the controllers of this agent, nil on the embedded
// API, which has one agent.
func (a *Agent) newLease(ctx context.Context) (*lease.Lease, error) {
	if a.embedded != nil || !a.reconciles() {
		return nil, nil
	}
	holder, err := a.identity(ctx)
	if err != nil {
		return nil, err
	}
	name := leaseName
	if s := a.cfg.Jobs.Selector; s != nil && !s.Empty() {
		sum := sha256.Sum256([]byte(s.String()))
		name += "-" + hex.EncodeToString(sum[:4])
	}
	return lease.New(lease.Options{
		Client: a.client.Resource(lease.Resource).Namespace(cmp.Or(a.cfg.Namespace, leaseNamespace)),
		Name:   name,
		Holder: holder,
		Expiry: cmp.Or(a.cfg.Jobs.Expiry, jobs.DefaultExpiry),
		Work:   a.runControllers,
		Changed: func(lease.State) {
			a.activity.AddEvent(snapshot.Event{At: time.Now(), Level: "info", Text: "repositories: " + a.controllers().Text()})
		},
		Logger: a.log.With("component", "controllers"),
	}), nil
}

// factIdentity is the key of the identity of this agent in the state file.
const factIdentity = "agent/id"

// identity returns the name of this agent with a random ID, which is stored in the
// state file.
func (a *Agent) identity(ctx context.Context) (string, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "limpet"
	}
	name := cmp.Or(a.cfg.Jobs.Agent, host) + "_"
	id, err := a.cfg.Store.Fact(ctx, factIdentity)
	if err == nil && len(id) > 0 {
		return name + string(id), nil
	}
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return "", err
	}
	made := rand.Text()
	return name + made, a.cfg.Store.PutFact(ctx, factIdentity, []byte(made))
}

// runLeader runs the controllers while this agent holds the Lease, until ctx ends.
func (a *Agent) runLeader(ctx context.Context) error {
	if a.lease != nil {
		return a.lease.Run(ctx)
	}
	return a.runControllers(ctx)
}

// runControllers runs the controllers and the watches of their dependencies.
func (a *Agent) runControllers(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.references.Run(ctx) })
	g.Go(func() error { return a.repoController.Run(ctx) })
	g.Go(func() error { return a.connectionController.Run(ctx) })
	return g.Wait()
}

// controllers returns the role of this agent for the snapshot.
func (a *Agent) controllers() snapshot.Controllers {
	v := snapshot.Controllers{Mode: cmp.Or(a.cfg.Controllers, controllersAuto), State: snapshot.ControllersOff}
	switch {
	case !a.reconciles():
	case a.lease == nil:
		v.State = snapshot.ControllersActive
	default:
		s := a.lease.State()
		v.State, v.Holder = snapshot.ControllersStandby, s.Holder
		if s.Active {
			v.State = snapshot.ControllersActive
		}
	}
	return v
}
