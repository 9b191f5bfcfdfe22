package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/apiserver"
	"limpet/sync/jobs"
	"limpet/sync/kube"
	"limpet/sync/resources"
)

// site is a real controller on the real embedded API and a real state file.
type site struct {
	t       *testing.T
	store   *state.Store
	client  *kube.Client
	metrics *Metrics
	control *jobs.Controller
}

// worker does what the name of the job says.
type worker struct{}

func (worker) Action() string                         { return "pull" }
func (worker) Ready(context.Context, jobs.Task) error { return nil }
func (worker) Run(ctx context.Context, t *jobs.Task) error {
	kind, n, _ := strings.Cut(t.Name, "-")
	changed, _ := strconv.Atoi(n)
	for i := range changed {
		t.Progress.Record(ctx, resources.Result{Action: resources.Created, Group: api.DashboardGroup, Kind: "Dashboard", Name: fmt.Sprint(i)})
	}
	switch kind {
	case "bad":
		return errors.New("refused")
	case "odd":
		t.Progress.Record(ctx, resources.Result{Action: resources.Updated, Group: api.DashboardGroup, Kind: "Dashboard",
			Warning: errors.New("odd")})
	case "long":
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return nil
}

func newSite(t *testing.T, drivers int) *site {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(t.TempDir(), "limpet.db")})
	if err != nil {
		t.Fatal(err)
	}
	server, err := apiserver.New(store, apiserver.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	client, err := kube.Connect(t.Context(), kube.Config{Server: "http://embedded", Transport: server.Transport(), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, store: store, client: client, metrics: New("test", drivers, quiet)}
	list, repos := client.Informer(api.Jobs, "", kube.InformerOptions{}), client.Informer(api.Repositories, "", kube.InformerOptions{})
	s.control, err = jobs.New(client, list, repos, store, []jobs.Worker{worker{}},
		jobs.Options{Drivers: drivers, Logger: quiet, Observe: s.metrics.Observe})
	if err != nil {
		t.Fatal(err)
	}
	s.metrics.Read(Source{Backlog: s.control.Backlog, Jobs: s.control.Snapshot, Store: store.Info,
		Clock: func() (time.Duration, time.Duration, bool) { return 0, 0, false }})
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() { _ = list.Run(ctx) })
	parts.Go(func() { _ = repos.Run(ctx) })
	parts.Go(func() {
		if err := s.control.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		parts.Wait()
		client.Close()
		server.Close()
		if r, err := store.Check(context.Background()); err != nil || len(r.Problems) > 0 {
			t.Errorf("state file: %v %v", err, r.Problems)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *site) create(gvr string, spec map[string]any, name string) {
	s.t.Helper()
	kind := map[string]string{"jobs": "Job", "repositories": "Repository"}[gvr]
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": kind, "spec": spec}}
	u.SetName(name)
	resource := api.Jobs
	if gvr == "repositories" {
		resource = api.Repositories
	}
	if _, err := s.client.Resource(resource).Namespace("default").Create(s.t.Context(), u, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) repository(name string) {
	s.create("repositories", map[string]any{"title": name, "type": "git", "git": map[string]any{"url": "https://git.example.com/" + name +
		".git", "branch": "main"},
		"sync": map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(60)}}, name)
}

func (s *site) job(repository, name string) {
	s.create("jobs", map[string]any{"action": "pull", "repository": repository, "pull": map[string]any{"incremental": false}}, name)
}

// until polls the outside world.
func (s *site) until(what string, ok func() bool) {
	s.t.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			s.t.Fatalf("never: %s", what)
		}
	}
}

func (s *site) records() []state.Record {
	s.t.Helper()
	records, err := s.store.History(s.t.Context(), state.Query{})
	if err != nil {
		s.t.Fatal(err)
	}
	return records
}

// sum adds up all series of a metric, or the counts of all its histograms.
func sum(f *dto.MetricFamily) (n float64) {
	for _, m := range f.GetMetric() {
		n += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return n
}

// TestScrapeAgainstHistory: what a scrape says after jobs have run is what the
// history and the API say.
func TestScrapeAgainstHistory(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3)
	want := map[string]float64{}
	names := 0
	for r := range 4 {
		s.repository(fmt.Sprint("r", r))
		for _, name := range []string{"good-0", "good-7", "good-12", "bad-3", "odd-1"} {
			kind, _, _ := strings.Cut(name, "-")
			unique := name
			if r > 0 {
				unique = kind + "-" + strconv.Itoa(r*100+names)
			}
			s.job(fmt.Sprint("r", r), unique)
			names++
			want[map[string]string{"good": "success", "bad": "error", "odd": "warning"}[kind]]++
		}
	}
	s.job("r0", "long-2")
	s.until("all but one have ended", func() bool {
		b := s.control.Backlog()
		return len(s.records()) == names && len(s.control.Snapshot().Running) == 1 && b.Claimed == 1 && len(b.Unclaimed) == 0
	})
	got := scrape(t, s.metrics)
	if n := value(got, "grafana_provisioning_jobs_in_flight", "driver_id="+s.control.Snapshot().Running[0].Driver, "action=pull"); n != 1 {
		t.Errorf("%v in flight", n)
	}
	if err := s.control.Cancel(t.Context(), "default", "long-2"); err != nil {
		t.Fatal(err)
	}
	want["error"]++ // on the wire
	s.until("the last has ended", func() bool {
		// The end of a claim is noted after the job has ended for everybody else.
		claims, err := s.store.Claims(t.Context())
		if err != nil || len(claims) > 0 || len(s.records()) != names+1 || len(s.control.Snapshot().Running) > 0 {
			return false
		}
		// Names come to wait, and each that does is looked at, the last of them after
		// its job has ended.
		got = scrape(t, s.metrics)
		return sum(got["workqueue_adds_total"]) == sum(got["workqueue_work_duration_seconds"])
	})
	created := 0.0
	for outcome, n := range want {
		if v := value(got, "grafana_provisioning_jobs_processed_total", "action=pull", "outcome="+outcome); v != n {
			t.Errorf("%v processed as %s, want %v", v, outcome, n)
		}
	}
	records := s.records()
	for _, rec := range records {
		_, n, _ := strings.Cut(rec.Name, "-")
		changed, err := strconv.ParseFloat(n, 64)
		if err != nil {
			t.Fatal(err)
		}
		created += changed
	}
	all := float64(len(records))
	for name, n := range map[string]float64{
		"grafana_provisioning_jobs_processed_total":           all,
		"grafana_provisioning_jobs_duration_seconds":          all,
		"grafana_provisioning_jobs_claimed_total":             all,
		"grafana_provisioning_jobs_queue_wait_seconds":        all,
		"grafana_provisioning_jobs_claim_errors_total":        0,
		"grafana_provisioning_jobs_in_flight":                 0,
		"grafana_provisioning_jobs_queue_size":                0,
		"grafana_provisioning_jobs_worker_queue_size":         0,
		"grafana_provisioning_jobs_resource_operations_total": created + 4,
		"limpet_jobs_cancelled_total":                         1,
		"limpet_history_records":                              all,
		"limpet_store_claims":                                 0,
		"limpet_jobs_claimed":                                 0,
		"limpet_completions_unsent":                           0,
		"limpet_leases_lost_total":                            0,
		"workqueue_unfinished_work_seconds":                   0,
	} {
		if v := sum(got[name]); v != n {
			t.Errorf("%s is %v, want %v", name, v, n)
		}
	}
	if v := value(got, "grafana_provisioning_jobs_resource_operations_total", "action=pull", "operation=updated", "outcome=warning",
		"reason=other", "group="+api.DashboardGroup, "kind=Dashboard"); v != 4 {
		t.Errorf("%v warnings", v)
	}
	if v := value(got, "grafana_provisioning_jobs_duration_seconds", "action=pull", "outcome=error",
		"resources_changed_bucket=unknown"); v != want["error"] {
		t.Errorf("%v durations of failed jobs", v)
	}
	if v := value(got, "grafana_provisioning_jobs_duration_seconds", "action=pull", "outcome=success", "resources_changed_bucket=0"); v != 1 {
		t.Errorf("%v jobs without a change", v)
	}
	if adds := sum(got["workqueue_adds_total"]); adds < all {
		t.Errorf("%v names came to wait", adds)
	}
	if v := sum(got["grafana_provisioning_events_processed_total"]); v < 2*all {
		t.Errorf("%v changes were seen", v)
	}
}

// TestBusySeconds: the time of a job counts while it runs, once, and never goes
// back.
func TestBusySeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newTest(1, &world{})
		busy := func() float64 {
			return value(scrape(t, m), "grafana_provisioning_jobs_busy_seconds_total", "driver_id=0", "action=pull")
		}
		m.Observe(jobs.Event{Type: jobs.EventMeasure, Detail: jobs.HeldBegan{UID: "u", Driver: "0", Action: "pull"}})
		<-time.After(5 * time.Second)
		if got := busy(); got != 5 {
			t.Errorf("after 5 s: %v", got)
		}
		m.Observe(jobs.Event{Type: jobs.EventMeasure, Detail: jobs.HeldEnded{UID: "u"}})
		m.Observe(jobs.Event{Type: jobs.EventMeasure, Detail: jobs.HeldEnded{UID: "u"}})
		<-time.After(5 * time.Second)
		if got := busy(); got != 5 {
			t.Errorf("after the end: %v", got)
		}
		m.Observe(jobs.Event{Type: jobs.EventMeasure, Detail: jobs.HeldBegan{UID: "v", Driver: "0", Action: "pull"}})
		<-time.After(time.Second)
		if got := busy(); got != 6 {
			t.Errorf("with the next: %v", got)
		}
	})
}
