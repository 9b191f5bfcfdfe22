package agent

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"

	"limpet/sync/api"
	"limpet/sync/apiserver"
	"limpet/sync/auth"
	"limpet/sync/dependency"
	"limpet/sync/git"
	"limpet/sync/kube"
	"limpet/sync/reconcile"
	"limpet/sync/repos/lease"
	"limpet/sync/snapshot"
	"limpet/sync/source"
	"limpet/sync/source/artifact"
	"limpet/sync/source/controller"
	"limpet/sync/source/kind/externalartifact"
	"limpet/sync/source/kind/gitrepository"
	"limpet/sync/source/upstream"
	"limpet/sync/worker/checkout"
)

// sourcesLease is the name of the Lease of the controllers of sources.
const sourcesLease = "limpet-sources"

// sources are the sources of Flux, and their controllers if this agent has them.
type sources struct {
	mode        string
	watchers    source.Watchers
	artifacts   *artifact.Store                   // nil where they are neither made nor served
	controllers map[string]*controller.Controller // by kind; nil = another one reconciles them
	publisher   *externalartifact.Publisher       // beside them
	lease       *lease.Lease                      // nil = none is needed
}

func (a *Agent) buildSources(ctx context.Context) (err error) {
	cfg, s := a.cfg, &a.controllers.sources
	log := cfg.Logger.With("component", "source")
	s.mode = cmp.Or(cfg.Sources, controllersAuto)
	for _, k := range api.SourceKinds() {
		s.watchers = append(s.watchers, source.NewWatcher(a.clients.client, k, cfg.Namespace, log, a.hub.Invalidate))
	}
	here := reconciles(cfg.Sources, a.clients.embedded != nil)
	if here || cfg.Artifacts.Listen != "" {
		err = a.openArtifacts(ctx)
	}
	if err != nil || !here {
		return err
	}
	s.controllers = map[string]*controller.Controller{}
	turns := controller.NewTurns(a.access.mirrors.Silent)
	external := a.externalArtifacts(log)
	s.publisher = externalartifact.NewPublisher(external)
	for _, kind := range append(a.sourceKinds(), externalartifact.New(external)) {
		name := kind.Kind().Kind
		s.controllers[name] = controller.New(controller.Options{
			Kind: kind, Client: a.clients.client, Sources: s.watchers.Of(name), Turns: turns,
			SinkPrefixes: cfg.SinkPrefixes,
			MaxBytes:     cfg.Artifacts.MaxBytes,
			SinkPrograms: cfg.SinkPrograms,
			Artifacts:    s.artifacts,
			Outbox:       a.outbox,
			References:   a.controllers.references,
			Now:          a.clients.client.Now,
			Observe: func(e reconcile.Event) {
				a.activity.AddEvent(snapshot.Event{At: e.At, Level: e.Level, Text: "source " + e.Namespace + "/" + e.Repository + ": " + e.Text})
			},
			Worked: a.metrics.Reconciled,
			Logger: log,
		})
	}
	if a.clients.embedded == nil {
		s.lease, err = a.newLease(ctx, sourcesLease, s.work,
			func(lease.State) { a.activity.Note("", "sources: "+s.role().TextOf("sources")) })
	}
	return err
}

// sourceKinds are the kinds of sources that limpet reconciles.
func (a *Agent) sourceKinds() []controller.Kind {
	cfg, c, access := a.cfg, a.controllers, a.access
	git := gitrepository.New(gitrepository.Options{
		Sources:       c.sources.watchers.Of(dependency.GitRepository),
		Git:           access.mirrors,
		Credentials:   access.identities.Source(access.places.WithTransport(access.places.NamedSecret())),
		Places:        access.places,
		Rules:         access.places.Rules,
		Signers:       access.signers,
		AllowInsecure: cfg.AllowInsecureGit,
		Artifacts:     c.sources.artifacts,
		MaxBytes:      cfg.Artifacts.MaxBytes,
		MaxFiles:      cfg.Artifacts.MaxFiles,
		References:    c.references,
		Sealed:        a.clients.sealed(),
		Now:           a.clients.client.Now,
	})
	return append([]controller.Kind{git}, access.kinds(cfg, &a.clients, access.registries(cfg, &a.clients), storage{
		layers:     besideState(cfg.StatePath, "layers"),
		objects:    besideState(cfg.StatePath, "objects"),
		artifacts:  c.sources.artifacts,
		sources:    c.sources.watchers,
		charts:     c.sources.artifacts,
		references: c.references,
	})...)
}

// externalArtifacts are the options of the kind that publishes what is no source of Flux.
func (a *Agent) externalArtifacts(log *slog.Logger) externalartifact.Options {
	cfg, sources := a.cfg, a.controllers.sources
	return externalartifact.Options{
		Client:       a.clients.client,
		Sources:      sources.watchers,
		Repositories: a.repos,
		Mirrors:      a.access.mirrors,
		Checkout:     checkout.Source{Git: a.access.mirrors, Credentials: a.access.credentials(), AllowInsecure: cfg.AllowInsecureGit},
		Artifacts:    sources.artifacts,
		MaxBytes:     cfg.Artifacts.MaxBytes,
		MaxFiles:     cfg.Artifacts.MaxFiles,
		References:   a.controllers.references,
		Logger:       log,
	}
}

// work runs the controllers of all kinds until ctx ends.
func (s *sources) work(ctx context.Context) error {
	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error { return s.publisher.Run(ctx) })
	for _, c := range s.controllers {
		running.Go(func() error { return c.Run(ctx) })
	}
	return running.Wait()
}

