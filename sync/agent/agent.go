// Package agent builds the parts of an agent and runs them in one errgroup.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/apiserver/manifests"
	"limpet/sync/auth"
	"limpet/sync/control"
	"limpet/sync/dependency"
	"limpet/sync/jobs"
	"limpet/sync/kube"
	"limpet/sync/metrics"
	"limpet/sync/netx"
	"limpet/sync/repos"
	"limpet/sync/repos/lease"
	"limpet/sync/snapshot"
	"limpet/sync/snapshot/diff"
	"limpet/sync/source"
	"limpet/sync/worker"
)

// Config configures an Agent. Store, StatePath, Version, Jobs and Logger are
// required.
type Config struct {
	Store     *state.Store // owned by the caller, open longer than the Agent
	StatePath string       // mirrors/ and the socket live beside it
	Version   string

	// API is the server to watch. An empty Server and Kubeconfig mean the
	// embedded API, served from Store.
	API        kube.Config
	Dashboards string // base URL for dashboards; "" = the server of API
	Folders    string // base URL for folders; "" = the server of API
	Namespace  string // "" = all
	Manifests  string // directory applied to the embedded API; "" = none

	Jobs   jobs.Options
	Resync time.Duration // delay after a failed reconcile
	Limits Limits
	// Controllers is "on" when this agent manages Repositories and Connections,
	// "off" when it does not, or "auto": on the embedded API only. "" means "auto".
	Controllers string

	CredentialsDir   string
	TokenCache       int // tokens that each provider of identities keeps; 0 = identity.DefaultTokens
	GitRules         []auth.Rule
	Policies         []auth.VerificationPolicy // required signatures, in addition to those of Repositories
	AllowInsecureGit bool
	GitTimeout       time.Duration // longest fetch; 0 = git.DefaultWhole
	Guard            netx.Guard    // which private networks Git hosts may be in
	LocalGit         []string      // directories whose file:// repositories may be read
	SinkPrefixes     []string

	Socket    bool   // serve limpet.sock
	Telemetry string // address of /metrics, /healthz and /readyz; "" = off
	Webhooks  Webhooks
	Logger    *slog.Logger
}

// Agent runs jobs and shows their progress. Use New, then Run once.
type Agent struct {
	access
	diff.Comparer
	log     *slog.Logger
	started time.Time

	manifests  *manifests.Applier // nil = none
	jobs       *kube.Informer
	repos      *kube.Informer
	controller *jobs.Controller
	metrics    *metrics.Metrics
	hub        *snapshot.Hub
	activity   *snapshot.Activity
	health     *snapshot.Health
	sources    *source.Watcher // of Flux, to be shown

	suspensions *repos.Suspensions

	repoController       *repos.Controller // nil when this agent does not manage Repositories, as the others below
	connectionController *repos.Connections
	connections          *kube.Informer // of Connections
	lease                *lease.Lease   // of the controllers; nil = none is needed
}

