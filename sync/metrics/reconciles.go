package metrics

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"limpet/sync/reconcile"
)

// sourceBuckets are those of Flux, ten from 10 ms to half an hour. Source: fluxcd/pkg,
// runtime/metrics/recorder.go.
var sourceBuckets = prometheus.ExponentialBucketsRange(0.01, 1800, 10)

// reconciles counts the reconciles of all controllers, and times those of sources.
type reconciles struct {
	total *prometheus.CounterVec
	took  *prometheus.HistogramVec
	cache *prometheus.CounterVec

	mu      sync.Mutex              // guards sources
	sources map[sourceKey]time.Time // those with series, and their last success; zero = none
}

type sourceKey struct{ kind, namespace, name string }

func newReconciles(r registry) *reconciles {
	return &reconciles{
		sources: map[sourceKey]time.Time{},
		total: r.counter("controller_runtime_reconcile_total", "Reconciles by controller and result.",
			"controller", "result"),
		took: r.histogram("gotk_reconcile_duration_seconds", "How long a reconcile of a source took.", sourceBuckets,
			"kind", "name", "namespace"),
		cache: r.counter("gotk_cache_events_total", "Looks at the index of a Helm repository: a hit has not read it again.",
			"event_type", "name", "namespace"),
	}
}

// served begins the series of a kind whose objects this agent reconciles: one that begins with its
// first event hides that event from rate().
func (r *reconciles) served(kind string) {
	for _, result := range []string{"success", "error", "requeue", "requeue_after"} {
		r.total.WithLabelValues(strings.ToLower(kind), result)
	}
}

func (r *reconciles) count(d reconcile.Done) {
	r.total.WithLabelValues(strings.ToLower(d.Kind), d.Outcome()).Inc()
	if !isSource(d.Kind) {
		return
	}
	k := sourceKey{d.Kind, d.Key.Namespace, d.Key.Name}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.sources[k]; !known && len(r.sources) >= maxSeries {
		return
	}
	succeeded := r.sources[k]
	if d.Err == nil && !d.Result.Unready && !d.Result.Next.IsZero() {
		succeeded = time.Now()
	}
	r.sources[k] = succeeded
	r.took.WithLabelValues(k.kind, k.name, k.namespace).Observe(d.Took.Seconds())
	if d.Result.Cache != "" {
		r.cache.WithLabelValues(d.Result.Cache, k.name, k.namespace).Inc()
	}
}

func (r *reconciles) lastSuccess(k sourceKey) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sources[k]
}

// keep ends the series of the sources that are gone.
func (r *reconciles) keep(present map[sourceKey]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range r.sources {
		if !present[k] {
			delete(r.sources, k)
			r.took.DeleteLabelValues(k.kind, k.name, k.namespace)
			if k.kind == "HelmRepository" {
				r.cache.DeletePartialMatch(prometheus.Labels{"name": k.name, "namespace": k.namespace})
			}
		}
	}
}

func isSource(kind string) bool {
	return slices.ContainsFunc(Kinds, func(k Kind) bool { return k.Kind == kind && k.IsSource() })
}

// Reconciled counts a reconcile of any controller.
func (m *Metrics) Reconciled(d reconcile.Done) { m.reconciles.count(d) }
