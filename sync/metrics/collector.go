package metrics

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"limpet/state"
	"limpet/sync/auth"
	"limpet/sync/jobs"
	"limpet/sync/kube"
	"limpet/sync/notify"
)

// Source is what gauges are read from. Its functions are called at every scrape, from several
// goroutines at once when there are several scrapes; they must be quick and do no network I/O. A
// nil function leaves its gauges out.
type Source struct {
	Backlog func() jobs.Backlog
	Jobs    func() jobs.Snapshot
	Store   func(context.Context) (state.Info, error)
	// Clock returns the offset of the clock of the server from the local one and its
	// error; ok is false while it is unknown.
	Clock func() (offset, bound time.Duration, ok bool)
	// Down returns since when the API is unavailable; zero means that it is available.
	Down func() time.Time
	// Latency returns the duration of the last request to the API.
	Latency func() time.Duration
	// Requests counts the requests to the API.
	Requests func() map[kube.RequestKind]int64
	// Ready reports whether the agent would claim a job.
	Ready func() bool
	// Objects returns the objects in the caches of this agent, by their Kind; of sources those that it
	// reconciles.
	Objects map[string]func() []kube.Object
	// Suspended reports whether this agent has suspended a Repository.
	Suspended func(repository kube.Object) bool
	// History returns records of finished jobs.
	History func(context.Context, state.Query) ([]state.Record, error)
	// Tokens returns the counts of minted tokens by provider; "connection" for Connections.
	Tokens func() map[string]auth.TokenCounts
	// Active returns whether this agent works as the controllers of a kind, by the name of these.
	Active func() map[string]bool
	// Received returns the bytes that Git servers have sent, Fetched those for sources by their kind.
	Received func() int64
	Fetched  func() map[string]int64
	// Mirrors counts the mirrors and the bytes that they take on disk. It reads directories.
	Mirrors func(context.Context) (mirrors int, bytes int64, err error)
	// Disk returns the free bytes and the size of the disk of the state file, -1 when unknown.
	Disk func() (free, size int64)
	// Expiry is how long the lease of a job is valid without a renewal.
	Expiry time.Duration
	// Drifted returns the result of the last comparison of a Repository with Git, if this agent has
	// made one.
	Drifted func(repository kube.Object) (objects int, known bool)
	// Notifications are the targets of notifications.
	Notifications func() []notify.Status
}

const (
	storeTime = time.Second // for the read of the state file: one small record
	// The mirrors are counted at a scrape when that was long ago.
	mirrorsEvery, mirrorsTime = 5 * time.Minute, 5 * time.Second
	// maxSeries bounds the objects of a kind with series of their own. Above it only those that fail
	// have some, and totals say how many there are.
	maxSeries = 2000
)

// collector exports the present state at each scrape.
type collector struct {
	source     Source
	work       *work
	reconciles *reconciles
	log        *slog.Logger
	descs      sync.Map // of *prometheus.Desc by name and labels

	mu      sync.Mutex // guards what follows
	mirrors mirrorUsage
	pulled  map[string]time.Time // last success by key of the Repository; nil = history was not read yet
}

// mirrorUsage is what Source.Mirrors has returned.
type mirrorUsage struct {
	at    time.Time
	count int
	bytes int64
}

// Describe implements prometheus.Collector. It promises nothing: which metrics and labels there are
// depends on the source and its objects.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	s := exporter{c, out}
	s.jobs()
	s.store()
	s.disk()
	s.api()
	if c.source.Notifications != nil {
		s.notifications(c.source.Notifications())
	}
	s.objects()
	if c.source.Tokens != nil {
		for provider, counts := range c.source.Tokens() {
			s.tokens(counts, "provider", provider)
		}
	}
}

func (s exporter) notifications(targets []notify.Status) {
	for _, t := range targets {
		s.gauge("limpet_notifications_pending", "Events that wait for a target.", float64(t.Pending), "target", t.Target)
		failing := 0.0
		if !t.Since.IsZero() {
			failing = max(time.Since(t.Since).Seconds(), 0)
		}
		s.gauge("limpet_notifications_failing_seconds", "How long attempts to deliver to a target have failed; 0 = the last one has not.",
			failing, "target", t.Target)
		for result, n := range map[string]int{"sent": t.Sent, "failed": t.Failed, "dropped": t.Dropped} {
			s.counter("limpet_notifications_total", "Attempts to deliver events to a target, and events that were dropped.", float64(n),
				"target", t.Target, "result", result)
		}
	}
}

