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
	"limpet/sync/api"
	"limpet/sync/dependency"
	"limpet/sync/forge"
	"limpet/sync/jobs"
	"limpet/sync/kube"
	"limpet/sync/repos"
	"limpet/sync/repos/lease"
	"limpet/sync/snapshot"
	"limpet/sync/worker"
)

// Values of Config.Controllers.
const (
	controllersOn   = "on"
	controllersAuto = "auto"
)

// reconciles reports whether this agent manages the objects that a flag of such a mode is about.
// Grafana and Flux run their own controllers, so on any API but the embedded one it has to be
// configured.
func reconciles(mode string, embedded bool) bool {
	return mode == controllersOn || embedded && cmp.Or(mode, controllersAuto) == controllersAuto
}

// Names of the Lease of the controllers. Agents with another selector have other Repositories, and
// so another Lease.
const (
	LeaseNamespace = "default" // of agents that watch all namespaces
	leaseName      = "limpet-controllers"
)

// controllers are those of Repositories and Connections. They work while this agent holds their
// Lease. Without the right to any, all but mode is nil.
type controllers struct {
	mode        string
	references  *dependency.Watcher
	repos       *repos.Controller
	connections *repos.Connections
	drifts      *repos.Drifts
	cache       *kube.Informer // of Connections
	minter      *forge.Minter
	lease       *lease.Lease // nil = none is needed
	sources     sources
}

func (c *controllers) build(ctx context.Context, a *Agent, pulls worker.PullOptions) (err error) {
	cfg, embedded := a.cfg, a.clients.embedded != nil
	var since time.Time
	if embedded {
		// Its objects are in the state file: objects of pulls before the file was created may be missing.
		info, err := cfg.Store.Info(ctx)
		if err != nil {
			return err
		}
		since = info.Created
	}
	uses := repos.Uses{Watcher: c.references, Rules: a.access.places.Rules, Policies: a.access.policies, Sealed: a.clients.sealed()}
	c.minter = a.access.minter
	c.repos = repos.New(a.clients.client, a.repos, a.jobs, repos.Options{
		Remotes:     pulls.Source.Remote,
		Git:         a.access.mirrors,
		Silent:      a.access.mirrors.Silent,
		Hosts:       repos.Forges(a.access.hosts),
		Store:       cfg.Store,
		Trust:       a.access.signers,
		Tokens:      &repos.Tokens{Minter: c.minter, Connection: a.access.reader.Connection, Sealed: embedded},
		Webhooks:    cfg.Webhooks.Listen != "",
		WebhookBase: cfg.Webhooks.URL,
		Orphans:     worker.NewOrphans(pulls),
		Quota:       cfg.Limits.quota(embedded),
		Suspensions: a.suspensions,
		Selector:    cfg.Jobs.Selector,
		Uses:        uses.Use,
		Since:       since,
		Resync:      cfg.Resync,
		Observe:     a.observeRepo,
		Meter:       a.metrics.Controller(),
		Logger:      cfg.Logger.With("component", "repositories"),
	})
	c.drifts = repos.NewDrifts(a.clients.client, a.repos, repos.PulledOptions{Pull: a.pull, Store: cfg.Store, Suspensions: a.suspensions,
		Selector: cfg.Jobs.Selector, Resync: cmp.Or(cfg.Resync, time.Minute), Observe: a.observeRepo,
		Logger: cfg.Logger.With("component", "drift")})
	c.cache = a.clients.client.Informer(api.Connections, cfg.Namespace, kube.InformerOptions{})
	c.connections = repos.NewConnections(a.clients.client, c.cache, repos.ConnectionOptions{Minter: c.minter, Repositories: c.repos,
		Uses: uses.Use, Worked: a.metrics.Reconciled, Resync: cfg.Resync, Logger: cfg.Logger.With("component", "connections")})
	if embedded { // it has one agent
		return nil
	}
	name := leaseName
	if s := cfg.Jobs.Selector; s != nil && !s.Empty() {
		sum := sha256.Sum256([]byte(s.String()))
		name += "-" + hex.EncodeToString(sum[:4])
	}
	c.lease, err = a.newLease(ctx, name, c.work, func(lease.State) { a.activity.Note("", "repositories: "+c.role().Text()) })
	return err
}

