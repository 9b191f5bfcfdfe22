package agent

import (
	"context"

	"limpet/sync/jobs"
	"limpet/sync/snapshot"
	"limpet/sync/text"
)

// jobOptions returns the settings of jobs that the snapshot shows.
func (a *Agent) jobOptions() snapshot.JobOptions {
	return snapshot.JobOptions{Expiry: a.cfg.Jobs.Expiry, MaxAttempts: a.cfg.Jobs.MaxAttempts}
}

// newHealth returns the health of the API, once its watches are made.
func (a *Agent) newHealth() *snapshot.Health {
	problem := func() string { return "" }
	if a.manifests != nil {
		problem = func() string { return text.Redact(a.manifests.Problem()) }
	}
	return &snapshot.Health{
		Server:           a.serverName(),
		Embedded:         a.embedded != nil,
		Started:          a.started,
		Client:           a.client,
		Jobs:             a.jobs,
		Repos:            a.repos,
		ManifestsProblem: problem,
	}
}

// newBuilder returns the builder of snapshots.
func (a *Agent) newBuilder(ctx context.Context) *snapshot.Builder {
	from := snapshot.Sources{
		Health:      a.health,
		Connections: a.connections,
		Git:         a.sources,
		Activity:    a.activity,
		Jobs:        a.controller.Snapshot,
		Role:        a.controllers,
	}
	if a.repoController != nil {
		from.RepoFacts = a.addRepoFacts
	}
	b, err := snapshot.NewBuilder(ctx, a.cfg.Store, from, snapshot.Agent{
		Version:     a.cfg.Version,
		StorePath:   a.cfg.StatePath,
		Namespace:   a.cfg.Namespace,
		Started:     a.started,
		Drivers:     a.cfg.Jobs.Drivers,
		HistoryKept: a.cfg.Jobs.LocalHistory,
	}, a.jobOptions())
	if err != nil {
		a.log.Warn("read saved snapshot", "err", err)
	}
	return b
}

// observe passes events of jobs to the metrics and the snapshot.
func (a *Agent) observe(e jobs.Event) {
	a.metrics.Observe(e)
	a.activity.Observe(e)
}

// watchSources watches the sources of Flux once the agent is ready, so that it does
// not compete for a weak link.
func (a *Agent) watchSources(ctx context.Context) error {
	if a.health.WaitSynced(ctx) != nil {
		return nil
	}
	return a.sources.Run(ctx)
}

// Diagnostics implements control.Agent.
func (a *Agent) Diagnostics(ctx context.Context) (snapshot.DiagnosticsReport, error) {
	d := snapshot.Diagnostics{
		Store:       a.cfg.Store,
		Mirrors:     a.mirrors,
		Jobs:        a.jobs,
		Repos:       a.repos,
		Connections: a.connections,
		Sources:     a.sources,
		Tokens:      a.countTokens,
	}
	return d.Read(ctx)
}