// New builds the parts of an agent. It checks the configuration and the files that it
// names, but needs no server to be up: an agent at a site without a link starts
// anyway. Close releases what it opened.
func New(ctx context.Context, cfg Config) (_ *Agent, err error) {
	a := &Agent{access: access{cfg: cfg}, log: cfg.Logger, started: time.Now(), hub: snapshot.NewHub()}
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	if err := cfg.Jobs.Validate(); err != nil {
		return nil, err
	}
	if err := cfg.Webhooks.check(); err != nil {
		return nil, err
	}
	if err := a.connect(ctx, cfg); err != nil {
		return nil, err
	}
	if cfg.Manifests != "" && a.embedded != nil {
		if a.manifests, err = manifests.New(a.client, cfg.Manifests, a.log.With("component", "manifests")); err != nil {
			return nil, err
		}
	}
	if a.suspensions, err = repos.OpenSuspensions(ctx, cfg.Store); err != nil {
		return nil, err
	}
	a.activity = snapshot.NewActivity(a.hub, a.jobOptions())
	if a.reconciles() {
		a.references = dependency.New(dependency.Options{
			Wake: a.wakeUser, Dir: cfg.CredentialsDir, Client: a.client, Logger: a.log.With("component", "dependencies")})
	}
	if err := a.open(mirrorsPath(cfg.StatePath)); err != nil {
		return nil, err
	}
	a.metrics = metrics.New(cfg.Version, cmp.Or(cfg.Jobs.Drivers, jobs.DefaultDrivers), cfg.Logger.With("component", "metrics"))
	a.jobs = a.client.Informer(api.Jobs, cfg.Namespace, kube.InformerOptions{Compact: true})
	a.repos = a.client.Informer(api.Repositories, cfg.Namespace, a.repositoryInformer())
	a.Comparer = diff.Comparer{Repos: a.repos, Mirrors: a.mirrors}
	a.health = a.newHealth()
	credentials := a.credentials()
	pulls := worker.PullOptions{
		Client: a.client, Dashboards: a.dashboards, Folders: a.folders,
		Git: a.mirrors, Credentials: credentials, Signers: a.signers, SinkPrefixes: cfg.SinkPrefixes,
		Parallel: cfg.Limits.Parallel, MaxIncremental: cfg.Limits.IncrementalChanges, AllowInsecure: cfg.AllowInsecureGit, Logger: cfg.Logger,
	}
	options := cfg.Jobs
	options.Observe = a.observe
	if a.embedded != nil {
		options.OldestRecord = func(ctx context.Context) (time.Time, error) {
			info, err := cfg.Store.Info(ctx)
			return info.Oldest, err
		}
	}
	pull, keys := worker.NewPull(pulls), worker.NewSigningKeys(a.places().Signing)
	workers := []jobs.Worker{pull, worker.NewDelete(pull, keys), worker.NewMove(pull, keys)}
	if a.controller, err = jobs.New(a.client, a.jobs, a.repos, cfg.Store, workers, options); err != nil {
		return nil, err
	}
	if a.reconciles() {
		if a.repoController, err = a.newRepoController(ctx, pulls); err != nil {
			return nil, err
		}
		a.connections, a.connectionController = a.newConnectionController()
		if a.lease, err = a.newLease(ctx); err != nil {
			return nil, err
		}
	}
	a.sources = source.NewWatcher(a.client, cfg.Namespace, cfg.Logger.With("component", "source"), a.hub.Invalidate)
	a.metrics.Read(a.metricsSource())
	return a, nil
}

// Close releases the connections. It may be called without Run and twice.
func (a *Agent) Close() { a.access.close() }

// Run works until ctx ends, then finishes or releases the claims and returns nil. It
// returns early when a part fails for good, with state.ErrCorrupt when the state file
// has to be reopened.
func (a *Agent) Run(ctx context.Context) error {
	var ln net.Listener
	if a.cfg.Socket {
		var err error
		if ln, err = control.Listen(SocketPath(a.cfg.StatePath)); err != nil {
			return err
		}
	}
	a.addHandlers()
	builder := a.newBuilder(ctx)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { a.hub.Run(ctx, builder.Build, builder.Reset); return nil })
	g.Go(func() error { return a.jobs.Run(ctx) })
	g.Go(func() error { return a.repos.Run(ctx) })
	g.Go(func() error { return a.controller.Run(ctx) })
	g.Go(func() error { return a.saveSnapshots(ctx) })
	g.Go(func() error { return a.sweep(ctx) })
	g.Go(func() error { return a.health.Run(ctx, a.hub, a.log) })
	g.Go(func() error { return a.pruneMirrors(ctx) })
	g.Go(func() error { return a.watchDamage(ctx) })
	g.Go(func() error { return a.watchSources(ctx) })
	if a.repoController != nil {
		g.Go(func() error { return a.connections.Run(ctx) })
		g.Go(func() error { return a.runLeader(ctx) })
	}
	if a.manifests != nil {
		g.Go(func() error { return a.manifests.Run(ctx) })
	}
	if ln != nil {
		server := a.socketServer()
		g.Go(func() error { return server.Serve(ctx, ln) })
	}
	if a.cfg.Telemetry != "" {
		g.Go(func() error { return a.telemetry(ctx) })
	}
	if a.cfg.Webhooks.Listen != "" {
		g.Go(func() error { return a.webhooks(ctx) })
	}
	err := g.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// watchDamage returns an error when the state file is found damaged. The agent ends,
