package metrics

import (
	"context"
	"slices"
	"strconv"
	"time"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/kube"
)

// Fields of Repositories and Connections. They are read one by one, because a scrape must
// not decode a thousand objects.
var (
	pathType       = kube.PathTo("spec", "type")
	pathTarget     = kube.PathTo("spec", "sync", "target")
	pathConnection = kube.PathTo("spec", "connection", "name")
	pathChecked    = kube.PathTo("status", "health", "checked")
	pathHealthy    = kube.PathTo("status", "health", "healthy")
	pathPulled     = kube.PathTo("status", "sync", "finished")
	pathPull       = kube.PathTo("status", "sync", "state")
	pathInterval   = kube.PathTo("spec", "sync", "intervalSeconds")
	pathEnabled    = kube.PathTo("spec", "sync", "enabled")
)

// The known values of labels. Source: Grafana's types.
var (
	repositoryTypes = []string{"local", "github", "githubEnterprise", "git", "bitbucket", "gitlab"}
	connectionTypes = []string{"github", "githubEnterprise", "githubOAuth", "githubEnterpriseOAuth", "gitlab", "bitbucket"}
	syncTargets     = []string{"instance", "folder", "folderless", ""}
)

// objects exports the objects of all kinds.
func (s exporter) objects() {
	sources := map[sourceKey]bool{}
	for _, kind := range Kinds {
		list := s.source.Objects[kind.Kind]
		if list == nil {
			continue
		}
		all := list()
		s.resources(kind, all)
		switch {
		case kind.Resource == api.Repositories:
			s.repositories(all)
		case kind.Resource == api.Connections:
			s.connections(all)
		case kind.IsSource():
			for _, o := range all {
				sources[sourceKey{kind.Kind, o.Namespace(), o.Name()}] = true
			}
		}
	}
	s.reconciles.keep(sources)
}

// pulls returns when each Repository was pulled last with success, as far as that is known: its
// status forgets that at the next failure, so it is remembered.
func (c *collector) pulls(all []kube.Object) map[string]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pulled == nil {
		c.pulled = c.pastPulls()
	}
	pulled := make(map[string]time.Time, len(all))
	for _, r := range all {
		at := c.pulled[r.Key()]
		if state := r.Text(pathPull); state == api.StateSuccess || state == api.StateWarning {
			at = time.UnixMilli(r.Number(pathPulled))
		}
		if at.After(r.Created()) { // else it was another Repository of that name
			pulled[r.Key()] = at
		}
	}
	c.pulled = pulled
	return pulled
}

// pastPulls returns the successful pulls of the newest history.
func (c *collector) pastPulls() map[string]time.Time {
	pulled := map[string]time.Time{}
	if c.source.History == nil {
		return pulled
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTime)
	defer cancel()
	records, err := c.source.History(ctx, state.Query{Action: "pull", States: []string{api.StateSuccess, api.StateWarning},
		Brief: true, Limit: maxSeries})
	if err != nil {
		c.log.Debug("metrics of the history", "err", err)
	}
	for _, r := range slices.Backward(records) { // the newest is the first
		pulled[r.Namespace+"/"+r.Repository] = r.Finished
	}
	return pulled
}

