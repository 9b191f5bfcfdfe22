package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"limpet/sync/jobs"
)

// queueName is the label of the job queue in Grafana's operators.
const queueName = "provisioningJobDriver"

// resourceJobs is the label of jobs in the metrics of watch events.
const resourceJobs = "jobs"

// queue is what went through the queue of this agent, and how it came there.
type queue struct {
	works          *prometheus.HistogramVec // of all queues
	waited, looked prometheus.Observer
	retries        prometheus.Counter

	events  *prometheus.CounterVec
	latency *prometheus.HistogramVec
}

// queueBuckets are those of Kubernetes' work queues: 10 ns to 1,000 s.
var queueBuckets = prometheus.ExponentialBuckets(10e-9, 10, 12)

// latencyBuckets: a Date header and a creation time are cut to the second, so
// nothing below is distinguishable.
var latencyBuckets = []float64{0.5, 1, 2, 5, 10, 30, 60, 120, 300}

func newQueue(r prometheus.Registerer) *queue {
	works := histogram(r, "workqueue_work_duration_seconds", "How long a worker was busy with a name; with that of a job, the job included if it ran.", queueBuckets, "name")
	q := &queue{
		works:   works,
		waited:  histogram(r, "workqueue_queue_duration_seconds", "How long a name stayed in the queue before a driver took it.", queueBuckets, "name").WithLabelValues(queueName),
		looked:  works.WithLabelValues(queueName),
		retries: counter(r, "workqueue_retries_total", "Names that are tried again because something went wrong on the way to a claim.", "name").WithLabelValues(queueName),
		events:  counter(r, "grafana_provisioning_events_processed_total", "Changes of jobs that were taken in, by what brought them.", "resource", "source"),
		latency: histogram(r, "grafana_provisioning_event_delivery_latency_seconds", "Time from the creation of a job until this agent saw it, by the server's clock.", latencyBuckets, "resource", "source"),
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