// because lost records would be missing until its restart.
func (a *Agent) watchDamage(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-a.cfg.Store.Damaged():
		return fmt.Errorf("stop working on %s: %w", a.cfg.StatePath, state.ErrCorrupt)
	}
}

// addHandlers connects the watches to the snapshot.
func (a *Agent) addHandlers() {
	a.jobs.AddHandler(kube.Handler{Any: a.hub.Invalidate})
	a.repos.AddHandler(kube.Handler{Any: a.hub.Invalidate})
	if a.connections != nil {
		a.connections.AddHandler(kube.Handler{Any: a.hub.Invalidate})
	}
}

// SocketPath returns the socket beside a state file: limpet.sock beside limpet.db.
func SocketPath(statePath string) string {
	return strings.TrimSuffix(statePath, ".db") + ".sock"
}

// mirrorsPath returns the directory of Git mirrors beside a state file: mirrors
// beside limpet.db, and a separate one for any other name, because two agents must
// not prune the mirrors of each other.
func mirrorsPath(statePath string) string {
	dir, name := filepath.Split(statePath)
	if name == "limpet.db" {
		return filepath.Join(dir, "mirrors")
	}
	return filepath.Join(dir, strings.TrimSuffix(name, ".db")+"-mirrors")
}

func (a *Agent) socketServer() *control.Server {
	s := &control.Server{
		Hello: control.Hello{
			Protocol: control.Protocol, Version: a.cfg.Version, PID: os.Getpid(),
			Started: a.started, State: a.cfg.StatePath, Server: a.serverName()},
		Store: a.cfg.Store,
		Agent: a,
	}
	if a.embedded != nil {
		s.API = a.embedded
	} else {
		s.API = a.proxy()
	}
	return s
}

func (a *Agent) serverName() string {
	if a.embedded != nil {
		return "embedded"
	}
	base, _ := a.client.Endpoint()
	return base.Redacted()
}

// Next blocks until there is a snapshot newer than seq, or ctx ends.
func (a *Agent) Next(ctx context.Context, seq uint64) (*snapshot.Snapshot, error) {
	return a.hub.Next(ctx, seq)
}

// Cancel stops a job that this agent runs; see jobs.Controller.Cancel.
func (a *Agent) Cancel(ctx context.Context, namespace, name string) error {
	return a.controller.Cancel(ctx, namespace, name)
}

// Drain stops claiming new jobs, or resumes; see jobs.Controller.
func (a *Agent) Drain(on bool) (since time.Time, busy int) {
	a.controller.Drain(on)
	a.hub.Invalidate()
	return a.Draining()
}

// Hurry retries an unavailable API at once.
func (a *Agent) Hurry() {
	a.client.RetryNow()
	a.hub.Invalidate()
}

// Draining returns since when nothing new is claimed, and how much still has to
// finish.
func (a *Agent) Draining() (since time.Time, busy int) {
	s := a.controller.Snapshot()
	return s.DrainingSince, s.Busy
}

// Client returns the client of the API.
func (a *Agent) Client() *kube.Client { return a.client }

// Store returns the state file.
func (a *Agent) Store() control.Store { return a.cfg.Store }

var _ control.Agent = (*Agent)(nil)
var _ control.Store = (*state.Store)(nil)
