package metrics

import (
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"limpet/sync/jobs"
	"limpet/sync/reconcile"
	"limpet/sync/repos"
	"limpet/sync/resources"
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
	reconciles               *reconciles
}

func newControllerMetrics(r registry, works *prometheus.HistogramVec, all *reconciles) *controllerMetrics {
	k := &controllerMetrics{
		reconciles: all,
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

func (k *controllerMetrics) Worked(d reconcile.Done) {
	k.looks.Observe(d.Took.Seconds())
	k.reconciles.count(d)
}

func (k *controllerMetrics) Checked(healthy bool, took time.Duration) {
	outcome := "success"
	if !healthy {
		outcome = "error"
	}
	k.checked.WithLabelValues(resourceRepositories, outcome).Inc()
	k.took.Observe(took.Seconds())
}

func (k *controllerMetrics) Triggered(why string) { k.reasons.WithLabelValues(why).Inc() }

func (k *controllerMetrics) Failed(phase string, user bool) {
	cause := "system"
	if user {
		cause = "user"
	}
	k.errors.WithLabelValues(phase, cause).Inc()
}

// Controller is the part that counts for the controller of repositories.
func (m *Metrics) Controller() repos.Meter { return m.controller }

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

// work is what drivers and workers have done.
type work struct {
	claims    map[jobs.ClaimResult]*prometheus.CounterVec
	contended *prometheus.CounterVec

	wait      *prometheus.HistogramVec
	processed *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	resources *prometheus.CounterVec
	sync      *prometheus.HistogramVec
	full      *prometheus.HistogramVec
	increment *prometheus.HistogramVec
	kinds     kinds

	mu   sync.Mutex                     // guards busy and done
	busy map[string]busyPeriod          // by UID of the job
	done map[driverAction]time.Duration // of the stints that have ended
}

type driverAction struct{ driver, action string }

// busyPeriod is the time from a claim to its end.
type busyPeriod struct {
	driverAction
	since time.Time
}

// Source: Grafana's job metrics (RegisterQueueMetrics and RegisterJobMetrics).
var (
	waitBuckets     = []float64{1, 5, 10, 30, 60, 120, 300}
	durationBuckets = []float64{5, 10, 30, 60, 120, 300}
	phaseBuckets    = prometheus.ExponentialBucketsRange(0.01, 600, 8)
)

func newWork(r registry, drivers int) *work {
	const name = "grafana_provisioning_jobs_"
	claims := func(suffix, help string) *prometheus.CounterVec { return r.counter(name+suffix, help, "driver_id") }
	w := &work{
		busy: map[string]busyPeriod{},
		done: map[driverAction]time.Duration{},
		claims: map[jobs.ClaimResult]*prometheus.CounterVec{
			jobs.ClaimWon:      claims("claimed_total", "Jobs that a driver has claimed."),
			jobs.ClaimConflict: claims("claim_conflicts_total", "Writes of claim labels that met a change by another client."),
			jobs.ClaimError:    claims("claim_errors_total", "Writes of claim labels that failed otherwise."),
		},
		contended: claims("claim_rounds_contended_total", "Attempts to claim a job that ended because others had taken or changed it."),
		wait:      r.histogram(name+"queue_wait_seconds", "Time from the creation of a job to its first claim.", waitBuckets, "action"),
		processed: r.counter(name+"processed_total", "Jobs that have ended and are in history.", "action", "outcome"),
		duration: r.histogram(name+"duration_seconds", "Time from the claim of a job to its end.", durationBuckets,
			"action", "resources_changed_bucket", "outcome"),
		resources: r.counter(name+"resource_operations_total", "Results of single resources.",
			"action", "operation", "outcome", "reason", "group", "kind"),
		sync: r.histogram(name+"sync_duration_seconds", "Duration of syncs that compared or changed something.", phaseBuckets, "type"),
		full: r.histogram(name+"full_sync_phase_duration_seconds", "Duration of the parts of full syncs.", phaseBuckets, "phase"),
		increment: r.histogram(name+"incremental_sync_phase_duration_seconds", "Duration of the parts of incremental syncs.",
			phaseBuckets, "phase"),
	}
	r.gauge(name+"concurrent_driver_num_drivers", "Jobs that this agent runs at once at most.").WithLabelValues().Set(float64(drivers))
	// A series that begins with its first event hides that event from rate().
	for i := range drivers {
		for _, c := range w.claims {
			c.WithLabelValues(strconv.Itoa(i))
		}
	}
	for _, outcome := range []string{"success", "warning", "error"} {
		w.processed.WithLabelValues("pull", outcome)
	}
	return w
}

func (w *work) began(uid, driver, action string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy[uid] = busyPeriod{driverAction{driver, knownAction(action)}, time.Now()}
}

func (w *work) ended(uid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s, ok := w.busy[uid]; ok {
		delete(w.busy, uid)
		w.done[s.driverAction] += time.Since(s.since)
	}
}

// worked returns how long drivers have been busy up to now, those that still are
// included: a job of an hour shows while it runs, not as a jump at its end.
func (w *work) worked() map[driverAction]time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := maps.Clone(w.done)
	for _, s := range w.busy {
		out[s.driverAction] += time.Since(s.since)
	}
	return out
}

// ends counts a job that has ended. What a job that failed has changed is part of
// the work only, so its size is unknown, as in Grafana.
func (w *work) ends(p jobs.Processed) {
	action := knownAction(p.Action)
	bucket := sizeBucket(p.Changed)
	if p.Outcome == "error" {
		bucket = "unknown"
	}
	w.processed.WithLabelValues(action, p.Outcome).Inc()
	w.duration.WithLabelValues(action, bucket, p.Outcome).Observe(p.Took.Seconds())
}

func (w *work) resource(action string, r resources.Result) {
	outcome, err := "success", error(nil)
	switch {
	case r.Err != nil:
		outcome, err = "error", r.Err
	case r.Warning != nil:
		outcome, err = "warning", r.Warning
	}
	group, kind := w.kinds.known(r.Group, r.Kind)
	w.resources.WithLabelValues(knownAction(action), oneOf(operations, r.Action), outcome, resources.Reason(err), group, kind).Inc()
}

func (w *work) phase(sync, phase string, took time.Duration) {
	switch {
	case phase == "":
		w.sync.WithLabelValues(sync).Observe(took.Seconds())
	case sync == jobs.SyncIncremental:
		w.increment.WithLabelValues(phase).Observe(took.Seconds())
	default:
		w.full.WithLabelValues(phase).Observe(took.Seconds())
	}
}
