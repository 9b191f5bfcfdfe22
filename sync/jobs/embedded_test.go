package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/apiserver"
	"limpet/sync/kube"
)

// embedded is the real embedded API on its own state file, with real goroutines
// and real time.
type embedded struct {
	t      testing.TB
	server *apiserver.Server
	client *kube.Client
}

func newEmbedded(t testing.TB) *embedded {
	t.Helper()
	e := &embedded{t: t}
	var err error
	if e.server, err = apiserver.New(openStore(t), apiserver.Options{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.server.Close(); err != nil {
			t.Error(err)
		}
	})
	e.client = e.connect()
	return e
}

func openStore(t testing.TB) *state.Store {
	t.Helper()
	store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(t.TempDir(), "limpet.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		report, err := store.Check(context.Background())
		if err != nil || len(report.Problems) > 0 {
			t.Errorf("state file: %v %v", err, report.Problems)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

func (e *embedded) connect() *kube.Client {
	e.t.Helper()
	c, err := kube.Connect(e.t.Context(), kube.Config{Server: "http://embedded", Transport: e.server.Transport(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(c.Close)
	return c
}

// agent runs a controller until the test ends and returns it.
func (e *embedded) agent(store *state.Store, o Options, w Worker) *Controller {
	e.t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	client := e.connect()
	jobs, repos := client.Informer(api.Jobs, "", kube.InformerOptions{}), client.Informer(api.Repositories, "", kube.InformerOptions{})
	c, err := New(client, jobs, repos, store, []Worker{w}, o)
	if err != nil {
		e.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() { _ = jobs.Run(ctx) })
	parts.Go(func() { _ = repos.Run(ctx) })
	parts.Go(func() {
		if err := c.Run(ctx); err != nil {
			e.t.Error(err)
		}
	})
	e.t.Cleanup(func() {
		cancel()
		parts.Wait()
	})
	return c
}

func (e *embedded) repository(name string) {
	e.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": "Repository",
		"spec": map[string]any{"title": name, "type": "git", "git": map[string]any{"url": "https://git.example.com/" + name + ".git", "branch": "main"},
			"sync": map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(60)}}}}
	u.SetName(name)
	if _, err := e.client.Resource(api.Repositories).Namespace("default").Create(e.t.Context(), u, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
}

func (e *embedded) job(repository, name string) {
	e.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": "Job",
		"spec": map[string]any{"action": "pull", "repository": repository, "pull": map[string]any{"incremental": false}}}}
	u.SetName(name)
	if _, err := e.client.Resource(api.Jobs).Namespace("default").Create(e.t.Context(), u, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
}

func (e *embedded) count(list func(ctx context.Context) (*unstructured.UnstructuredList, error)) int {
	e.t.Helper()
	l, err := list(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	return len(l.Items)
}

func (e *embedded) jobsLeft() int {
	return e.count(func(ctx context.Context) (*unstructured.UnstructuredList, error) {
		return e.client.Resource(api.Jobs).Namespace("default").List(ctx, metav1.ListOptions{})
	})
}

// until waits for a condition of the outside world.
func until(t testing.TB, limit time.Duration, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within %s", limit)
		}
	}
}

// TestOnTheEmbeddedAPI: two agents with state files of their own share the jobs
// of the embedded API; a worker reports more than fits into one throttle.
func TestOnTheEmbeddedAPI(t *testing.T) {
	t.Parallel()
	e := newEmbedded(t)
	for i := range 5 {
		e.repository(fmt.Sprint("r", i))
	}
	var mu sync.Mutex
	runs, busy := map[string]int{}, map[string]bool{}
	w := func(agent string) *script {
		return worker(func(ctx context.Context, task *Task) error {
			mu.Lock()
			runs[task.UID]++
			if busy[agent+task.Job.Spec.Repository] {
				t.Errorf("two jobs of %s at once in agent %s", task.Job.Spec.Repository, agent)
			}
			busy[agent+task.Job.Spec.Repository] = true
			mu.Unlock()
			task.Progress.SetTotal(ctx, 3)
			for i := range 3 {
				task.Progress.SetMessage(ctx, fmt.Sprint("file ", i))
				task.Progress.Record(ctx, dashboard(Created, nil, nil))
				if err := task.Progress.Mark(ctx, i); err != nil {
					return err
				}
			}
			mu.Lock()
			busy[agent+task.Job.Spec.Repository] = false
			mu.Unlock()
			return nil
		})
	}
	stores := []*state.Store{openStore(t), openStore(t)}
	for i, store := range stores {
		agent := fmt.Sprint("agent", i)
		e.agent(store, Options{Agent: agent, Drivers: 4}, w(agent))
	}
	const n = 60
	for i := range n {
		e.job(fmt.Sprint("r", i%5), fmt.Sprint("job-", i))
	}
	until(t, 30*time.Second, func() bool { return e.jobsLeft() == 0 })
	until(t, 10*time.Second, func() bool {
		total := 0
		for _, store := range stores {
			claims, err := store.Claims(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			total += len(claims)
		}
		return total == 0
	})
	mu.Lock()
	defer mu.Unlock()
	for uid, times := range runs {
		if times != 1 {
			t.Errorf("job %s ran %d times", uid, times)
		}
	}
	records := 0
	for _, store := range stores {
		list, err := store.History(t.Context(), state.Query{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			if r.State != "success" || r.HistoricJob != archivePosted {
				t.Errorf("record %+v", r)
			}
		}
		records += len(list)
	}
	historic := e.count(func(ctx context.Context) (*unstructured.UnstructuredList, error) {
		return e.client.Resource(api.HistoricJobs).Namespace("default").List(ctx, metav1.ListOptions{})
	})
	if len(runs) != n || records != n || historic != n {
		t.Errorf("%d jobs run, %d records, %d HistoricJobs, want %d", len(runs), records, historic, n)
	}
}

// TestStopOnTheEmbeddedAPI: a stop gives the job back, the next start ends it.
func TestStopOnTheEmbeddedAPI(t *testing.T) {
	t.Parallel()
	e := newEmbedded(t)
	e.repository("r1")
	store := openStore(t)
	t.Run("first", func(t *testing.T) {
		first := &embedded{t: t, server: e.server, client: e.client}
		started := make(chan struct{})
		first.agent(store, Options{}, worker(func(ctx context.Context, _ *Task) error {
			close(started)
			<-ctx.Done()
			return context.Cause(ctx)
		}))
		e.job("r1", "r1-sync")
		<-started
	})
	job, err := e.client.Resource(api.Jobs).Namespace("default").Get(t.Context(), "r1-sync", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	status, _, _ := unstructured.NestedString(job.Object, "status", "state")
	if claims, err := store.Claims(t.Context()); claimed(job) || status != api.StatePending || len(claims) != 0 || err != nil {
		t.Fatalf("job %v, claims %v, %v", job.Object, claims, err)
	}
	e.agent(store, Options{}, quick())
	until(t, 10*time.Second, func() bool { return e.jobsLeft() == 0 })
}

// BenchmarkJobs measures no-op jobs through one agent with durable history on
// the embedded API, both on the same disk.
func BenchmarkJobs(b *testing.B) {
	e := newEmbedded(b)
	for i := range 32 {
		e.repository(fmt.Sprint("r", i))
	}
	for i := range b.N {
		e.job(fmt.Sprint("r", i%32), fmt.Sprint("job-", i))
	}
	left := make(chan struct{}, b.N)
	store := openStore(b)
	b.ResetTimer()
	e.agent(store, Options{Drivers: 16, Observe: func(ev Event) {
		if ev.Type == EventCompleted {
			left <- struct{}{}
		}
	}}, quick())
	for range b.N {
		<-left
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