func (s exporter) repositories(all []kube.Object) {
	sums := map[string]int{"healthy": 0, "unhealthy": 0, "unknown": 0, "suspended": 0}
	pulled := s.pulls(all)
	for _, r := range all {
		suspended, ready, health := s.source.Suspended(r), readiness(r), "unknown"
		switch {
		case suspended:
			health = "suspended"
		case ready == "True":
			health = "healthy"
		case ready == "False":
			health = "unhealthy"
		}
		sums[health]++
		pull := r.Text(pathPull)
		if len(all) > maxSeries && ready != "False" && pull != api.StateError {
			continue
		}
		name := []string{"namespace", r.Namespace(), "name", r.Name()}
		s.gauge("limpet_repository_info", "Always 1; type and state of a repository are in the labels.", 1, append(name,
			"type", oneOf(repositoryTypes, r.Text(pathType)), "target", oneOf(syncTargets, r.Text(pathTarget)),
			"connection", r.Text(pathConnection), "ready", ready, "suspended", strconv.FormatBool(suspended))...)
		if ready != "Unknown" {
			s.gauge("limpet_repository_healthy", "1 when the last health check of the repository succeeded.", number(ready == "True"), name...)
		}
		if at := r.Number(pathPulled); at > 0 {
			s.gauge("limpet_repository_last_sync_timestamp_seconds", "When the last pull of the repository has ended.",
				float64(at)/1000, name...)
		}
		if pull == api.StateError || pull == api.StateSuccess || pull == api.StateWarning {
			s.gauge("limpet_repository_last_sync_success", "1 when the last pull succeeded, 0 when it failed; absent during a pull.",
				number(pull != api.StateError), name...)
		}
		if at := pulled[r.Key()]; !at.IsZero() {
			s.gauge("limpet_repository_last_success_timestamp_seconds", "When a pull of the repository has succeeded last.",
				unixSeconds(at), name...)
		}
		if every := r.Number(pathInterval); every > 0 && r.Bool(pathEnabled) && !suspended {
			s.gauge("limpet_repository_sync_interval_seconds", "How often the repository is to be pulled; absent when it is not.",
				float64(every), name...)
		}
		if s.source.Drifted != nil {
			if n, known := s.source.Drifted(r); known {
				s.gauge("limpet_repository_drifted_objects", "Objects that differ from Git, as the last check of this agent has found.",
					float64(n), name...)
			}
		}
	}
	for health, n := range sums {
		s.gauge("limpet_repositories", "Repositories by their health.", float64(n), "health", health)
	}
}

func (s exporter) connections(all []kube.Object) {
	for _, c := range all {
		name, ready := []string{"namespace", c.Namespace(), "name", c.Name()}, readiness(c)
		if len(all) > maxSeries && ready != "False" {
			continue
		}
		s.gauge("limpet_connection_info", "Always 1; type and state of a connection are in the labels.", 1,
			append(name, "type", oneOf(connectionTypes, c.Text(pathType)), "ready", ready)...)
		if ready != "Unknown" {
			s.gauge("limpet_connection_healthy", "1 when the host accepted the connection at the last check.", number(ready == "True"), name...)
		}
	}
}

// tokens exports the counts of minted tokens under the names of limpet and, as aliases, of Flux.
func (s exporter) tokens(c auth.TokenCounts, provider ...string) {
	with := func(name, value string) []string { return append(slices.Clip(provider), name, value) }
	s.gauge("limpet_token_cache_oldest_age_seconds", "Age of the oldest minted token in memory; 0 = there is none.",
		c.Oldest.Seconds(), provider...)
	for _, prefix := range []string{"limpet_token_", "gotk_token_"} {
		s.gauge(prefix+"cached_items", "Minted tokens in memory.", float64(c.Held), provider...)
		counter := func(name, help string, n uint64, label, value string) {
			s.counter(prefix+"cache_"+name+"_total", help, float64(n), with(label, value)...)
		}
		counter("events", "Requests for tokens, by whether memory had one.", c.Hits, "event_type", "cache_hit")
		counter("events", "", c.Minted+c.Failed, "event_type", "cache_miss")
		counter("requests", "Attempts to mint a token.", c.Minted, "status", "success")
		counter("requests", "", c.Failed, "status", "failure")
		counter("evictions", "Tokens that were dropped before their end, by reason.", c.Refused, "reason", "refused")
		counter("evictions", "", c.Overflow, "reason", "overflow")
	}
}

// readiness is the condition Ready of an object, as its last health check left it.
func readiness(o kube.Object) string {
	switch {
	case o.Number(pathChecked) <= 0:
		return "Unknown"
	case o.Bool(pathHealthy):
		return "True"
	}
	return "False"
}
