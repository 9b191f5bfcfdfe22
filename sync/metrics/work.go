package metrics

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"limpet/sync/jobs"
	"limpet/sync/resources"
)

// work is what drivers and workers have done.
type work struct {
	claimed, conflicts, claimErrors, contended *prometheus.CounterVec

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

var (
	outcomes = []string{"success", "warning", "error"}
	// Grafana's phases. This agent renames a file together with its other writes,
	// so file_renames is never seen.
	fullPhases      = []string{"compare", "file_renames", "file_deletions", "folder_deletions", "folder_creations", "file_creations", "old_folder_cleanup"}
	incrementPhases = []string{"compare", "apply", "cleanup"}
)

func newWork(r prometheus.Registerer, drivers int) *work {
	w := &work{busy: map[string]busyPeriod{}, done: map[driverAction]time.Duration{}}
	w.claimed = counter(r, "grafana_provisioning_jobs_claimed_total", "Jobs that a driver has won.", "driver_id")
	w.conflicts = counter(r, "grafana_provisioning_jobs_claim_conflicts_total", "Writes of claim labels that met a change by somebody else.", "driver_id")
	w.claimErrors = counter(r, "grafana_provisioning_jobs_claim_errors_total", "Writes of claim labels that failed otherwise.", "driver_id")
	w.contended = counter(r, "grafana_provisioning_jobs_claim_rounds_contended_total", "Attempts to claim a job that ended because others had taken or changed it.", "driver_id")
	w.wait = histogram(r, "grafana_provisioning_jobs_queue_wait_seconds", "Time from the creation of a job to its first claim.", waitBuckets, "action")
	w.processed = counter(r, "grafana_provisioning_jobs_processed_total", "Jobs that have ended and are in history.", "action", "outcome")
	w.duration = histogram(r, "grafana_provisioning_jobs_duration_seconds", "Time from the claim of a job to its end.", durationBuckets, "action", "resources_changed_bucket", "outcome")
	w.resources = counter(r, "grafana_provisioning_jobs_resource_operations_total", "Results of single resources.", "action", "operation", "outcome", "reason", "group", "kind")
	w.sync = histogram(r, "grafana_provisioning_jobs_sync_duration_seconds", "Duration of syncs that compared or changed something.", phaseBuckets, "type")
	w.full = histogram(r, "grafana_provisioning_jobs_full_sync_phase_duration_seconds", "Duration of the parts of full syncs.", phaseBuckets, "phase")
	w.increment = histogram(r, "grafana_provisioning_jobs_incremental_sync_phase_duration_seconds", "Duration of the parts of incremental syncs.", phaseBuckets, "phase")
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "grafana_provisioning_jobs_concurrent_driver_num_drivers", Help: "Jobs that this agent runs at once at most."})
	gauge.Set(float64(drivers))
	r.MustRegister(gauge)
	// A series that begins with its first event hides that event from rate().
	for i := range drivers {
		for _, c := range []*prometheus.CounterVec{w.claimed, w.conflicts, w.claimErrors, w.contended} {
			c.WithLabelValues(strconv.Itoa(i))
		}
	}
	for _, outcome := range outcomes {
		w.processed.WithLabelValues("pull", outcome)
	}
	return w
}

func counter(r prometheus.Registerer, name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	r.MustRegister(c)
	return c
}

func histogram(r prometheus.Registerer, name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	r.MustRegister(h)
	return h
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
	out := make(map[driverAction]time.Duration, len(w.done)+len(w.busy))
	for s, d := range w.done {
		out[s] = d
	}
	for _, s := range w.busy {
		out[s.driverAction] += time.Since(s.since)
	}
	return out
}

func (w *work) claim(driver string, r jobs.ClaimResult) {
	switch r {
	case jobs.ClaimWon:
		w.claimed.WithLabelValues(driver).Inc()
	case jobs.ClaimConflict:
		w.conflicts.WithLabelValues(driver).Inc()
	case jobs.ClaimError:
		w.claimErrors.WithLabelValues(driver).Inc()
	case jobs.ClaimContended:
		w.contended.WithLabelValues(driver).Inc()
	}
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
	w.resources.WithLabelValues(knownAction(action), knownOperation(r.Action), outcome, resources.Reason(err), group, kind).Inc()
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
