package metrics

import (
	"time"

	"limpet/sync/kube"
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

// Inventory reads the objects of a Source from their caches.
type Inventory struct {
	Repos       *kube.Informer
	Connections *kube.Informer // nil = they are not watched
	Suspensions *repos.Suspensions
}

// ListRepositories is for Source.Repositories.
func (i Inventory) ListRepositories() []Repository {
	objects := i.Repos.Objects()
	out := make([]Repository, len(objects))
	for n, s := range objects {
		k := repos.Key{Namespace: s.Namespace(), Name: s.Name()}
		out[n] = Repository{Namespace: k.Namespace, Name: k.Name,
			Type: s.Text(pathType), Target: s.Text(pathTarget), Connection: s.Text(pathConnection),
			Checked: s.Number(pathChecked) > 0, Healthy: s.Bool(pathHealthy), Pull: s.Text(pathPull)}
		if at := s.Number(pathPulled); at > 0 {
			out[n].Pulled = time.UnixMilli(at)
		}
		_, out[n].Suspended = i.Suspensions.Of(k, s.UID())
	}
	return out
}

// ListConnections is for Source.Connections.
func (i Inventory) ListConnections() []Connection {
	if i.Connections == nil {
		return nil
	}
	objects := i.Connections.Objects()
	out := make([]Connection, len(objects))
	for n, s := range objects {
		out[n] = Connection{Namespace: s.Namespace(), Name: s.Name(), Type: s.Text(pathType),
			Checked: s.Number(pathChecked) > 0, Healthy: s.Bool(pathHealthy)}
	}
	return out
}
