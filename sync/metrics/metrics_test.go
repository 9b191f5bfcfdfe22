package metrics

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"limpet/state"
	"limpet/sync/jobs"
	"limpet/sync/resources"
)

// world is what the gauges of a test are read from.
type world struct {
	backlog jobs.Backlog
	live    []jobs.Running
	store   state.Info
	down    time.Time
	clock   bool
}

func (w *world) source() Source {
	return Source{
		Backlog: func() jobs.Backlog { return w.backlog },
		Jobs:    func() jobs.Snapshot { return jobs.Snapshot{Running: w.live} },
		Store:   func(context.Context) (state.Info, error) { return w.store, nil },
		Clock:   func() (time.Duration, time.Duration, bool) { return -3 * time.Second, time.Second / 4, w.clock },
		Down:    func() time.Time { return w.down },
		Latency: func() time.Duration { return 38 * time.Millisecond },
	}
}

func newTest(drivers int, w *world) *Metrics {
	m := New("1.2.3", drivers, slog.New(slog.DiscardHandler))
	m.Read(w.source())
	return m
}

// scrape asks as Prometheus does and reads the answer with Prometheus' parser.
func scrape(t testing.TB, m http.Handler) map[string]*dto.MetricFamily {
	t.Helper()
	body := ask(t, m, "").Body
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

func ask(t testing.TB, m http.Handler, accept string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w
}

// value returns the value of the series with these labels ("name=value"), -1 when
// there is none. Of a histogram it is the count.
func value(families map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	for _, m := range families[name].GetMetric() {
		var have []string
		for _, l := range m.GetLabel() {
			have = append(have, l.GetName()+"="+l.GetValue())
		}
		slices.Sort(have)
		slices.Sort(labels)
		if !slices.Equal(have, labels) {
			continue
		}
		switch {
		case m.Counter != nil:
			return m.Counter.GetValue()
		case m.Gauge != nil:
			return m.Gauge.GetValue()
		default:
			return float64(m.GetHistogram().GetSampleCount())
		}
	}
	return -1
}

// Grafana's phases. This agent renames a file together with its other writes, so
// file_renames is never seen.
var (
	fullPhases = []string{"compare", "file_renames", "file_deletions", "folder_deletions", "folder_creations", "file_creations",
		"old_folder_cleanup"}
	incrementPhases = []string{"compare", "apply", "cleanup"}
)

// everything makes every series that there can be appear once.
func everything(m *Metrics, w *world) {
	for _, r := range []jobs.ClaimResult{jobs.ClaimWon, jobs.ClaimConflict, jobs.ClaimError} {
		m.Observe(jobs.Event{Type: jobs.EventMeasure, Detail: jobs.ClaimAttempt{Driver: "0", Result: r}})
	}
	m.Observe(jobs.Event{Type: jobs.EventMeasure, Detail: jobs.HeldBegan{UID: "u", Driver: "0", Action: "pull"}})
	m.Observe(jobs.Event{Type: jobs.EventMeasure, Detail: jobs.FirstClaim{Action: "pull", Waited: time.Second}})
	m.Observe(jobs.Event{Type: jobs.EventMeasure, Detail: jobs.Processed{Action: "pull", Outcome: "success", Changed: 7, Took: time.Second}})
	m.Observe(jobs.Event{Type: jobs.EventMeasure,
		Detail: jobs.ResourceDone{Action: "pull", Result: resources.Result{Action: resources.Created, Group: "dashboard.grafana.app",
			Kind: "Dashboard"}}})
	for _, phase := range fullPhases {
		m.Observe(jobs.Event{Type: jobs.EventMeasure, Detail: jobs.SyncPhase{Sync: jobs.SyncFull, Phase: phase, Took: time.Second}})
	}
	for _, phase := range incrementPhases {
		m.Observe(jobs.Event{Type: jobs.EventMeasure, Detail: jobs.SyncPhase{Sync: jobs.SyncIncremental, Phase: phase, Took: time.Second}})
	}
	m.Observe(jobs.Event{Type: jobs.EventMeasure, Detail: jobs.SyncPhase{Sync: jobs.SyncFull, Phase: "", Took: time.Second}})
	m.Observe(jobs.Event{Type: jobs.EventMeasure, Detail: jobs.Seen{Source: jobs.SourceLive, Count: 1, Late: time.Second}})
	m.Observe(jobs.Event{Type: jobs.EventMeasure, Detail: jobs.KeyDone{Waited: time.Second, Took: time.Second, Retried: true}})
	m.Observe(jobs.Event{Type: jobs.EventMeasure, Detail: jobs.HistoryPruned{Local: 1, Remote: 2}})
	w.live = []jobs.Running{{UID: "u", Driver: "0", Action: "pull"}}
	w.clock = true
}

// grafana is the table of Grafana's job metrics: type and labels of each.
var grafana = map[string]string{
	"grafana_provisioning_jobs_queue_size":                              "GAUGE action",
	"grafana_provisioning_jobs_worker_queue_size":                       "GAUGE",
	"grafana_provisioning_jobs_queue_wait_seconds":                      "HISTOGRAM action",
	"grafana_provisioning_jobs_claimed_total":                           "COUNTER driver_id",
	"grafana_provisioning_jobs_claim_conflicts_total":                   "COUNTER driver_id",
	"grafana_provisioning_jobs_claim_errors_total":                      "COUNTER driver_id",
	"grafana_provisioning_jobs_claim_rounds_contended_total":            "COUNTER driver_id",
	"grafana_provisioning_jobs_processed_total":                         "COUNTER action outcome",
	"grafana_provisioning_jobs_duration_seconds":                        "HISTOGRAM action outcome resources_changed_bucket",
	"grafana_provisioning_jobs_in_flight":                               "GAUGE action driver_id",
	"grafana_provisioning_jobs_busy_seconds_total":                      "COUNTER action driver_id",
	"grafana_provisioning_jobs_concurrent_driver_num_drivers":           "GAUGE",
	"grafana_provisioning_jobs_resource_operations_total":               "COUNTER action group kind operation outcome reason",
	"grafana_provisioning_jobs_sync_duration_seconds":                   "HISTOGRAM type",
	"grafana_provisioning_jobs_full_sync_phase_duration_seconds":        "HISTOGRAM phase",
	"grafana_provisioning_jobs_incremental_sync_phase_duration_seconds": "HISTOGRAM phase",
	"grafana_provisioning_events_processed_total":                       "COUNTER resource source",
	"grafana_provisioning_event_delivery_latency_seconds":               "HISTOGRAM resource source",
	"grafana_provisioning_webhook_events_processed_total":               "COUNTER job",
	"workqueue_depth":                                        "GAUGE name",
	"workqueue_adds_total":                                   "COUNTER name",
	"workqueue_queue_duration_seconds":                       "HISTOGRAM name",
	"grafana_provisioning_repository_reconcile_errors_total": "COUNTER cause phase",
	"grafana_provisioning_health_checked_total":              "COUNTER outcome resource",
	"grafana_provisioning_health_checked_duration_seconds":   "HISTOGRAM resource",
	"workqueue_work_duration_seconds":                        "HISTOGRAM name",
	"workqueue_unfinished_work_seconds":                      "GAUGE name",
	"workqueue_longest_running_processor_seconds":            "GAUGE name",
	"workqueue_retries_total":                                "COUNTER name",
}

// TestGrafanaNames: each metric of Grafana's table has its name, type, labels
// and buckets, and nothing else claims to be Grafana's.
func TestGrafanaNames(t *testing.T) {
	t.Parallel()
	w := &world{}
	m := newTest(1, w)
	everything(m, w)
	families := scrape(t, m)
	for name, want := range grafana {
		f := families[name]
		if f == nil {
			t.Errorf("%s is missing", name)
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		if got := strings.TrimSpace(f.GetType().String() + " " + strings.Join(labels, " ")); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for name := range families {
		if grafana[name] == "" && (strings.HasPrefix(name, "grafana_") || strings.HasPrefix(name, "workqueue_")) {
			t.Errorf("%s is not in the table", name)
		}
	}
	for name, want := range map[string][]float64{
		"grafana_provisioning_jobs_queue_wait_seconds": {1, 5, 10, 30, 60, 120, 300},
		"grafana_provisioning_jobs_duration_seconds":   {5, 10, 30, 60, 120, 300},
	} {
		if got := bounds(families[name]); !slices.Equal(got, want) {
			t.Errorf("%s has buckets %v", name, got)
		}
	}
	for _, name := range []string{"sync_duration", "full_sync_phase_duration", "incremental_sync_phase_duration"} {
		b := bounds(families["grafana_provisioning_jobs_"+name+"_seconds"])
		if len(b) != 8 || b[0] != 0.01 || b[7] < 599 || b[7] > 601 {
			t.Errorf("%s has buckets %v, want 8 from 10 ms to 10 min", name, b)
		}
	}
}

// bounds are the upper bounds of a histogram but +Inf.
func bounds(f *dto.MetricFamily) (out []float64) {
	for _, b := range f.GetMetric()[0].GetHistogram().GetBucket() {
		if b.GetUpperBound() < 1e18 {
			out = append(out, b.GetUpperBound())
		}
	}
	return out
}

// TestLint holds every metric against the rules of promtool check metrics.
func TestLint(t *testing.T) {
	t.Parallel()
	w := &world{}
	m := newTest(2, w)
	everything(m, w)
	for name, f := range scrape(t, m) {
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue // the library's own
		}
		counter := f.GetType() == dto.MetricType_COUNTER
		switch {
		case f.GetHelp() == "" || !strings.HasSuffix(f.GetHelp(), ".") && !strings.HasSuffix(f.GetHelp(), "is."):
			t.Errorf("%s: help %q", name, f.GetHelp())
		case counter != strings.HasSuffix(name, "_total"):
			t.Errorf("%s is a %s", name, f.GetType())
		case strings.HasSuffix(name, "_count"), strings.HasSuffix(name, "_sum"), strings.HasSuffix(name, "_bucket"):
			t.Errorf("%s ends like a part of a histogram", name)
		case f.GetType() == dto.MetricType_HISTOGRAM && !strings.HasSuffix(name, "_seconds"):
			t.Errorf("%s names no unit", name)
		case strings.ToLower(name) != name:
			t.Errorf("%s has capitals", name)
		case f.GetType() == dto.MetricType_UNTYPED:
			t.Errorf("%s has no type", name)
		}
		for _, series := range f.GetMetric() {
			for _, l := range series.GetLabel() {
				if name == "grafana_provisioning_webhook_events_processed_total" && l.GetName() == "job" {
					continue // Grafana's word for the action of a job
				}
				if l.GetName() == "uid" || l.GetName() == "job" || l.GetName() == "namespace" || l.GetName() == "repository" {
					t.Errorf("%s has the label %s, which has no bound", name, l.GetName())
				}
			}
		}
	}
}

func TestFormats(t *testing.T) {
	t.Parallel()
	w := &world{}
	m := newTest(1, w)
	everything(m, w)
	for accept, want := range map[string]string{
		"":                         "text/plain; version=0.0.4",
		"text/plain;version=0.0.4": "text/plain; version=0.0.4",
		"application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5": "application/openmetrics-text; version=1.0.0",
	} {
		r := ask(t, m, accept)
		if got := r.Header().Get("Content-Type"); !strings.HasPrefix(got, want) {
			t.Errorf("asked for %q, got %q", accept, got)
		}
		if open := strings.HasSuffix(r.Body.String(), "# EOF\n"); open != strings.Contains(want, "openmetrics") {
			t.Errorf("asked for %q, the end is %q", accept, r.Body.String()[max(0, r.Body.Len()-20):])
		}
	}
}

// TestLabelsAreBounded: whatever users and files call their things, the number
// of series stays small.
func TestLabelsAreBounded(t *testing.T) {
	t.Parallel()
	w := &world{backlog: jobs.Backlog{Unclaimed: map[string]int{}}}
	m := newTest(1, w)
	for i := range 5000 {
		name := strings.Repeat("x", i%300) + string(rune('a'+i%26)) + time.Duration(i).String()
		m.Observe(jobs.Event{Type: jobs.EventMeasure, Detail: jobs.HeldBegan{UID: name, Driver: "0", Action: name}})
		m.Observe(jobs.Event{Type: jobs.EventMeasure, Detail: jobs.HeldEnded{UID: name}})
		m.Observe(jobs.Event{Type: jobs.EventMeasure, Detail: jobs.FirstClaim{Action: name, Waited: time.Second}})
		m.Observe(jobs.Event{Type: jobs.EventMeasure, Detail: jobs.Processed{Action: name, Outcome: "error", Changed: int64(i),
			Took: time.Second}})
		m.Observe(jobs.Event{Type: jobs.EventMeasure,
			Detail: jobs.ResourceDone{Action: name, Result: resources.Result{Action: resources.Action(name), Group: name, Kind: name,
				Err: os.ErrNotExist}}})
		m.Observe(jobs.Event{Type: jobs.EventDead, UID: name, State: name})
		w.backlog.Unclaimed[name] = 1
	}
	series := 0
	for name, f := range scrape(t, m) {
		if !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			series += len(f.GetMetric())
		}
	}
	if series > 150 {
		t.Errorf("%d series", series)
	}
	families := scrape(t, m)
	if n := value(families, "grafana_provisioning_jobs_queue_size", "action=other"); n != 5000 {
		t.Errorf("%v other jobs wait", n)
	}
	if n := value(families, "limpet_jobs_dead_letters_total", "reason=other"); n != 5000 {
		t.Errorf("%v dead letters", n)
	}
}

func TestGauges(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 12, 0, 0, 500e6, time.UTC)
	w := &world{
		backlog: jobs.Backlog{Unclaimed: map[string]int{"pull": 3, "push": 1}, Claimed: 2, Queued: 9, Waiting: 4, Undelivered: 1, Added: 77,
			Looking: []time.Duration{2 * time.Second, 5 * time.Second}},
		live:  []jobs.Running{{Driver: "0", Action: "pull"}, {Driver: "2", Action: "push"}, {Driver: jobs.DriverCleanup, Action: "pull"}},
		store: state.Info{Bytes: 1 << 20, FreeBytes: 4096, Claims: 3, Resting: 5, History: 12, HistoryBytes: 9000, Oldest: at},
		clock: true, down: time.Now().Add(-time.Minute),
	}
	m := newTest(3, w)
	got := scrape(t, m)
	for series, want := range map[string]float64{
		"grafana_provisioning_jobs_queue_size action=pull":                       3,
		"grafana_provisioning_jobs_queue_size action=push":                       1,
		"grafana_provisioning_jobs_worker_queue_size":                            4,
		"grafana_provisioning_jobs_in_flight action=pull driver_id=0":            1,
		"grafana_provisioning_jobs_in_flight action=push driver_id=2":            1,
		"grafana_provisioning_jobs_in_flight action=pull driver_id=cleanup":      1,
		"grafana_provisioning_jobs_in_flight action=pull driver_id=1":            -1,
		"grafana_provisioning_jobs_concurrent_driver_num_drivers":                3,
		"grafana_provisioning_jobs_claimed_total driver_id=2":                    0,
		"workqueue_depth name=provisioningJobDriver":                             4,
		"workqueue_adds_total name=provisioningJobDriver":                        77,
		"workqueue_unfinished_work_seconds name=provisioningJobDriver":           7,
		"workqueue_longest_running_processor_seconds name=provisioningJobDriver": 5,
		"limpet_jobs_claimed":                           2,
		"limpet_queue_names":                            9,
		"limpet_completions_unsent":                     1,
		"limpet_store_bytes":                            1 << 20,
		"limpet_store_free_bytes":                       4096,
		"limpet_store_claims":                           3,
		"limpet_store_resting_jobs":                     5,
		"limpet_history_records":                        12,
		"limpet_history_bytes":                          9000,
		"limpet_history_oldest_timestamp_seconds":       float64(at.UnixMilli()) / 1000,
		"limpet_clock_offset_seconds":                   -3,
		"limpet_clock_error_bound_seconds":              0.25,
		"limpet_clock_known":                            1,
		"limpet_api_latency_seconds":                    0.038,
		"limpet_history_pruned_total where=api":         0,
		"limpet_jobs_dead_letters_total reason=timeout": 0,
	} {
		parts := strings.Fields(series)
		if have := value(got, parts[0], parts[1:]...); have != want {
			t.Errorf("%s is %v, want %v", series, have, want)
		}
	}
	if down := value(got, "limpet_api_down_seconds"); down < 59 || down > 300 {
		t.Errorf("down for %v s", down)
	}
	// The clock is not known and the API is back: nothing is left of before.
	w.clock, w.down, w.live, w.backlog.Unclaimed = false, time.Time{}, nil, nil
	got = scrape(t, m)
	for _, name := range []string{"limpet_clock_offset_seconds", "limpet_clock_error_bound_seconds", "grafana_provisioning_jobs_in_flight"} {
		if got[name] != nil {
			t.Errorf("%s is still there", name)
		}
	}
	if value(got, "limpet_clock_known") != 0 || value(got, "limpet_api_down_seconds") != 0 ||
		value(got, "grafana_provisioning_jobs_queue_size", "action=pull") != 0 {
		t.Errorf("left: %v", slices.Sorted(maps.Keys(got)))
	}
}
