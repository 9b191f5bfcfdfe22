// Package metrics exports the metrics of an agent to Prometheus. The names, labels and
// buckets of the job part are Grafana's (grafana_provisioning_*, workqueue_*), so
// that its dashboards and alerts work; what it has no name for is limpet_*.
//
// Two rules keep the numbers true:
//
//   - A gauge is computed at each scrape from the present state: the cache of the
//     watch, the queue, the jobs under a claim, the state file. It is never
//     counted up and down, so it cannot drift, and it is right after a crash.
//   - A counter counts what was done, once, where it was done. Its labels come
//     from fixed sets: what a user or a file may name freely (actions, kinds) is
//     "other" beyond the names that are known.
//
// This package is the one door to Prometheus' client library.
package metrics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"limpet/sync/apiserver"
	"limpet/sync/jobs"
	"limpet/sync/resources"
	"limpet/sync/text"
)

// Metrics counts what one agent does and answers scrapes. It consumes the events of jobs.
type Metrics struct {
	registry registry
	log      *slog.Logger
	*work
	*queue
	controller *controllerMetrics
	reconciles *reconciles
	lifecycle
	webhooks
}

// New returns the metrics of an agent of that version and number of drivers. Until Read is called
// there are no gauges.
func New(version string, drivers int, log *slog.Logger) *Metrics {
	r := registry{prometheus.NewRegistry()}
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m := &Metrics{
		registry:   r,
		log:        log,
		reconciles: newReconciles(r),
		work:       newWork(r, drivers),
		queue:      newQueue(r),
		lifecycle:  newLifecycle(r),
		webhooks:   newWebhooks(r),
	}
	m.controller = newControllerMetrics(r, m.queue.works, m.reconciles)
	r.gauge("limpet_build_info", "Always 1; the version of limpet and of Go are in the labels.", "version", "goversion").
		WithLabelValues(version, runtime.Version()).Set(1)
	return m
}

// registry makes metrics that it registers.
type registry struct{ *prometheus.Registry }

func (r registry) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	r.MustRegister(c)
	return c
}

func (r registry) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	r.MustRegister(g)
	return g
}

func (r registry) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	r.MustRegister(h)
	return h
}

// Observe takes the events of a controller. It does no I/O.
func (m *Metrics) Observe(e jobs.Event) {
	switch d := e.Detail.(type) {
	case jobs.HeldBegan:
		m.work.began(d.UID, d.Driver, d.Action)
	case jobs.HeldEnded:
		m.work.ended(d.UID)
	case jobs.ClaimAttempt:
		if c := m.claims[d.Result]; c != nil {
			c.WithLabelValues(d.Driver).Inc()
		}
		if d.Result == jobs.ClaimConflict { // a round of Grafana's driver is one write here
			m.contended.WithLabelValues(d.Driver).Inc()
		}
	case jobs.FirstClaim:
		m.wait.WithLabelValues(knownAction(d.Action)).Observe(d.Waited.Seconds())
	case jobs.Processed:
		m.work.ends(d)
	case jobs.ResourceDone:
		m.work.resource(d.Action, d.Result)
	case jobs.SyncPhase:
		m.work.phase(d.Sync, d.Phase, d.Took)
	case jobs.HistoryPruned:
		m.pruned.WithLabelValues("local").Add(float64(d.Local))
		m.pruned.WithLabelValues("api").Add(float64(d.Remote))
	case jobs.Seen:
		m.queue.seen(d)
	case jobs.KeyDone:
		m.queue.keyDone(d)
	default:
		m.lifecycle.observe(e)
	}
}

// Read adds the gauges, which are read from s at every scrape. It is called once.
func (m *Metrics) Read(s Source) {
	for _, kind := range Kinds {
		if kind.IsSource() && s.Objects[kind.Kind] != nil {
			m.reconciles.served(kind.Kind)
		}
	}
	m.registry.MustRegister(&collector{source: s, work: m.work, reconciles: m.reconciles, log: m.log})
}