// next returns when a source is reconciled next; zero = not known.
func (s *sources) next(kind, namespace, name string) time.Time {
	if c := s.controllers[kind]; c != nil {
		return c.Next(namespace, name)
	}
	return time.Time{}
}

func (s *sources) role() snapshot.Controllers { return roleOf(s.mode, s.controllers != nil, s.lease) }

// wake has a source reconciled. It reports whether the kind is one of sources.
func (s *sources) wake(kind, namespace, name string) bool {
	if c := s.controllers[kind]; c != nil {
		c.Wake(namespace, name)
	}
	return s.watchers.Of(kind) != nil
}

// pushed reconciles the GitRepositories of a repository to which something was pushed, whatever the scheme
// of their URLs.
func (s *sources) pushed(url string) {
	to := repositoryAt(url)
	all, _ := s.watchers.Of(dependency.GitRepository).Objects()
	for _, o := range all {
		if to != "" && repositoryAt(o.Text(pathURL)) == to {
			s.wake(dependency.GitRepository, o.Namespace(), o.Name())
		}
	}
}

// repositoryAt returns host and path of a URL, "" for none.
func repositoryAt(url string) string {
	a, err := auth.ParseAddress(url)
	if err != nil {
		return ""
	}
	return a.Host + "/" + strings.TrimSuffix(strings.Trim(a.Path, "/"), ".git")
}

// remotes returns the remotes of all GitRepositories. known is false while the watch may lack some.
func (s *sources) remotes() (used []git.Remote, known bool) {
	if s.controllers == nil {
		return nil, true
	}
	watcher := s.watchers.Of(dependency.GitRepository)
	if synced, _, problem, on := watcher.Watch(); on && (!synced || problem != "") {
		return nil, false
	}
	all, known := watcher.Objects()
	for _, o := range all {
		used = append(used, git.Remote{URL: o.Text(pathURL)})
	}
	return used, known
}

var pathURL = kube.PathTo("spec", "url")

// ArtifactServer is where artifacts are served, and how many are kept.
type ArtifactServer struct {
	Listen            string // address; "" = nowhere
	URL               string // at which clients reach it; "" = made of Listen and the name of the host
	TokenFile         string // what they have to send as bearer token; "" = everyone is served
	CertFile, KeyFile string // "" = plain http
	Keep              int    // see artifact.Options
	MaxAge            time.Duration
	MaxBytes          int64 // see archive.Options
	MaxFiles          int
	MaxIndex          int64 // see helmrepository.Options
}

// url is the address for the status of sources, "" where nothing is served.
func (c ArtifactServer) url() string {
	host, port, err := net.SplitHostPort(c.Listen)
	if c.URL != "" || err != nil {
		return c.URL
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		name, _ := os.Hostname()
		host = cmp.Or(name, "localhost")
	}
	scheme := "http"
	if c.CertFile != "" {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

const (
	artifactConnections = 512
	artifactRead        = 30 * time.Second // of a request, which has no body
)

// openArtifacts opens the artifacts, and adds what runs with them to the parts.
func (a *Agent) openArtifacts(ctx context.Context) (err error) {
	s, c := &a.controllers.sources, a.cfg.Artifacts
	s.artifacts, err = artifact.Open(ctx, artifact.Options{Dir: ArtifactsPath(a.cfg.StatePath), Store: a.cfg.Store, URL: c.url(),
		Keep: c.Keep, MaxAge: c.MaxAge, Logger: a.cfg.Logger.With("component", "artifacts")})
	if err != nil {
		return err
	}
	a.parts = append(a.parts, s.artifacts.Run, s.rebuildLost)
	if c.Listen == "" {
		return nil
	}
	var token func() (string, error)
	if c.TokenFile != "" {
		token = kube.TokenFile("--artifact-token-file", c.TokenFile, a.cfg.Logger).Get
	}
	archives, bundles := s.artifacts.Handler(token), upstream.Handler(a.clients.client, a.access.mirrors, token)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Base(r.URL.Path) == upstream.File {
			bundles.ServeHTTP(w, r)
			return
		}
		archives.ServeHTTP(w, r)
	})
	a.parts = append(a.parts, func(ctx context.Context) error { return a.serveArtifacts(ctx, handler) })
	return nil
}

// rebuildLost has the sources reconciled whose artifacts are found to be damaged while they are
// served.
func (s *sources) rebuildLost(ctx context.Context) error {
	for {
		select {
		case lost := <-s.artifacts.Lost():
			k, _ := api.SourceKind(lost.Kind)
			s.wake(k.Kind, lost.Namespace, lost.Name)
		case <-ctx.Done():
			return nil
		}
	}
}

// serveArtifacts serves until ctx ends. An address in use is logged and tried again.
func (a *Agent) serveArtifacts(ctx context.Context, handler http.Handler) error {
	c, log := a.cfg.Artifacts, a.cfg.Logger.With("component", "artifacts")
	listener := apiserver.Listener{Address: c.Listen, CertFile: c.CertFile, KeyFile: c.KeyFile,
		Limit: func(ln net.Listener) net.Listener { return netutil.LimitListener(ln, artifactConnections) }}
	ln := listener.Wait(ctx, log, "artifacts", "--artifact-listen")
	if ln == nil {
		return nil
	}
	log.Info("artifacts", "address", ln.Addr().String(), "url", c.url(), "tls", c.CertFile != "", "token", c.TokenFile != "")
	return apiserver.Serve(ctx, ln, &http.Server{Handler: handler, ReadTimeout: artifactRead})
}