// exporter sends metrics to one scrape.
type exporter struct {
	*collector
	out chan<- prometheus.Metric
}

// gauge sends one value. labels are names, each with its value behind it.
func (s exporter) gauge(name, help string, v float64, labels ...string) {
	s.send(prometheus.GaugeValue, name, help, v, labels)
}

// counter is gauge for a value that only grows.
func (s exporter) counter(name, help string, v float64, labels ...string) {
	s.send(prometheus.CounterValue, name, help, v, labels)
}

func (s exporter) send(kind prometheus.ValueType, name, help string, v float64, labels []string) {
	names, values := make([]string, 0, len(labels)/2), make([]string, 0, len(labels)/2)
	for label := range slices.Chunk(labels, 2) {
		names, values = append(names, label[0]), append(values, label[1])
	}
	key := name + " " + strings.Join(names, " ")
	desc, ok := s.descs.Load(key)
	if !ok {
		desc, _ = s.descs.LoadOrStore(key, prometheus.NewDesc(name, help, names, nil))
	}
	s.out <- prometheus.MustNewConstMetric(desc.(*prometheus.Desc), kind, v, values...)
}

func (s exporter) jobs() {
	for d, took := range s.work.worked() {
		s.counter("grafana_provisioning_jobs_busy_seconds_total", "Time that drivers have had a job under their claim, up to now.",
			took.Seconds(), "driver_id", d.driver, "action", d.action)
	}
	if s.source.Jobs != nil {
		running, age := map[driverAction]int{}, time.Duration(0)
		for _, r := range s.source.Jobs().Running {
			running[driverAction{r.Driver, knownAction(r.Action)}]++
			if !r.LeaseUntil.IsZero() {
				age = max(age, s.source.Expiry-time.Until(r.LeaseUntil))
			}
		}
		s.gauge("limpet_job_lease_age_seconds", "How long the lease of a running job has not been renewed, the longest of all.",
			age.Seconds())
		for d, n := range running {
			s.gauge("grafana_provisioning_jobs_in_flight", "Jobs under a claim of this agent.",
				float64(n), "driver_id", d.driver, "action", d.action)
		}
	}
	if s.source.Backlog == nil {
		return
	}
	b := s.source.Backlog()
	sizes := map[string]int{"pull": 0}
	for action, n := range b.Unclaimed {
		sizes[knownAction(action)] += n
	}
	for action, n := range sizes {
		s.gauge("grafana_provisioning_jobs_queue_size", "Unclaimed jobs of the API, as this agent sees them.", float64(n), "action", action)
	}
	var sum, longest time.Duration
	for _, d := range b.Looking {
		sum += d
		longest = max(longest, d)
	}
	waiting := float64(b.Waiting)
	s.gauge("grafana_provisioning_jobs_worker_queue_size", "Names that wait in this agent for a driver.", waiting)
	s.gauge("workqueue_depth", "Names that wait in the queue for a driver.", waiting, "name", queueName)
	s.counter("workqueue_adds_total", "Names that were added to the queue.", float64(b.Added), "name", queueName)
	s.gauge("workqueue_unfinished_work_seconds", "How long drivers have been busy with the names they have now, added up.",
		sum.Seconds(), "name", queueName)
	s.gauge("workqueue_longest_running_processor_seconds", "How long the longest of these has taken so far.",
		longest.Seconds(), "name", queueName)
	s.gauge("limpet_jobs_claimed", "Claimed jobs of the API, as this agent sees them.", float64(b.Claimed))
	s.gauge("limpet_queue_names", "Names in the queue of this agent: waiting, running or in backoff.", float64(b.Queued))
	s.gauge("limpet_completions_unsent", "Results that are kept in the state file until the API takes them.", float64(b.Undelivered))
}