// ServeHTTP answers a scrape, as OpenMetrics when the client accepts that, else in the text format
// of Prometheus.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	families, err := m.registry.Gather()
	if err != nil {
		// A collector that failed leaves its metrics out; the rest is right.
		m.log.Warn("metrics are not complete", "err", err)
	}
	format := expfmt.NegotiateIncludingOpenMetrics(r.Header)
	var out bytes.Buffer
	enc := expfmt.NewEncoder(&out, format)
	for _, family := range families {
		if err = enc.Encode(family); err != nil {
			break
		}
	}
	if end, ok := enc.(expfmt.Closer); ok && err == nil {
		err = end.Close()
	}
	if err != nil {
		m.log.Warn("encode metrics", "err", err)
		http.Error(w, "metrics cannot be encoded", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", string(format))
	_, _ = w.Write(out.Bytes()) // the peer is gone
}

// Endpoint serves /metrics, /healthz and /readyz of an agent, and beside them what Page answers.
type Endpoint struct {
	Address string
	Metrics http.Handler
	Page    http.Handler
	Stuck   func() []string // what of the agent does not move
	Synced  func() bool
	Ready   func() error              // of the jobs
	Down    func() (time.Time, error) // since when the API is unavailable, and why
	Logger  *slog.Logger

	problem atomic.Pointer[string] // why nothing is served; nil = it is
}

// Run serves until ctx ends. An address in use is logged and skipped: two agents on one host must
// not stop each other.
func (e *Endpoint) Run(ctx context.Context) error {
	ln, err := net.Listen("tcp", e.Address)
	if err != nil {
		problem := "telemetry off: " + err.Error()
		if _, port, _ := net.SplitHostPort(e.Address); errors.Is(err, syscall.EADDRINUSE) {
			problem = "telemetry off: port " + port + " is in use"
		}
		e.problem.Store(&problem)
		e.Logger.Warn(problem, "address", e.Address, "next", "--telemetry-listen with another address, or empty for none")
		return nil
	}
	e.Logger.Info("telemetry", "address", ln.Addr().String())
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", e.Metrics)
	mux.HandleFunc("GET /healthz", answer(func() string { return strings.Join(e.Stuck(), "\n") }))
	mux.HandleFunc("GET /readyz", answer(e.NotReady))
	mux.Handle("GET /", e.Page)
	return apiserver.Serve(ctx, ln, &http.Server{Handler: mux})
}

// Problem returns why nothing is served, "" when it is.
func (e *Endpoint) Problem() string {
	if problem := e.problem.Load(); problem != nil {
		return *problem
	}
	return ""
}

// answer serves "ok", or why not with status 503.
func answer(problem func() string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if why := problem(); why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}

// NotReady returns why the agent would not claim a job now; "" means it would.
func (e *Endpoint) NotReady() string {
	if !e.Synced() {
		return "watches have not synced"
	}
	if err := e.Ready(); err != nil {
		return text.Redact(err.Error())
	}
	if since, err := e.Down(); err != nil {
		return fmt.Sprintf("the API has not answered for %s: %s", text.Age(time.Since(since)), text.Redact(err.Error()))
	}
	return ""
}

// other stands for every value of a label that is not known.
const other = "other"

// actions are those of Grafana's Job type.
var actions = []string{
	"pull", "push", "pr", "migrate", "delete", "move", "fixFolderMetadata", "releaseResources", "deleteResources", "test",
}

var operations = []resources.Action{resources.Created, resources.Updated, resources.Deleted, resources.Renamed, resources.Ignored}

func oneOf[T ~string](known []T, value T) string {
	if slices.Contains(known, value) {
		return string(value)
	}
	return other
}

func knownAction(action string) string { return oneOf(actions, action) }

// maxKinds bounds the pairs of group and kind with series of their own. Files of a repository may
// contain any.
const maxKinds = 32

// kinds are the pairs of group and kind that have their own series.
type kinds struct {
	mu   sync.Mutex // guards seen
	seen map[[2]string]bool
}

// known returns the pair, or other for both of a pair that came too late.
func (k *kinds) known(group, kind string) (string, string) {
	pair := [2]string{group, kind}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.seen[pair] {
		if len(k.seen) >= maxKinds || len(group) > 128 || len(kind) > 128 {
			return other, other
		}
		if k.seen == nil {
			k.seen = map[[2]string]bool{}
		}
		k.seen[pair] = true
	}
	return group, kind
}

// sizeBucket is Grafana's name for a number of changed resources.
func sizeBucket(n int64) string {
	switch {
	case n <= 0:
		return "0"
	case n <= 10:
		return "1-10"
	case n <= 50:
		return "11-50"
	case n <= 100:
		return "51-100"
	case n <= 500:
		return "101-500"
	case n <= 1000:
		return "501-1000"
	}
	return "1000+"
}
