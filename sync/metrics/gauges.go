package metrics

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"limpet/state"
	"limpet/sync/auth"
	"limpet/sync/jobs"
)

// Source is what gauges are read from. Its functions are called at every scrape,
// from several goroutines at once when there are several scrapes; they must be
// quick and do no network I/O. A nil function leaves its gauges out.
type Source struct {
	Backlog func() jobs.Backlog
	Jobs    func() jobs.Snapshot
	Store   func(context.Context) (state.Info, error)
	// Clock returns the offset of the clock of the server from the local one and its
	// error; ok is false while it is unknown.
	Clock func() (offset, bound time.Duration, ok bool)
	// Down returns since when the API is unavailable; zero means that it is
	// available.
	Down func() time.Time
	// Latency returns the duration of the last request to the API.
	Latency func() time.Duration
	// What this agent knows of Repositories and of Connections, and the counts of the
	// tokens that were minted: of these, and by the providers of identities.
	Repositories func() []Repository
	Connections  func() []Connection
	Tokens       func() map[string]auth.TokenCounts // by provider; "connection" for Connections
}

// storeTime bounds the read of the state file: one small record.
const storeTime = time.Second

// gauge is a metric that is computed at each scrape.
type gauge struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func describe(name, help string, labels ...string) gauge {
	return gauge{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

func (g gauge) at(out chan<- prometheus.Metric, v float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(g.desc, g.kind, v, labels...)
}

// gauges collects the present state at each scrape.
type gauges struct {
	source Source
	work   *work
	log    *slog.Logger

	queueSize, workerQueue, inFlight, busy                             gauge
	depth, adds, unfinished, longest                                   gauge
	claimed, queued, unsent                                            gauge
	storeBytes, storeFree, claims, resting, history, historyBytes, age gauge
	offset, bound, known                                               gauge
	latency, down                                                      gauge
}

func newGauges(s Source, w *work, log *slog.Logger) *gauges {
	g := &gauges{
		source: s, work: w, log: log,
		queueSize:    describe("grafana_provisioning_jobs_queue_size", "Jobs of the API that nobody has claimed, as this agent sees them.", "action"),
		workerQueue:  describe("grafana_provisioning_jobs_worker_queue_size", "Names that wait in this agent for a driver."),
		inFlight:     describe("grafana_provisioning_jobs_in_flight", "Jobs under a claim of this agent.", "driver_id", "action"),
		busy:         describe("grafana_provisioning_jobs_busy_seconds_total", "Time that drivers have had a job under their claim, up to now.", "driver_id", "action"),
		depth:        describe("workqueue_depth", "Names that wait in the queue for a driver.", "name"),
		adds:         describe("workqueue_adds_total", "Names that came to wait in the queue.", "name"),
		unfinished:   describe("workqueue_unfinished_work_seconds", "How long drivers have been busy with the names they have now, added up.", "name"),
		longest:      describe("workqueue_longest_running_processor_seconds", "How long the longest of these has taken so far.", "name"),
		claimed:      describe("limpet_jobs_claimed", "Jobs of the API that anybody has claimed, as this agent sees them."),
		queued:       describe("limpet_queue_names", "Names in the queue of this agent: those that wait, run or rest."),
		unsent:       describe("limpet_completions_unsent", "Results that are kept in the state file until the API takes them."),
		storeBytes:   describe("limpet_store_bytes", "Size of the state file."),
		storeFree:    describe("limpet_store_free_bytes", "Bytes of the state file that are free for new records."),
		claims:       describe("limpet_store_claims", "Claims in the state file."),
		resting:      describe("limpet_store_resting_jobs", "Jobs in the state file that were given back, with their attempts and marks."),
		history:      describe("limpet_history_records", "Finished jobs in the local history."),
		historyBytes: describe("limpet_history_bytes", "Bytes of the local history with its keys and frames."),
		age:          describe("limpet_history_oldest_timestamp_seconds", "When the oldest job of the local history has ended; 0 = there is none."),
		offset:       describe("limpet_clock_offset_seconds", "How far the clock of the API server is ahead of this host's."),
		bound:        describe("limpet_clock_error_bound_seconds", "How far off the known time of the server may be."),
		known:        describe("limpet_clock_known", "1 when the time of the server is known. Without it no job is claimed."),
		latency:      describe("limpet_api_latency_seconds", "How long the API took for its last answer."),
		down:         describe("limpet_api_down_seconds", "How long the API has not answered; 0 = it does."),
	}
	g.busy.kind, g.adds.kind = prometheus.CounterValue, prometheus.CounterValue
	return g
}

// Describe implements prometheus.Collector: what there is depends on the source.
func (g *gauges) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, out) }

// Collect implements prometheus.Collector.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	for s, d := range g.work.worked() {
		g.busy.at(out, d.Seconds(), s.driver, s.action)
	}
	g.jobs(out)
	g.store(out)
	g.api(out)
}

func (g *gauges) jobs(out chan<- prometheus.Metric) {
	if g.source.Jobs != nil {
		running := map[driverAction]int{}
		for _, r := range g.source.Jobs().Running {
			running[driverAction{r.Driver, knownAction(r.Action)}]++
		}
		for s, n := range running {
			g.inFlight.at(out, float64(n), s.driver, s.action)
		}
	}
	if g.source.Backlog == nil {
		return
	}
	b := g.source.Backlog()
	sizes := map[string]int{"pull": 0}
	for action, n := range b.Unclaimed {
		sizes[knownAction(action)] += n
	}
	for action, n := range sizes {
		g.queueSize.at(out, float64(n), action)
	}
	g.workerQueue.at(out, float64(b.Waiting))
	g.depth.at(out, float64(b.Waiting), queueName)
	g.adds.at(out, float64(b.Added), queueName)
	var sum, longest time.Duration
	for _, d := range b.Looking {
		sum += d
		longest = max(longest, d)
	}
	g.unfinished.at(out, sum.Seconds(), queueName)
	g.longest.at(out, longest.Seconds(), queueName)
	g.claimed.at(out, float64(b.Claimed))
	g.queued.at(out, float64(b.Queued))
	g.unsent.at(out, float64(b.Undelivered))
}

func (g *gauges) store(out chan<- prometheus.Metric) {
	if g.source.Store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTime)
	defer cancel()
	info, err := g.source.Store(ctx)
	if err != nil {
		g.log.Debug("metrics of the state file", "err", err)
		return
	}
	g.storeBytes.at(out, float64(info.Bytes))
	g.storeFree.at(out, float64(info.FreeBytes))
	g.claims.at(out, float64(info.Claims))
	g.resting.at(out, float64(info.Resting))
	g.history.at(out, float64(info.History))
	g.historyBytes.at(out, float64(info.HistoryBytes))
	oldest := 0.0
	if !info.Oldest.IsZero() {
		oldest = float64(info.Oldest.UnixMilli()) / 1000
	}
	g.age.at(out, oldest)
}

func (g *gauges) api(out chan<- prometheus.Metric) {
	if g.source.Clock != nil {
		offset, bound, ok := g.source.Clock()
		known := 0.0
		if ok {
			known = 1
			g.offset.at(out, offset.Seconds())
			g.bound.at(out, bound.Seconds())
		}
		g.known.at(out, known)
	}
	if g.source.Latency != nil {
		g.latency.at(out, g.source.Latency().Seconds())
	}
	if g.source.Down != nil {
		down := 0.0
		if since := g.source.Down(); !since.IsZero() {
			down = max(time.Since(since).Seconds(), 0)
		}
		g.down.at(out, down)
	}
}