func (s exporter) store() {
	if s.source.Store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTime)
	defer cancel()
	info, err := s.source.Store(ctx)
	if err != nil {
		s.log.Debug("metrics of the state file", "err", err)
		return
	}
	oldest := 0.0
	if !info.Oldest.IsZero() {
		oldest = float64(info.Oldest.UnixMilli()) / 1000
	}
	s.gauge("limpet_store_bytes", "Size of the state file.", float64(info.Bytes))
	s.gauge("limpet_store_free_bytes", "Bytes of the state file that are free for new records.", float64(info.FreeBytes))
	s.gauge("limpet_store_claims", "Claims in the state file.", float64(info.Claims))
	s.gauge("limpet_store_resting_jobs", "Released jobs in the state file, with their attempts and marks.", float64(info.Resting))
	s.gauge("limpet_history_records", "Finished jobs in the local history.", float64(info.History))
	s.gauge("limpet_history_bytes", "Bytes of the local history with its keys and frames.", float64(info.HistoryBytes))
	s.gauge("limpet_history_oldest_timestamp_seconds", "When the oldest job of the local history has ended; 0 = there is none.", oldest)
}

// disk exports what Git takes, and what is left of the disk of the state file.
func (s exporter) disk() {
	if s.source.Disk != nil {
		if free, size := s.source.Disk(); size >= 0 {
			s.gauge("limpet_disk_free_bytes", "Free bytes of the disk of the state file.", float64(free))
			s.gauge("limpet_disk_size_bytes", "Size of the disk of the state file.", float64(size))
		}
	}
	if s.source.Received != nil {
		s.counter("limpet_git_received_bytes_total", "Bytes that Git servers have sent for fetches.", float64(s.source.Received()))
	}
	if s.source.Fetched != nil {
		for kind, n := range s.source.Fetched() {
			s.counter("limpet_source_fetched_bytes_total", "Bytes that were fetched for sources.", float64(n), "kind", kind)
		}
	}
	if usage := s.usage(); !usage.at.IsZero() {
		s.gauge("limpet_git_mirrors", "Mirrors of Git repositories on this host.", float64(usage.count))
		s.gauge("limpet_git_mirror_bytes", "Bytes that the mirrors take on disk.", float64(usage.bytes))
	}
}

// usage counts the mirrors, or returns the last count if that is new enough.
func (c *collector) usage() mirrorUsage {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.source.Mirrors == nil || time.Since(c.mirrors.at) < mirrorsEvery {
		return c.mirrors
	}
	ctx, cancel := context.WithTimeout(context.Background(), mirrorsTime)
	defer cancel()
	count, bytes, err := c.source.Mirrors(ctx)
	if err != nil {
		c.log.Debug("metrics of the mirrors", "err", err)
		return c.mirrors
	}
	c.mirrors = mirrorUsage{time.Now(), count, bytes}
	return c.mirrors
}

func (s exporter) api() {
	if s.source.Ready != nil {
		s.gauge("limpet_ready", "1 when the agent would claim a job, as /readyz says.", number(s.source.Ready()))
	}
	if s.source.Active != nil {
		for name, active := range s.source.Active() {
			s.gauge("limpet_controllers_active", "1 when this agent works as these controllers, 0 when it stands by.", number(active),
				"controllers", name)
		}
	}
	if s.source.Clock != nil {
		offset, bound, ok := s.source.Clock()
		s.gauge("limpet_clock_known", "1 when the time of the server is known. Without it no job is claimed.", number(ok))
		if ok {
			s.gauge("limpet_clock_offset_seconds", "How far the clock of the API server is ahead of this host's.", offset.Seconds())
			s.gauge("limpet_clock_error_bound_seconds", "How far off the known time of the server may be.", bound.Seconds())
		}
	}
	if s.source.Latency != nil {
		s.gauge("limpet_api_latency_seconds", "Duration of the last request to the API.", s.source.Latency().Seconds())
	}
	if s.source.Requests != nil {
		for r, n := range s.source.Requests() {
			s.counter("rest_client_requests_total", "Requests to the API, by what became of them.", float64(n),
				"code", r.Code, "method", r.Method, "host", r.Host)
		}
	}
	if s.source.Down != nil {
		down := 0.0
		if since := s.source.Down(); !since.IsZero() {
			down = max(time.Since(since).Seconds(), 0)
		}
		s.gauge("limpet_api_down_seconds", "How long the API has been unavailable; 0 = it is available.", down)
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
