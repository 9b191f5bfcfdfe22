package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"limpet/sync/repos"
)

// keeperName is the label of the queue of repositories in Grafana's operators.
const keeperName = "provisioningRepositoryController"

// resourceRepositories is the label of repositories in the metrics of health.
const resourceRepositories = "repositories"

// Phases of a reconcile that can fail. Source: Grafana.
var phases = []string{"fetch", "delete", "quota", "token", "build", "branch", "health", "hook", "status", "sync"}

// keep is what the controller of repositories has done.
type keep struct {
	errors  *prometheus.CounterVec
	checked *prometheus.CounterVec
	took    prometheus.Observer
	looks   prometheus.Observer
	reasons *prometheus.CounterVec
}

var _ repos.Meter = (*keep)(nil)

func newKeep(r prometheus.Registerer, works *prometheus.HistogramVec) *keep {
	k := &keep{
		errors:  counter(r, "grafana_provisioning_repository_reconcile_errors_total", "Looks into a repository that failed, by where and by whose doing.", "phase", "cause"),
		checked: counter(r, "grafana_provisioning_health_checked_total", "Health checks that asked the remote, by what they found.", "resource", "outcome"),
		took:    histogram(r, "grafana_provisioning_health_checked_duration_seconds", "Duration of the question to the remote.", phaseBuckets, "resource").WithLabelValues(resourceRepositories),
		reasons: counter(r, "limpet_repository_reconciles_total", "Looks into a repository with something to do, by the first reason.", "trigger"),
		looks:   works.WithLabelValues(keeperName),
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
func (k *keep) Worked(took time.Duration) { k.looks.Observe(took.Seconds()) }

// Checked implements repos.Meter.
func (k *keep) Checked(healthy bool, took time.Duration) {
	outcome := "success"
	if !healthy {
		outcome = "error"
	}
	k.checked.WithLabelValues(resourceRepositories, outcome).Inc()
	k.took.Observe(took.Seconds())
}

// Triggered implements repos.Meter.
func (k *keep) Triggered(why string) { k.reasons.WithLabelValues(why).Inc() }

// Failed implements repos.Meter.
func (k *keep) Failed(phase string, user bool) {
	cause := "system"
	if user {
		cause = "user"
	}
	k.errors.WithLabelValues(phase, cause).Inc()
}

// Keeper is the part that counts for the controller of repositories.
func (m *Metrics) Keeper() repos.Meter { return m.keep }
