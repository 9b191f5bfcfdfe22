package metrics

import (
	"context"
	"log/slog"
	"slices"
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

// Fields of Repositories and Connections. They are read one by one, because a scrape must
// not decode a thousand objects.
var (
	pathType       = kube.PathTo("spec", "type")
	pathTarget     = kube.PathTo("spec", "sync", "target")
	pathConnection = kube.PathTo("spec", "connection", "name")
	pathChecked    = kube.PathTo("status", "health", "checked")
	pathHealthy    = kube.PathTo("status", "health", "healthy")
	pathPulled     = kube.PathTo("status", "sync", "finished")
	pathPull       = kube.PathTo("status", "sync", "state")
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

// The known values of labels. Source: Grafana's types.
var (
	repositoryTypes = []string{"local", "github", "githubEnterprise", "git", "bitbucket", "gitlab"}
	connectionTypes = []string{"github", "githubEnterprise", "githubOAuth", "githubEnterpriseOAuth", "gitlab", "bitbucket"}
	syncTargets     = []string{"instance", "folder", "folderless", ""}
)

func (s exporter) repositories(all []kube.Object) {
	sums := map[string]int{"healthy": 0, "unhealthy": 0, "unknown": 0, "suspended": 0}
	for _, r := range all {
		suspended, ready, health := s.source.Suspended(r), readiness(r), "unknown"
		switch {
		case suspended:
			health = "suspended"
		case ready == "True":
			health = "healthy"
		case ready == "False":
			health = "unhealthy"
		}
		sums[health]++
		if len(all) > maxSeries {
			continue
		}
		name := []string{"namespace", r.Namespace(), "name", r.Name()}
		s.gauge("limpet_repository_info", "Always 1; type and state of a repository are in the labels.", 1, append(name,
			"type", oneOf(repositoryTypes, r.Text(pathType)), "target", oneOf(syncTargets, r.Text(pathTarget)),
			"connection", r.Text(pathConnection), "ready", ready, "suspended", strconv.FormatBool(suspended))...)
		if ready != "Unknown" {
			s.gauge("limpet_repository_healthy", "1 when the last health check of the repository succeeded.", number(ready == "True"), name...)
		}
		if at := r.Number(pathPulled); at > 0 {
			s.gauge("limpet_repository_last_sync_timestamp_seconds", "When the last pull of the repository has ended.",
				float64(at)/1000, name...)
		}
		if state := r.Text(pathPull); state == api.StateError || state == api.StateSuccess || state == api.StateWarning {
			s.gauge("limpet_repository_last_sync_success", "1 when the last pull succeeded, 0 when it failed; absent during a pull.",
				number(state != api.StateError), name...)
		}
		if s.source.Drifted != nil {
			if n, known := s.source.Drifted(r); known {
				s.gauge("limpet_repository_drifted_objects", "Objects that differ from Git, as the last check of this agent has found.",
					float64(n), name...)
			}
		}
	}
	for health, n := range sums {
		s.gauge("limpet_repositories", "Repositories by their health.", float64(n), "health", health)
	}
}

func (s exporter) connections(all []kube.Object) {
	if len(all) > maxSeries {
		return
	}
	for _, c := range all {
		name, ready := []string{"namespace", c.Namespace(), "name", c.Name()}, readiness(c)
		s.gauge("limpet_connection_info", "Always 1; type and state of a connection are in the labels.", 1,
			append(name, "type", oneOf(connectionTypes, c.Text(pathType)), "ready", ready)...)
		if ready != "Unknown" {
			s.gauge("limpet_connection_healthy", "1 when the host accepted the connection at the last check.", number(ready == "True"), name...)
		}
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

func (s exporter) tokens(c auth.TokenCounts, provider ...string) {
	with := func(name, value string) []string { return append(slices.Clip(provider), name, value) }
	s.gauge("limpet_token_cached_items", "Minted tokens in memory.", float64(c.Held), provider...)
	s.gauge("limpet_token_cache_oldest_age_seconds", "Age of the oldest minted token in memory; 0 = there is none.",
		c.Oldest.Seconds(), provider...)
	const (
		events    = "limpet_token_cache_events_total"
		requests  = "limpet_token_cache_requests_total"
		evictions = "limpet_token_cache_evictions_total"
	)
	s.counter(events, "Requests for tokens, by whether memory had one.", float64(c.Hits), with("event_type", "cache_hit")...)
	s.counter(events, "", float64(c.Minted+c.Failed), with("event_type", "cache_miss")...)
	s.counter(requests, "Attempts to mint a token.", float64(c.Minted), with("status", "success")...)
	s.counter(requests, "", float64(c.Failed), with("status", "failure")...)
	s.counter(evictions, "Tokens that were dropped before their end, by reason.", float64(c.Refused), with("reason", "refused")...)
	s.counter(evictions, "", float64(c.Overflow), with("reason", "overflow")...)
}

// readiness is the condition Ready of an object, as its last health check left it.
func readiness(o kube.Object) string {
	switch {
	case o.Number(pathChecked) <= 0:
		return "Unknown"
	case o.Bool(pathHealthy):
		return "True"
	}
	return "False"
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
