package metrics

import (
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"limpet/sync/jobs"
	"limpet/sync/resources"
)

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

// driverAction is a driver with an action.
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
