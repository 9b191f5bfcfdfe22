package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"limpet/sync/dependency"
	"limpet/sync/jobs"
	"limpet/sync/repos"
	"limpet/sync/webhook"
)

const (
	// Labels of the two queues in Grafana's operators.
	queueName      = "provisioningJobDriver"
	controllerName = "provisioningRepositoryController"
	// Labels of resources.
	resourceJobs         = "jobs"
	resourceRepositories = "repositories"
)

// queueBuckets are those of Kubernetes' work queues: 10 ns to 1,000 s. A Date header and
// a creation time have a granularity of a second, which latencyBuckets respect.
var (
	queueBuckets   = prometheus.ExponentialBuckets(10e-9, 10, 12)
	latencyBuckets = []float64{0.5, 1, 2, 5, 10, 30, 60, 120, 300}
)

// queue counts what went through the queue of jobs, and where it came from.
type queue struct {
	works          *prometheus.HistogramVec // of all queues
	waited, looked prometheus.Observer
	retries        prometheus.Counter

	events  *prometheus.CounterVec
	latency *prometheus.HistogramVec
}

func newQueue(r registry) *queue {
	works := r.histogram("workqueue_work_duration_seconds",
		"How long a worker was busy with a name; with that of a job, the job included if it ran.", queueBuckets, "name")
	q := &queue{
		works:  works,
		looked: works.WithLabelValues(queueName),
		waited: r.histogram("workqueue_queue_duration_seconds",
			"How long a name stayed in the queue before a driver took it.", queueBuckets, "name").WithLabelValues(queueName),
		retries: r.counter("workqueue_retries_total",
			"Names that are tried again after an error before their claim.", "name").WithLabelValues(queueName),
		events: r.counter("grafana_provisioning_events_processed_total",
			"Changes of jobs that were processed, by their source.", "resource", "source"),
		latency: r.histogram("grafana_provisioning_event_delivery_latency_seconds",
			"Time from the creation of a job until this agent saw it, by the server's clock.", latencyBuckets, "resource", "source"),
	}
	for _, source := range []string{jobs.SourceLive, jobs.SourceInitial, jobs.SourceRelist} {
		q.events.WithLabelValues(resourceJobs, source)
	}
	return q
}

func (q *queue) keyDone(d jobs.KeyDone) {
	q.waited.Observe(d.Waited.Seconds())
	q.looked.Observe(d.Took.Seconds())
	if d.Retried {
		q.retries.Inc()
	}
}

func (q *queue) seen(d jobs.Seen) {
	q.events.WithLabelValues(resourceJobs, d.Source).Add(float64(d.Count))
	if d.Late >= 0 {
		q.latency.WithLabelValues(resourceJobs, d.Source).Observe(d.Late.Seconds())
	}
}

// phases of a reconcile that can fail. Source: Grafana.
var phases = []string{"fetch", "delete", "quota", "token", "build", "branch", "health", "hook", "status", "sync"}

// controllerMetrics counts what the controller of repositories does.
type controllerMetrics struct {
	errors, checked, reasons *prometheus.CounterVec
	took, looks              prometheus.Observer
}