// newLease returns a Lease under which this agent works.
func (a *Agent) newLease(
	ctx context.Context, name string, work func(context.Context) error, changed func(lease.State),
) (*lease.Lease, error) {
	holder, err := identityOf(ctx, a.cfg)
	if err != nil {
		return nil, err
	}
	return lease.New(lease.Options{
		Client:  a.clients.client.Resource(lease.Resource).Namespace(cmp.Or(a.cfg.Namespace, LeaseNamespace)),
		Name:    name,
		Holder:  holder,
		Expiry:  cmp.Or(a.cfg.Jobs.Expiry, jobs.DefaultExpiry),
		Work:    work,
		Changed: changed,
		Logger:  a.cfg.Logger.With("component", "controllers"),
	}), nil
}

// factIdentity is the key of the identity of this agent in the state file.
const factIdentity = "agent/id"

// identityOf returns the name of this agent with a random ID, which is stored in the state file.
func identityOf(ctx context.Context, cfg Config) (string, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "limpet"
	}
	id, err := cfg.Store.Fact(ctx, factIdentity)
	if errors.Is(err, state.ErrNotFound) || err == nil && len(id) == 0 {
		id = []byte(rand.Text())
		err = cfg.Store.PutFact(ctx, factIdentity, id)
	}
	return cmp.Or(cfg.Jobs.Agent, host) + "_" + string(id), err
}

// underLease returns what does some work while this agent holds its Lease, if one is needed.
func underLease(l *lease.Lease, work func(context.Context) error) func(context.Context) error {
	if l != nil {
		return l.Run
	}
	return work
}

// work runs the controllers.
func (c *controllers) work(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.repos.Run(ctx) })
	g.Go(func() error { return c.connections.Run(ctx) })
	g.Go(func() error { return c.drifts.Run(ctx) })
	return g.Wait()
}

// role returns the role of this agent for the snapshot.
func (c *controllers) role() snapshot.Controllers { return roleOf(c.mode, c.repos != nil, c.lease) }

// roleOf returns the role of an agent with controllers under a Lease; nil = none is needed.
func roleOf(mode string, on bool, l *lease.Lease) snapshot.Controllers {
	v := snapshot.Controllers{Mode: mode, State: snapshot.ControllersOff}
	switch {
	case !on:
	case l == nil:
		v.State = snapshot.ControllersActive
	default:
		s := l.State()
		v.State, v.Holder = snapshot.ControllersStandby, s.Holder
		if s.Active {
			v.State = snapshot.ControllersActive
		}
	}
	return v
}

// wake reconciles an object whose credentials changed, and the Repositories of a Connection. Tokens
// of the old credentials are dropped.
func (c *controllers) wake(user dependency.Ref) {
	if c.sources.wake(user.Kind, user.Namespace, user.Name) {
		return
	}
	if user.Kind == dependency.Connection {
		if u, ok := c.cache.Get(user.Namespace, user.Name); ok {
			if connection, err := forge.ConnectionOf(u); err == nil {
				c.minter.Forget(connection)
			}
		}
		defer c.references.Changed(user)
	}
	c.recheck(user.Kind, user.Namespace, user.Name)
}

// recheck has the health of an object checked, if it is one of the controllers.
func (c *controllers) recheck(kind, namespace, name string) {
	switch {
	case c.repos == nil:
	case kind == repos.Repository:
		c.repos.Recheck(namespace, name)
	case kind == repos.Connection:
		c.connections.Recheck(namespace, name)
	}
}

func (c *controllers) wakeRepository(namespace, name string) {
	if c.repos != nil {
		c.repos.Wake(namespace, name)
	}
}
