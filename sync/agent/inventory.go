package agent

import (
	"time"

	"limpet/sync/kube"
	"limpet/sync/metrics"
	"limpet/sync/repos"
)

// Fields of Repositories and Connections for the gauges. They are read one by one,
// because a scrape must not decode a thousand objects.
var (
	pathType       = kube.PathTo("spec", "type")
	pathTarget     = kube.PathTo("spec", "sync", "target")
	pathConnection = kube.PathTo("spec", "connection", "name")
	pathChecked    = kube.PathTo("status", "health", "checked")
	pathHealthy    = kube.PathTo("status", "health", "healthy")
	pathPulled     = kube.PathTo("status", "sync", "finished")
	pathPull       = kube.PathTo("status", "sync", "state")
)

// repositoryMetrics returns the Repositories for a scrape.
func (a *Agent) repositoryMetrics() []metrics.Repository {
	objects := a.repos.Objects()
	out := make([]metrics.Repository, len(objects))
	for i, s := range objects {
		k := repos.Key{Namespace: s.Namespace(), Name: s.Name()}
		out[i] = metrics.Repository{Namespace: k.Namespace, Name: k.Name,
			Type: s.Text(pathType), Target: s.Text(pathTarget), Connection: s.Text(pathConnection),
			Checked: s.Number(pathChecked) > 0, Healthy: s.Bool(pathHealthy), Pull: s.Text(pathPull)}
		if at := s.Number(pathPulled); at > 0 {
			out[i].Pulled = time.UnixMilli(at)
		}
		_, out[i].Suspended = a.suspensions.Of(k, s.UID())
	}
	return out
}

// connectionMetrics returns the Connections for a scrape.
func (a *Agent) connectionMetrics() []metrics.Connection {
	if a.connections == nil {
		return nil
	}
	objects := a.connections.Objects()
	out := make([]metrics.Connection, len(objects))
	for i, s := range objects {
		out[i] = metrics.Connection{Namespace: s.Namespace(), Name: s.Name(), Type: s.Text(pathType),
			Checked: s.Number(pathChecked) > 0, Healthy: s.Bool(pathHealthy)}
	}
	return out
}
