package metrics

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/jobs"
	"limpet/sync/kube"
	"limpet/sync/notify"
	"limpet/sync/source"
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
	// The Repositories and Connections in the caches of this agent, whether it has suspended
	// a Repository, and the counts of minted tokens by provider; "connection" for Connections.
	Repositories, Connections func() []kube.Object
	Suspended                 func(repository kube.Object) bool
	Tokens                    func() map[string]auth.TokenCounts
	Sources                   func() []kube.Object // that this agent reconciles
	// Drifted returns the result of the last comparison of a Repository with Git, if this agent has
	// made one.
	Drifted func(repository kube.Object) (objects int, known bool)
	// Notifications are the targets of notifications.
	Notifications func() []notify.Status
}

const (
	storeTime = time.Second // for the read of the state file: one small record
	// maxSeries bounds the objects of a kind with series of their own. Above it only
	// totals are exported: a part would look like all.
	maxSeries = 2000
)

// collector exports the present state at each scrape.
type collector struct {
	source Source
	work   *work
	log    *slog.Logger
	descs  sync.Map // of *prometheus.Desc by name
	rows   sync.Map // of sourceRow by key of the source: a scrape must not decode a thousand objects
}

// sourceRow is a source as it was in one version.
type sourceRow struct {
	version string
	source.Source
}

// Describe implements prometheus.Collector: which metrics there are depends on the source.
func (c *collector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, out) }

func (c *collector) Collect(out chan<- prometheus.Metric) {
	s := exporter{c, out}
	s.jobs()
	s.store()
	s.api()
	if c.source.Notifications != nil {
		s.notifications(c.source.Notifications())
	}
	if c.source.Repositories != nil {
		s.repositories(c.source.Repositories())
	}
	if c.source.Connections != nil {
		s.connections(c.source.Connections())
	}
	if c.source.Sources != nil {
		s.sources(c.source.Sources())
	}
	if c.source.Tokens != nil {
		for provider, counts := range c.source.Tokens() {
			s.tokens(counts, "provider", provider)
		}
	}
}

func (s exporter) notifications(targets []notify.Status) {
	for _, t := range targets {
		s.gauge("limpet_notifications_pending", "Events that wait for a target.", float64(t.Pending), "target", t.Target)
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
	values := make([]string, 0, len(labels)/2)
	for i := 1; i < len(labels); i += 2 {
		values = append(values, labels[i])
	}
	desc, ok := s.descs.Load(name)
	if !ok {
		var names []string
		for i := 0; i < len(labels); i += 2 {
			names = append(names, labels[i])
		}
		desc, _ = s.descs.LoadOrStore(name, prometheus.NewDesc(name, help, names, nil))
	}
	s.out <- prometheus.MustNewConstMetric(desc.(*prometheus.Desc), kind, v, values...)
}

func (s exporter) jobs() {
	for d, took := range s.work.worked() {
		s.counter("grafana_provisioning_jobs_busy_seconds_total", "Time that drivers have had a job under their claim, up to now.",
			took.Seconds(), "driver_id", d.driver, "action", d.action)
	}
	if s.source.Jobs != nil {
		running := map[driverAction]int{}
		for _, r := range s.source.Jobs().Running {
			running[driverAction{r.Driver, knownAction(r.Action)}]++
		}
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

func (s exporter) api() {
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
	if s.source.Down != nil {
		down := 0.0
		if since := s.source.Down(); !since.IsZero() {
			down = max(time.Since(since).Seconds(), 0)
		}
		s.gauge("limpet_api_down_seconds", "How long the API has been unavailable; 0 = it is available.", down)
	}
}

// sources exports what kube-state-metrics does with the configuration of Flux, whose dashboards
// read it.
func (s exporter) sources(all []kube.Object) {
	if len(all) > maxSeries {
		return
	}
	gone := map[any]bool{}
	s.rows.Range(func(key, _ any) bool { gone[key] = true; return true })
	for _, o := range all {
		delete(gone, o.Key())
		kept, _ := s.rows.Load(o.Key())
		row, _ := kept.(sourceRow)
		if v := o.UID() + " " + o.ResourceVersion(); row.version != v {
			row = sourceRow{v, source.FromObject(o.Unstructured())}
			s.rows.Store(o.Key(), row)
		}
		ready, revision := "Unknown", ""
		if row.Bad() {
			ready = "False"
		} else if row.State == source.Ready {
			ready = "True"
		}
		if row.Artifact != nil {
			revision = row.Artifact.Revision
		}
		s.gauge("gotk_resource_info", "Always 1; state and revision of a GitRepository are in the labels.", 1,
			"customresource_group", api.GitRepositories.Group, "customresource_version", api.GitRepositories.Version,
			"customresource_kind", "GitRepository", "exported_namespace", row.Namespace, "name", row.Name, "ready", ready,
			"suspended", strconv.FormatBool(row.Suspended), "revision", revision, "url", row.URL)
	}
	for key := range gone {
		s.rows.Delete(key)
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
