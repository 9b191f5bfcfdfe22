package agent

import (
	"cmp"
	"context"
	"strings"

	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/kube"
	"limpet/sync/repos"
	"limpet/sync/repos/lease"
	"limpet/sync/snapshot"
	"limpet/sync/source"
	"limpet/sync/source/artifact"
	"limpet/sync/source/controller"
)

// sourcesLease is the name of the Lease of the controller of GitRepositories.
const sourcesLease = "limpet-sources"

// sources are the GitRepositories, and their controller if this agent has it.
type sources struct {
	mode       string
	watcher    *source.Watcher
	artifacts  *artifact.Store        // nil where they are neither made nor served
	controller *controller.Controller // nil = another one reconciles them
	lease      *lease.Lease           // nil = none is needed
}

// buildSources makes the watch of GitRepositories and their controller.
func (a *Agent) buildSources(ctx context.Context) (err error) {
	cfg, c, s := a.cfg, a.controllers, &a.controllers.sources
	log := cfg.Logger.With("component", "source")
	s.mode, s.watcher = cmp.Or(cfg.Sources, controllersAuto), source.NewWatcher(a.client, cfg.Namespace, log, a.hub.Invalidate)
	here := reconciles(cfg.Sources, a.embedded != nil)
	if here || cfg.Artifacts.Listen != "" {
		err = a.openArtifacts(ctx)
	}
	if err != nil || !here {
		return err
	}
	s.controller = controller.New(controller.Options{
		Client: a.client, Sources: s.watcher, Git: a.access.mirrors,
		Credentials:   a.access.identities.Source(a.access.places.WithTransport(a.access.places.NamedSecret())),
		Places:        a.access.places,
		Rules:         a.access.places.Rules,
		Signers:       a.access.signers,
		AllowInsecure: cfg.AllowInsecureGit,
		SinkPrefixes:  cfg.SinkPrefixes,
		SinkPrograms:  cfg.SinkPrograms,
		Artifacts:     s.artifacts,
		MaxBytes:      cfg.Artifacts.MaxBytes,
		MaxFiles:      cfg.Artifacts.MaxFiles,
		Outbox:        a.outbox,
		References:    c.references,
		Sealed:        a.sealed(),
		Now:           a.now,
		Observe: func(e repos.Event) {
			a.activity.AddEvent(snapshot.Event{At: e.At, Level: e.Level, Text: "source " + e.Namespace + "/" + e.Repository + ": " + e.Text})
		},
		Took:   a.metrics.SourceReconciled,
		Logger: log,
	})
	if a.embedded == nil {
		s.lease, err = a.newLease(ctx, sourcesLease, s.controller.Run,
			func(lease.State) { a.activity.Note("", "sources: "+s.role().TextOf("sources")) })
	}
	return err
}

// run runs the controller while this agent holds the Lease, until ctx ends.
func (s *sources) run(ctx context.Context) error {
	if s.lease != nil {
		return s.lease.Run(ctx)
	}
	return s.controller.Run(ctx)
}

func (s *sources) role() snapshot.Controllers { return roleOf(s.mode, s.controller != nil, s.lease) }

// wake reconciles a source.
func (s *sources) wake(namespace, name string) {
	if s.controller != nil {
		s.controller.Wake(namespace, name)
	}
}

// pushed reconciles the sources of a repository to which something was pushed, whatever the scheme of their URLs.
func (s *sources) pushed(url string) {
	to := repositoryAt(url)
	all, _ := s.watcher.Objects()
	for _, o := range all {
		if to != "" && repositoryAt(o.Text(pathURL)) == to {
			s.wake(o.Namespace(), o.Name())
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

// remotes returns the remotes of all sources. known is false while the watch may lack some.
func (s *sources) remotes() (used []git.Remote, known bool) {
	if s.controller == nil {
		return nil, true
	}
	if synced, _, problem, on := s.watcher.Watch(); on && (!synced || problem != "") {
		return nil, false
	}
	all, known := s.watcher.Objects()
	for _, o := range all {
		used = append(used, git.Remote{URL: o.Text(pathURL)})
	}
	return used, known
}

var pathURL = kube.PathTo("spec", "url")
