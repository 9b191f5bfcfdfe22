package metrics

import (
	"slices"
	"strconv"

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
)

// The known values of labels. Source: Grafana's types.
var (
	repositoryTypes = []string{"local", "github", "githubEnterprise", "git", "bitbucket", "gitlab"}
	connectionTypes = []string{"github", "githubEnterprise", "githubOAuth", "githubEnterpriseOAuth", "gitlab", "bitbucket"}
	syncTargets     = []string{"instance", "folder", "folderless", ""}
)

func (s exporter) repositories(all []kube.Object) {
	sums := map[string]int{"healthy": 0, "unhealthy": 0, "unknown": 0, "suspended": 0}
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
		if len(all) > maxSeries {
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
		if state := r.Text(pathPull); state == api.StateError || state == api.StateSuccess || state == api.StateWarning {
			s.gauge("limpet_repository_last_sync_success", "1 when the last pull succeeded, 0 when it failed; absent during a pull.",
				number(state != api.StateError), name...)
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
	if len(all) > maxSeries {
		return
	}
	for _, c := range all {
		name, ready := []string{"namespace", c.Namespace(), "name", c.Name()}, readiness(c)
		s.gauge("limpet_connection_info", "Always 1; type and state of a connection are in the labels.", 1,
			append(name, "type", oneOf(connectionTypes, c.Text(pathType)), "ready", ready)...)
		if ready != "Unknown" {
			s.gauge("limpet_connection_healthy", "1 when the host accepted the connection at the last check.", number(ready == "True"), name...)
		}
	}
}

func (s exporter) tokens(c auth.TokenCounts, provider ...string) {
	with := func(name, value string) []string { return append(slices.Clip(provider), name, value) }
	s.gauge("limpet_token_cached_items", "Minted tokens in memory.", float64(c.Held), provider...)
	s.gauge("limpet_token_cache_oldest_age_seconds", "Age of the oldest minted token in memory; 0 = there is none.",
		c.Oldest.Seconds(), provider...)
	const (
		events    = "limpet_token_cache_events_total"
		requests  = "limpet_token_cache_requests_total"
		evictions = "limpet_token_cache_evictions_total"
	)
	s.counter(events, "Requests for tokens, by whether memory had one.", float64(c.Hits), with("event_type", "cache_hit")...)
	s.counter(events, "", float64(c.Minted+c.Failed), with("event_type", "cache_miss")...)
	s.counter(requests, "Attempts to mint a token.", float64(c.Minted), with("status", "success")...)
	s.counter(requests, "", float64(c.Failed), with("status", "failure")...)
	s.counter(evictions, "Tokens that were dropped before their end, by reason.", float64(c.Refused), with("reason", "refused")...)
	s.counter(evictions, "", float64(c.Overflow), with("reason", "overflow")...)
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