func newControllerMetrics(r registry, works *prometheus.HistogramVec) *controllerMetrics {
	k := &controllerMetrics{
		errors: r.counter("grafana_provisioning_repository_reconcile_errors_total",
			"Failed reconciles of a repository, by phase and cause.", "phase", "cause"),
		checked: r.counter("grafana_provisioning_health_checked_total", "Health checks with a request to the remote, by outcome.",
			"resource", "outcome"),
		took: r.histogram("grafana_provisioning_health_checked_duration_seconds", "Duration of the request to the remote.",
			phaseBuckets, "resource").WithLabelValues(resourceRepositories),
		reasons: r.counter("limpet_repository_reconciles_total",
			"Reconciles of a repository with work to do, by the first reason.", "trigger"),
		looks: works.WithLabelValues(controllerName),
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

// sourceBuckets are those of Flux: 10 ns to 10 s. Source: fluxcd/pkg, runtime/metrics.
var sourceBuckets = prometheus.ExponentialBuckets(10e-9, 10, 10)

// SourceReconciled counts a reconcile of a GitRepository and how long it took; one that took no time is gone.
func (m *Metrics) SourceReconciled(k repos.Key, took time.Duration) {
	if took <= 0 {
		m.sourceTook.DeleteLabelValues(dependency.GitRepository, k.Name, k.Namespace)
		return
	}
	m.sourceTook.WithLabelValues(dependency.GitRepository, k.Name, k.Namespace).Observe(took.Seconds())
}

// webhooks counts webhooks.
type webhooks struct{ requests, events *prometheus.CounterVec }

func newWebhooks(r registry) webhooks {
	h := webhooks{
		requests: r.counter("limpet_webhook_requests_total", "Requests to the webhook listener by outcome.", "outcome"),
		events: r.counter("grafana_provisioning_webhook_events_processed_total",
			"Authentic webhook events, and the action of the job that was queued.", "job"),
	}
	for _, outcome := range webhook.Outcomes {
		h.requests.WithLabelValues(outcome)
	}
	for _, job := range []string{"pull", "pr", "none"} {
		h.events.WithLabelValues(job)
	}
	return h
}

// WebhookRequest counts a request by its outcome, one of webhook.Outcomes.
func (h *webhooks) WebhookRequest(outcome string) { h.requests.WithLabelValues(outcome).Inc() }

// WebhookEvent counts an authentic event by the action of the job that it has led to, or "none".
func (h *webhooks) WebhookEvent(job string) { h.events.WithLabelValues(job).Inc() }

// lifecycle counts the events of jobs that Grafana has no name for.
type lifecycle struct {
	events       map[string]prometheus.Counter
	cancelled    prometheus.Counter
	dead, pruned *prometheus.CounterVec
}

// deadReasons are the reasons of a dead letter; see jobs.EventDead.
var deadReasons = []string{"crashed", "transient", "timeout"}

func newLifecycle(r registry) lifecycle {
	plain := func(name, help string) prometheus.Counter { return r.counter(name, help).WithLabelValues() }
	l := lifecycle{
		events: map[string]prometheus.Counter{
			jobs.EventLost: plain("limpet_leases_lost_total", "Lost leases; an uncertain loss counts again when another agent holds the job."),
			jobs.EventRequeued: plain("limpet_jobs_requeued_total",
				"Expired claims of other agents that this agent has removed."),
			jobs.EventRetry:    plain("limpet_jobs_postponed_total", "Jobs that were released for another attempt after a transient error."),
			jobs.EventReleased: plain("limpet_jobs_released_total", "Jobs that were released without counting an attempt."),
			jobs.EventResumed:  plain("limpet_jobs_resumed_total", "Own claims of before a restart that were resumed."),
		},
		cancelled: plain("limpet_jobs_cancelled_total", "Jobs that a user has cancelled or deleted while they ran."),
		dead:      r.counter("limpet_jobs_dead_letters_total", "Jobs whose attempts are used up.", "reason"),
		pruned: r.counter("limpet_history_pruned_total",
			"History that was deleted, in the state file (local) and as HistoricJobs (api).", "where"),
	}
	for _, reason := range deadReasons {
		l.dead.WithLabelValues(reason)
	}
	for _, where := range []string{"local", "api"} {
		l.pruned.WithLabelValues(where)
	}
	return l
}

func (l *lifecycle) observe(e jobs.Event) {
	switch {
	case l.events[e.Type] != nil:
		l.events[e.Type].Inc()
	case e.Type == jobs.EventDead:
		l.dead.WithLabelValues(oneOf(deadReasons, e.State)).Inc()
	case e.Type == jobs.EventCompleted && e.State == "cancelled":
		l.cancelled.Inc()
	}
}
