package agent

import (
	"cmp"
	"context"
	"path/filepath"
	"time"

	"limpet/sync/jobs"
	"limpet/sync/kube"
	"limpet/sync/metrics"
	"limpet/sync/snapshot"
)

// gauges are what the metrics are read from at a scrape.
func (a *Agent) gauges(ctx context.Context) metrics.Source {
	cfg, c := a.cfg, a.controllers
	from := metrics.Source{
		Backlog: a.controller.Backlog, Jobs: a.controller.Snapshot, Store: cfg.Store.Info,
		Clock: func() (offset, bound time.Duration, ok bool) {
			now, bound, ok := a.clients.client.Clock().Now()
			return time.Until(now), bound, ok
		},
		Down:      func() time.Time { since, _ := a.clients.client.Down(); return since },
		Latency:   a.clients.client.Latency,
		Requests:  a.clients.requests,
		Ready:     func() bool { return a.endpoint.NotReady() == "" },
		Objects:   a.exported(),
		Suspended: a.suspended,
		History:   cfg.Store.History,
		Drifted: func(o kube.Object) (int, bool) {
			d, err := cfg.Store.Drift(ctx, o.Namespace(), o.Name(), o.UID())
			return d.Count, err == nil && !d.At.IsZero()
		},
		Tokens:        a.access.countTokens,
		Notifications: a.outbox.Status,
		Active:        c.active,
		Received:      a.access.mirrors.Received,
		Mirrors:       a.access.mirrors.Usage,
		Disk:          func() (free, size int64) { return snapshot.DiskSpace(filepath.Dir(cfg.StatePath)) },
		Expiry:        cmp.Or(cfg.Jobs.Expiry, jobs.DefaultExpiry),
	}
	if c.sources.controllers != nil {
		from.Fetched = func() map[string]int64 {
			out := map[string]int64{}
			for kind, controller := range c.sources.controllers {
				out[kind] = controller.Fetched()
			}
			return out
		}
	}
	return from
}

// exported are the objects that the metrics show, by their kind. Those of Flux are shown by the agent
// that reconciles them, as by one source-controller.
func (a *Agent) exported() map[string]func() []kube.Object {
	out := map[string]func() []kube.Object{"Repository": a.repos.Objects, "Job": a.jobs.Objects}
	c := a.controllers
	if c.cache != nil {
		out["Connection"] = c.cache.Objects
	}
	for kind := range c.sources.controllers {
		out[kind] = func() []kube.Object {
			if c.sources.role().State != snapshot.ControllersActive {
				return nil
			}
			all, _ := c.sources.watchers.Of(kind).Objects()
			return all
		}
	}
	return out
}

// active returns which controllers this agent has, and whether they work.
func (c *controllers) active() map[string]bool {
	out := map[string]bool{}
	for name, role := range map[string]snapshot.Controllers{"repositories": c.role(), "sources": c.sources.role()} {
		if role.State != snapshot.ControllersOff {
			out[name] = role.State == snapshot.ControllersActive
		}
	}
	return out
}
