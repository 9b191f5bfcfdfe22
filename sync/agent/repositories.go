package agent

import (
	"context"
	"fmt"
	"time"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/repos"
	"limpet/sync/snapshot"
	"limpet/sync/worker"
)

// repositoryInformer limits the cache of Repositories to those of this agent: every
// pull writes the status of its Repository twice, which other agents should not
// receive. The embedded API is local.
func (a *Agent) repositoryInformer() (o kube.InformerOptions) {
	if a.cfg.Jobs.Selector != nil && a.embedded == nil {
		o.LabelSelector = a.cfg.Jobs.Selector.String()
	}
	return o
}

// newRepoController returns the controller of Repositories.
func (a *Agent) newRepoController(ctx context.Context, pulls worker.PullOptions) (*repos.Controller, error) {
	var since time.Time
	if a.embedded != nil {
		// Its objects are in the state file: objects of pulls before the file was
		// created may be missing.
		info, err := a.cfg.Store.Info(ctx)
		if err != nil {
			return nil, err
		}
		since = info.Created
	}
	return repos.New(a.client, a.repos, a.jobs, repos.Options{
		Remotes:      worker.Remotes{Credentials: pulls.Credentials, AllowInsecure: pulls.AllowInsecure},
		Git:          a.mirrors,
		Hosts:        repos.Forges{Hosts: a.hosts},
		Store:        a.cfg.Store,
		Trust:        a.signers,
		Tokens:       &repos.Tokens{Minter: a.minter, Connections: a, Sealed: a.embedded != nil},
		Webhooks:     a.cfg.Webhooks.Listen != "",
		WebhookBase:  a.cfg.Webhooks.URL,
		Orphans:      worker.NewOrphans(pulls),
		Quota:        a.cfg.Limits.quota(a.embedded != nil),
		Suspensions:  a.suspensions,
		Selector:     a.cfg.Jobs.Selector,
		Dependencies: dependencies{&a.access},
		Since:        since,
		Resync:       a.cfg.Resync,
		Observe: func(e repos.Event) {
			a.activity.AddEvent(snapshot.Event{At: e.At, Level: e.Level, Repo: e.Repository, Text: e.Text})
		},
		Meter:  a.metrics.Controller(),
		Logger: a.log.With("component", "repositories"),
	}), nil
}

// newConnectionController returns the controller of Connections with its cache.
func (a *Agent) newConnectionController() (*kube.Informer, *repos.Connections) {
	objects := a.client.Informer(api.Connections, a.cfg.Namespace, kube.InformerOptions{})
	return objects, repos.NewConnections(a.client, objects, repos.ConnectionOptions{
		Tester: a.minter, Repositories: a.repoController, Dependencies: dependencies{&a.access}, Resync: a.cfg.Resync,
		Logger: a.log.With("component", "connections"),
	})
}

// Suspend implements control.Suspender.
func (a *Agent) Suspend(ctx context.Context, s repos.Suspension) error {
	if c := a.controllers(); c.State != snapshot.ControllersActive {
		return fmt.Errorf("this agent suspends nothing, repositories are %s; suspend on the active agent", c.Text())
	}
	if err := a.suspensions.Suspend(ctx, s); err != nil {
		return err
	}
	text := "suspended"
	if !s.Until.IsZero() {
		text += " until " + s.Until.Local().Format(time.DateTime)
	}
	a.suspensionChanged(s.Namespace, s.Repository, text)
	return nil
}

// Resume implements control.Suspender.
func (a *Agent) Resume(ctx context.Context, namespace, repository string) (bool, error) {
	was, err := a.suspensions.Resume(ctx, namespace, repository)
	if was {
		a.suspensionChanged(namespace, repository, "resumed")
	}
	return was, err
}

func (a *Agent) suspensionChanged(namespace, repository, text string) {
	a.activity.AddEvent(snapshot.Event{At: time.Now(), Level: "info", Repo: repository, Text: text})
	if a.repoController != nil {
		a.repoController.Wake(namespace, repository)
	}
}

// Suspended implements control.Suspender.
func (a *Agent) Suspended(ctx context.Context) ([]repos.Suspension, error) {
	return a.suspensions.Suspended(ctx)
}

// addRepoFacts sets what the controller of Repositories knows beside their status.
func (a *Agent) addRepoFacts(row *snapshot.Repo) {
	row.Next = a.repoController.Next(row.Namespace, row.Name)
	if s, on := a.suspensions.Of(repos.Key{Namespace: row.Namespace, Name: row.Name}, row.UID); on {
		row.Suspended, row.Next = true, s.Until
	}
}
