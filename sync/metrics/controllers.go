package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"limpet/sync/repos"
)

// controllerName is the label of the queue of repositories in Grafana's operators.
const controllerName = "provisioningRepositoryController"

// resourceRepositories is the label of repositories in the metrics of health.
const resourceRepositories = "repositories"

// Phases of a reconcile that can fail. Source: Grafana.
var phases = []string{"fetch", "delete", "quota", "token", "build", "branch", "health", "hook", "status", "sync"}

// controllerMetrics is what the controller of repositories has done.
type controllerMetrics struct {
	errors  *prometheus.CounterVec
	checked *prometheus.CounterVec
	took    prometheus.Observer
	looks   prometheus.Observer
	reasons *prometheus.CounterVec
}

var _ repos.Meter = (*controllerMetrics)(nil)

func newControllerMetrics(r prometheus.Registerer, works *prometheus.HistogramVec) *controllerMetrics {
	k := &controllerMetrics{
		errors:  counter(r, "grafana_provisioning_repository_reconcile_errors_total", "Looks into a repository that failed, by where and by whose doing.", "phase", "cause"),
		checked: counter(r, "grafana_provisioning_health_checked_total", "Health checks that asked the remote, by what they found.", "resource", "outcome"),
		took:    histogram(r, "grafana_provisioning_health_checked_duration_seconds", "Duration of the question to the remote.", phaseBuckets, "resource").WithLabelValues(resourceRepositories),
		reasons: counter(r, "limpet_repository_reconciles_total", "Looks into a repository with something to do, by the first reason.", "trigger"),
		looks:   works.WithLabelValues(controllerName),
	}
	for _, outcome := range []string{"success", "error"} {
		k.checked.WithLabelValues(resourceRepositories, outcome)
	}
	for _, why := range repos.Triggers {
		k.reasons.WithLabelValues(why)
	}
	for _, phase := range phases {
		k.errors.WithLabelValues(phase, "system")
	}
	return k
}

// Worked implements repos.Meter.
func (k *controllerMetrics) Worked(took time.Duration) { k.looks.Observe(took.Seconds()) }

// Checked implements repos.Meter.
func (k *controllerMetrics) Checked(healthy bool, took time.Duration) {
	outcome := "success"
	if !healthy {
		outcome = "error"
	}
	k.checked.WithLabelValues(resourceRepositories, outcome).Inc()
	k.took.Observe(took.Seconds())
}

// Triggered implements repos.Meter.
func (k *controllerMetrics) Triggered(why string) { k.reasons.WithLabelValues(why).Inc() }

// Failed implements repos.Meter.
func (k *controllerMetrics) Failed(phase string, user bool) {
	cause := "system"
	if user {
		cause = "user"
	}
	k.errors.WithLabelValues(phase, cause).Inc()
}

// Controller is the part that counts for the controller of repositories.
func (m *Metrics) Controller() repos.Meter { return m.controller }
