// Package agent builds the parts of an agent and runs them in one errgroup.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
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
	"limpet/sync/notify"
	"limpet/sync/page"
	"limpet/sync/reconcile"
	"limpet/sync/repos"
	"limpet/sync/resources"
	"limpet/sync/snapshot"
	"limpet/sync/snapshot/diff"
	"limpet/sync/source/kind/ocirepository"
	"limpet/sync/text"
	"limpet/sync/webhook"
	"limpet/sync/worker"
	"limpet/sync/worker/checkout"
	"limpet/sync/worker/load"
)

// Config configures an Agent. Store, StatePath, Version, Jobs and Logger are required.
type Config struct {
	Store     *state.Store // owned by the caller, open longer than the Agent
	StatePath string       // mirrors/ and the socket live beside it
	Version   string

	// API is the server to watch. An empty Server and Kubeconfig mean the embedded API, served from
	// Store.
	API        kube.Config
	Dashboards string // base URL for dashboards; "" = the server of API
	Folders    string // base URL for folders; "" = the server of API
	Namespace  string // "" = all
	// Manifests says which directory is applied to the API and how; an empty Dir = none. The agent
	// adds its client.
	Manifests manifests.Options

	Jobs   jobs.Options
	Resync time.Duration // delay after a failed reconcile
	Limits Limits
	// Controllers is "on" when this agent manages Repositories and Connections, "off" when it does
	// not, or "auto": on the embedded API only. "" means "auto".
	Controllers string
	// Sources is the same for GitRepositories, in place of Flux's source-controller.
	Sources   string
	Artifacts ArtifactServer

	CredentialsDir   string
	TokenCache       int // tokens that each provider of identities keeps; 0 = identity.DefaultTokens
	GitRules         []auth.Rule
	Policies         []auth.VerificationPolicy // required signatures, in addition to those of Repositories
	AllowInsecureGit bool
	GitTimeout       time.Duration // longest fetch; 0 = git.DefaultWhole
	Guard            netx.Guard    // which private networks Git hosts may be in
	LocalGit         []string      // directories whose file:// repositories may be read
	RegistryMirrors  ocirepository.Mirrors
	LocalDirs        []string // directories under which a Repository of type local may be
	SinkPrefixes     []string
	SinkPrograms     []string        // that a sink may run after a switch
	CommitStatus     bool            // report all syncs on their commits
	Kinds            resources.Kinds // that files may hold; nil = those of resources.DefaultKinds

	Socket    bool         // serve limpet.sock
	Log       *control.Log // served there; nil = none
	Telemetry string       // address of /metrics, /healthz, /readyz and the page; "" = off
	NoPage    bool         // serve no page there
	Webhooks  webhook.Config
	Notify    []*notify.Target
	Heartbeat *notify.Target // called while nothing fails; nil = none
	Logger    *slog.Logger
}

// Agent is the parts of an agent. Use New, then Run once. The Service answers people.
type Agent struct {
	*control.Service
	clients     clients
	cfg         Config
	access      *access
	jobs        *kube.Informer
	repos       *kube.Informer
	controller  *jobs.Controller
	controllers *controllers
	pull        *worker.Pull
	suspensions *repos.Suspensions
	metrics     *metrics.Metrics
	endpoint    *metrics.Endpoint
	hub         *snapshot.Hub
	activity    *snapshot.Activity
	health      *snapshot.Health
	builder     *snapshot.Builder
	deliveries  *webhook.Cluster
	outbox      *notify.Outbox
	refusal     atomic.Pointer[string] // why the newest config file does not hold; nil = it does

	parts []func(context.Context) error // to be run
}

// New builds the parts of an agent. It checks the configuration and the files that it names, but
// needs no server to be up: an agent at a site without a link starts anyway. Close releases what it
// opened.
func New(ctx context.Context, cfg Config) (_ *Agent, err error) {
	a := &Agent{cfg: cfg, hub: snapshot.NewHub()}
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	if err := errors.Join(cfg.Jobs.Validate(), cfg.Webhooks.Check()); err != nil {
		return nil, err
	}
	if a.cfg.Kinds == nil {
		a.cfg.Kinds, _ = resources.ParseKinds(nil) // a constant
	}
	if err := a.clients.connect(ctx, cfg); err != nil {
		return nil, err
	}
	if a.suspensions, err = repos.OpenSuspensions(ctx, cfg.Store); err != nil {
		return nil, err
	}
	embedded, started := a.clients.embedded != nil, time.Now()
	a.controllers = &controllers{mode: cmp.Or(cfg.Controllers, controllersAuto)}
	withSources, reconciles := reconciles(cfg.Sources, embedded), reconciles(cfg.Controllers, embedded)
	if reconciles || withSources {
		a.controllers.references = dependency.New(dependency.Options{Wake: a.controllers.wake, Dir: cfg.CredentialsDir,
			Client: a.clients.client, Logger: cfg.Logger.With("component", "dependencies")})
	}
	if a.access, err = openAccess(cfg, &a.clients, a.controllers.references, MirrorsPath(cfg.StatePath)); err != nil {
		return nil, err
	}
	shown := snapshot.JobOptions{Expiry: cfg.Jobs.Expiry, MaxAttempts: cfg.Jobs.MaxAttempts}
	a.activity = snapshot.NewActivity(a.hub, shown)
	a.metrics = metrics.New(cfg.Version, cmp.Or(cfg.Jobs.Drivers, jobs.DefaultDrivers), cfg.Logger.With("component", "metrics"))
	a.jobs = a.clients.client.Informer(api.Jobs, cfg.Namespace, kube.InformerOptions{Compact: true})
	var selected kube.InformerOptions
	if cfg.Jobs.Selector != nil && !embedded {
		// Every pull writes the status of its Repository twice, which other agents should not receive.
		// The embedded API is local.
		selected.LabelSelector = cfg.Jobs.Selector.String()
	}
	a.repos = a.clients.client.Informer(api.Repositories, cfg.Namespace, selected)
	news, err := a.buildNotifier(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.buildJobs(ctx, reconciles, news); err != nil {
		return nil, err
	}
	a.health = &snapshot.Health{Server: a.clients.name(), Embedded: embedded, Started: started, Client: a.clients.client, Jobs: a.jobs, Repos: a.repos,
		HostProblem: a.diskProblem, Warnings: a.warnings}
	if cfg.Manifests.Dir != "" {
		o := cfg.Manifests
		o.Client, o.Store, o.Logger = a.clients.client, cfg.Store, cfg.Logger.With("component", "manifests")
		if !embedded {
			o.Server, o.Host, o.Namespace = a.clients.name(), cfg.Jobs.Agent, cfg.Namespace
		}
		applier, err := manifests.New(ctx, o)
		if err != nil {
			return nil, err
		}
		a.health.HostProblem = func() string { return cmp.Or(a.diskProblem(), text.Redact(applier.Problem())) }
		a.parts = append(a.parts, applier.Run)
	}
	if err := a.buildSources(ctx); err != nil {
		return nil, err
	}
	a.buildViews(ctx, started, shown)
	return a, nil
}

func pullOptions(cfg Config, c *clients, a *access) worker.PullOptions {
	pulls := worker.PullOptions{
		Client: c.client, Dashboards: c.dashboards, Folders: c.folders,
		Source: checkout.Source{Git: a.mirrors, Credentials: a.credentials(), Signers: a.signers,
			AllowInsecure: cfg.AllowInsecureGit},
		SinkPrefixes: cfg.SinkPrefixes, SinkPrograms: cfg.SinkPrograms,
		Store: cfg.Store, LocalDirs: cfg.LocalDirs, Kinds: cfg.Kinds, Parallel: cfg.Limits.Parallel,
		MaxIncremental: cfg.Limits.IncrementalChanges,
		Logger:         cfg.Logger, Hosts: a.hosts, CommitStatus: cfg.CommitStatus,
	}
	if c.embedded != nil && cfg.Dashboards == "" {
		pulls.Space = cfg.Store
		// A write waits for the disk and holds no connection.
		pulls.Parallel = 3 * cmp.Or(pulls.Parallel, resources.DefaultParallel)
	}
	if c.embedded == nil && cfg.API.Kubeconfig == "" {
		pulls.GrafanaURL = cfg.API.Server
	}
	return pulls
}

func (a *Agent) buildJobs(ctx context.Context, reconciles bool, n *notifier) (err error) {
	cfg := a.cfg
	pulls := pullOptions(cfg, &a.clients, a.access)
	options := cfg.Jobs
	options.Silent = a.access.mirrors.Silent
	options.Observe = func(e jobs.Event) {
		a.metrics.Observe(e)
		a.activity.Observe(e)
		n.job(e)
	}
	if a.clients.embedded != nil {
		options.OldestRecord = func(ctx context.Context) (time.Time, error) {
			info, err := cfg.Store.Info(ctx)
			return info.Oldest, err
		}
	}
	a.pull = worker.NewPull(pulls)
	pull, keys := a.pull, auth.Source(a.access.places.Signing)
	if len(cfg.SinkPrefixes) > 0 && (len(options.Actions) == 0 || slices.Contains(options.Actions, pull.Action())) {
		sinks := repos.NewSinks(a.clients.client, a.repos, repos.PulledOptions{Pull: pull, Suspensions: a.suspensions, Selector: cfg.Jobs.Selector,
			Resync: cmp.Or(cfg.Resync, time.Minute), Observe: a.observeRepo, Logger: cfg.Logger.With("component", "sinks")})
		a.parts = append(a.parts, sinks.Run)
	}
	orphans := worker.NewOrphans(pulls)
	workers := []jobs.Worker{pull, worker.NewPullRequest(pull), worker.NewRelease(orphans), worker.NewRemove(orphans), load.Worker{}}
	for _, w := range worker.NewWrites(pull, keys) {
		workers = append(workers, w)
	}
	if a.controller, err = jobs.New(a.clients.client, a.jobs, a.repos, cfg.Store, workers, options); err != nil || !reconciles {
		return err
	}
	return a.controllers.build(ctx, a, pulls)
}

func (a *Agent) observeRepo(e reconcile.Event) {
	a.activity.AddEvent(snapshot.Event{At: e.At, Level: e.Level, Repo: e.Repository, Text: e.Text})
}

// suspended reports whether this agent leaves a Repository alone.
func (a *Agent) suspended(o kube.Object) bool {
	_, on := a.suspensions.Of(reconcile.Key{Namespace: o.Namespace(), Name: o.Name()}, o.UID())
	return on
}

// ready returns why the agent would not claim a job, or could not keep its result.
func (a *Agent) ready() error {
	return cmp.Or(a.controller.Ready(), a.cfg.Store.DiskError(context.Background()))
}

// diskProblem returns why the disk of the state file takes no writes, with a hint.
func (a *Agent) diskProblem() string {
	if err := a.cfg.Store.DiskError(context.Background()); err != nil {
		return err.Error() + "; try: df -h " + text.ShellWord(filepath.Dir(a.cfg.StatePath))
	}
	return ""
}

// buildViews makes what shows the agent to people and hosts.
func (a *Agent) buildViews(ctx context.Context, started time.Time, shown snapshot.JobOptions) {
	cfg, c := a.cfg, a.controllers
	sources := c.sources.watchers
	from := snapshot.Sources{Health: a.health, Connections: c.cache, Sources: sources, Activity: a.activity, Jobs: a.controller.Snapshot,
		Role: c.role, SourceRole: c.sources.role, Notifications: a.outbox.Status}
	if c.sources.controllers != nil {
		from.SourceNext = c.sources.next
	}
	if c.repos != nil {
		from.RepoFacts = func(row *snapshot.Repo) {
			row.Next = c.repos.Next(row.Namespace, row.Name)
			if s, on := a.suspensions.Of(reconcile.Key{Namespace: row.Namespace, Name: row.Name}, row.UID); on {
				row.Suspended, row.Next = true, s.Until
			}
		}
	}
	var err error
	a.builder, err = snapshot.NewBuilder(ctx, cfg.Store, from, snapshot.Agent{Version: cfg.Version, StorePath: cfg.StatePath,
		Namespace: cfg.Namespace, Started: started, Drivers: cfg.Jobs.Drivers, HistoryKept: cfg.Jobs.LocalHistory}, shown)
	if err != nil {
		cfg.Logger.Warn("read saved snapshot", "err", err)
	}
	a.Service = &control.Service{
		Comparer: diff.Comparer{Repos: a.repos, Mirrors: a.access.mirrors, Store: cfg.Store, Kinds: cfg.Kinds, Pull: a.pull,
			Artifacts: c.sources.artifacts},
		Hub:  a.hub,
		Jobs: a.controller,
		API:  a.clients.client,
		Report: snapshot.Diagnostics{Store: cfg.Store, Mirrors: a.access.mirrors, Jobs: a.jobs, Repos: a.repos, Connections: c.cache,
			Sources: sources, Tokens: a.access.countTokens},
		Suspensions: control.Suspensions{All: a.suspensions, Role: c.role, Activity: a.activity, Changed: c.wakeRepository},
		Tests:       a.access.tester(cfg, &a.clients),
		Outbox:      a.outbox,
		Recheck:     c.recheck,
	}
	a.metrics.Read(a.gauges(ctx))
	shows := http.NotFoundHandler()
	if !cfg.NoPage {
		shows = &page.Page{Snapshots: a.hub, Hours: a.activity.Runs, History: cfg.Store, Address: cfg.Telemetry}
	}
	a.endpoint = &metrics.Endpoint{Address: cfg.Telemetry, Metrics: a.metrics, Page: shows, Stuck: a.Stuck, Synced: a.health.Synced,
		Ready: a.ready, Down: a.clients.client.Down, Logger: cfg.Logger}
	secrets := a.access.places
	secrets.Observer = nil // each request reads them
	a.deliveries = webhook.NewCluster(webhook.ClusterOptions{
		Client: a.clients.client, Repos: a.repos, Jobs: a.jobs, Own: cfg.Store, Given: secrets, Suspensions: a.suspensions,
		Embedded: a.clients.embedded != nil, Reviews: slices.Contains(ActionsOf(cfg.Jobs.Actions), "pr"), Reconciles: c.repos != nil,
		Logger: cfg.Logger,
		Pulled: func(k reconcile.Key) {
			a.activity.Note(k.Name, "webhook: pull queued for a push that came during the last one")
		},
	})
	a.parts = append(a.parts,
		func(ctx context.Context) error { a.hub.Run(ctx, a.builder.Build, a.builder.Reset); return nil },
		a.jobs.Run, a.repos.Run, a.controller.Run,
		func(ctx context.Context) error {
			return (&snapshot.Saver{Store: cfg.Store}).Run(ctx, a.hub, cfg.Logger)
		},
		func(ctx context.Context) error {
			busy := func() bool { return len(a.controller.Snapshot().Running) > 0 }
			return a.activity.Run(ctx, cfg.Store, a.jobs, busy, cfg.Logger)
		},
		func(ctx context.Context) error { return a.health.Run(ctx, a.hub, cfg.Logger) },
		worker.MirrorPruner{Repos: a.repos, Others: c.sources.remotes, Mirrors: a.access.mirrors, Store: cfg.Store, Logger: cfg.Logger}.Run,
		func(ctx context.Context) error { // once the agent is ready, so that it does not compete for a weak link
			if a.health.WaitSynced(ctx) != nil {
				return nil
			}
			return sources.Run(ctx)
		})
	if c.repos != nil {
		a.parts = append(a.parts, c.cache.Run, underLease(c.lease, c.work))
	}
	if c.references != nil {
		a.parts = append(a.parts, c.references.Run)
	}
	if c.sources.controllers != nil {
		a.parts = append(a.parts, underLease(c.sources.lease, c.sources.work))
	}
	if cfg.Telemetry != "" {
		a.parts = append(a.parts, a.endpoint.Run)
	}
	if cfg.Webhooks.Listen != "" {
		a.parts = append(a.parts, a.receiveWebhooks)
	}
}

func (a *Agent) receiveWebhooks(ctx context.Context) error {
	o := webhook.Options{
		Facts: a.cfg.Store, Count: a.metrics.WebhookRequest, Processed: a.metrics.WebhookEvent,
		Accepted: a.activity.Note, Pushed: a.controllers.sources.pushed,
		Logger: a.cfg.Logger.With("component", "webhook"),
	}
	if a.clients.embedded == nil { // else limpet alone runs the pulls
		o.Incremental = webhook.Listed(a.cfg.Limits.IncrementalChanges)
	}
	return webhook.Run(ctx, a.cfg.Webhooks, a.deliveries, o)
}

// Reload takes the rules and policies of a configuration over, and the token, which may be another
// than its own; all else of it needs a new Agent. A wrong configuration is refused as a whole.
func (a *Agent) Reload(cfg Config, token string) error {
	err := cfg.Webhooks.Check()
	if err == nil && a.clients.embedded == nil {
		err = cfg.API.Check()
	}
	if err != nil {
		return err
	}
	a.access.places.Rules.Set(cfg.GitRules)
	a.access.policies.Set(cfg.Policies)
	for _, client := range []*kube.Client{a.clients.client, a.clients.dashboards, a.clients.folders} {
		client.SetToken(token)
	}
	for _, o := range a.repos.Objects() {
		a.controllers.references.Changed(dependency.Ref{Kind: dependency.File, Namespace: o.Namespace(), Name: o.Name()})
	}
	for kind, c := range a.controllers.sources.controllers {
		all, _ := a.controllers.sources.watchers.Of(kind).Objects()
		for _, o := range all {
			c.Wake(o.Namespace(), o.Name())
		}
	}
	return nil
}

// Refuse has the status say why the newest config file does not hold; nil when it does.
func (a *Agent) Refuse(err error) {
	var why *string
	if err != nil {
		why = new("config file refused, the old settings stay: " + text.Redact(err.Error()))
	}
	a.refusal.Store(why)
}

// warnings are about the agent itself.
func (a *Agent) warnings() (out []string) {
	if why := a.refusal.Load(); why != nil {
		out = append(out, *why)
	}
	if why := a.endpoint.Problem(); why != "" {
		out = append(out, why)
	}
	for _, t := range a.outbox.Status() {
		if t.Error != "" {
			out = append(out, "notifications are not delivered to "+t.Target+": "+t.Error+"; try: limpet notify test")
		}
		if t.Dropped > 0 {
			out = append(out, fmt.Sprintf("notifications to %s that were dropped: %d", t.Target, t.Dropped))
		}
	}
	return append(out, a.Stuck()...)
}

// Stuck returns what of the agent has not moved for longer than its deadline, one line a cause. An
// API that is away is no cause.
func (a *Agent) Stuck() (out []string) {
	since, _ := a.clients.client.Down()
	for _, informer := range []*kube.Informer{a.jobs, a.repos, a.controllers.cache} {
		if informer == nil || !since.IsZero() {
			continue
		}
		if why := informer.Stuck(); why != "" {
			out = append(out, why)
		}
	}
	return append(out, a.controller.Stuck(!since.IsZero())...)
}

// Close releases the connections. It may be called without Run and twice.
func (a *Agent) Close() {
	a.clients.close()
	if a.access != nil {
		a.access.close()
	}
}

// Run works until ctx ends, then finishes or releases the claims and returns nil. It returns early
// when a part fails for good, with state.ErrCorrupt when the state file has to be reopened: lost
// records would be missing until a restart.
func (a *Agent) Run(ctx context.Context) error {
	for _, objects := range []*kube.Informer{a.jobs, a.repos, a.controllers.cache} {
		if objects != nil {
			objects.AddHandler(kube.Handler{Any: a.hub.Invalidate})
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	if a.cfg.Socket {
		ln, err := control.Listen(SocketPath(a.cfg.StatePath))
		if err != nil {
			return err
		}
		hello := control.Hello{Protocol: control.Protocol, Version: a.cfg.Version, PID: os.Getpid(), Started: a.health.Started,
			State: a.cfg.StatePath, Server: a.clients.name()}
		server := &control.Server{Hello: hello, Store: a.cfg.Store, Agent: a.Service, Log: a.cfg.Log, API: a.clients.handler(a.cfg.Logger)}
		g.Go(func() error { return server.Serve(ctx, ln) })
	}
	for _, run := range a.parts {
		g.Go(func() error { return run(ctx) })
	}
	g.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-a.cfg.Store.Damaged():
			return fmt.Errorf("stop working on %s: %w", a.cfg.StatePath, state.ErrCorrupt)
		}
	})
	err := g.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// ArtifactsPath returns the directory of artifacts beside a state file, as MirrorsPath does for
// mirrors.
func ArtifactsPath(statePath string) string { return besideState(statePath, "artifacts") }

// SocketPath returns the socket beside a state file: limpet.sock beside limpet.db.
func SocketPath(statePath string) string {
	return strings.TrimSuffix(statePath, ".db") + ".sock"
}

// MirrorsPath returns the directory of Git mirrors beside a state file: mirrors beside limpet.db,
// and a separate one for any other name, because two agents must not prune the mirrors of each
// other.
func MirrorsPath(statePath string) string { return besideState(statePath, "mirrors") }

func besideState(statePath, what string) string {
	dir, name := filepath.Split(statePath)
	if name == "limpet.db" {
		return filepath.Join(dir, what)
	}
	return filepath.Join(dir, strings.TrimSuffix(name, ".db")+"-"+what)
}

// Store returns the state file.
func (a *Agent) Store() control.Store { return a.cfg.Store }

var _ control.Store = (*state.Store)(nil)
