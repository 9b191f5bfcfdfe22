package e2e

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"limpet/sync/testenv/suite"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/kube"
	"limpet/sync/testenv"
)

// The figures of README, measured with the built binary. Without -figures the workloads are small
// and only what does not depend on the machine is judged; with it they have their full size and the
// goals are judged too.

var figures = flag.Bool("figures", false, "measure at full size and judge by the goals")

// size returns the size of a workload.
func size(small, full int) int {
	if *figures {
		return full
	}
	return small
}

// workload is an API with repositories to create jobs for, and a client that watches them.
type workload struct {
	t               *testing.T
	client          *kube.Client
	repositoryCount int
	posted          atomic.Int64
}

// realWorkload is a workload on the API machinery, with the flags of an agent for it.
func realWorkload(t *testing.T, s *testenv.Server) (*workload, []string) {
	t.Helper()
	token := (&home{dir: t.TempDir()}).file(t, "token", s.Token)
	client := connectUser(t, s, "user", "default")
	return &workload{t: t, client: client.Client}, []string{"--provisioning-server-url", s.URL, "--tls-ca-file", s.CAFile, "--token-file",
		token, "--controllers", "off"}
}

// embeddedWorkload is a workload on the embedded API of a daemon.
func embeddedWorkload(t *testing.T, h *home) *workload {
	t.Helper()
	daemon, err := control.Attach(t.Context(), filepath.Join(filepath.Dir(h.state()), "limpet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(daemon.Close)
	client, err := kube.Connect(t.Context(), kube.Config{Server: control.BaseURL, Transport: daemon.Transport(), UserAgent: "yard"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &workload{t: t, client: client}
}

// repositories makes n of them whose sync is off: a pull of one runs through claim, worker, history
// and removal, and the worker returns at once. Nothing in limpet does less.
func (y *workload) repositories(n int) {
	y.t.Helper()
	for i := range n {
		name := fmt.Sprintf("r%04d", i)
		if _, err := y.client.Resource(api.Repositories).Namespace("default").Create(y.t.Context(),
			newObject(api.Repositories, name, nil, disabledRepository(name)), metav1.CreateOptions{}); err != nil {
			y.t.Fatal(err)
		}
	}
	y.repositoryCount = n
}

// job is a no-op job with a name of its own.
func (y *workload) job() *unstructured.Unstructured {
	n := y.posted.Add(1)
	return newObject(api.Jobs, fmt.Sprintf("job-%06d", n), nil, pullJob(fmt.Sprintf("r%04d", int(n)%y.repositoryCount), true))
}

// post makes n jobs from several goroutines at once.
func (y *workload) post(n, at int) {
	y.t.Helper()
	var all sync.WaitGroup
	for w := range at {
		all.Go(func() {
			for range (n + at - 1 - w) / at {
				if _, err := y.jobs().Create(y.t.Context(), y.job(), metav1.CreateOptions{}); err != nil {
					y.t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// jobWatch is what a watch of the jobs has seen.
type jobWatch struct {
	claimed chan string // names, once each
	deleted chan string // names
}

// watchJobs watches the jobs until the test ends.
func (y *workload) watchJobs() jobWatch {
	y.t.Helper()
	s := jobWatch{claimed: make(chan string, 1<<16), deleted: make(chan string, 1<<16)}
	list, err := y.jobs().List(y.t.Context(), metav1.ListOptions{})
	if err != nil {
		y.t.Fatal(err)
	}
	w, err := y.jobs().Watch(context.WithoutCancel(y.t.Context()), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		y.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		claimed := map[types.UID]bool{}
		for e := range w.ResultChan() {
			job, ok := e.Object.(*unstructured.Unstructured)
			switch {
			case !ok:
			case e.Type == watch.Deleted:
				s.deleted <- job.GetName()
			case e.Type != watch.Bookmark && job.GetLabels()[api.LabelClaim] != "" && !claimed[job.GetUID()]:
				claimed[job.GetUID()] = true
				s.claimed <- job.GetName()
			}
		}
	}()
	y.t.Cleanup(func() { w.Stop(); <-done })
	return s
}

// runInformer runs an informer until the test ends and waits until it is synced.
func (y *workload) runInformer(inf *kube.Informer) {
	y.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = inf.Run(ctx) })
	y.t.Cleanup(func() { cancel(); running.Wait() })
	if err := inf.WaitSynced(y.t.Context()); err != nil {
		y.t.Fatal(err)
	}
}

// await receives n names.
func (y *workload) await(what string, from <-chan string, n int) {
	y.t.Helper()
	for i := range n {
		select {
		case <-from:
		case <-time.After(callTimeout):
			y.t.Fatalf("%s: %d of %d", what, i, n)
		}
	}
}

// runJobs creates n jobs, waits until an agent has ended them, and returns the time from the
// first POST to the last removal.
func (y *workload) runJobs(s jobWatch, n, posters int) time.Duration {
	y.t.Helper()
	began := time.Now()
	y.post(n, posters)
	y.await("jobs ended", s.deleted, n)
	return time.Since(began)
}

// baseline runs the least API calls of a job without limpet, for n jobs: create, three updates,
// delete.
func (y *workload) baseline(n, at int) time.Duration {
	y.t.Helper()
	began := time.Now()
	var all sync.WaitGroup
	for w := range at {
		all.Go(func() {
			for range (n + at - 1 - w) / at {
				if err := y.baselineJob(); err != nil {
					y.t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return time.Since(began)
}

// baselineJob is one of them. The job is claimed from the start, so that agents skip it.
func (y *workload) baselineJob() error {
	u := y.job()
	u.SetLabels(map[string]string{api.LabelClaim: "9999999999999", api.LabelClaimOwner: "bare"})
	u, err := y.jobs().Create(y.t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for i := range 3 {
		_ = unstructured.SetNestedField(u.Object, fmt.Sprint("step ", i), "status", "message")
		if u, err = y.jobs().Update(y.t.Context(), u, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return y.jobs().Delete(y.t.Context(), u.GetName(), metav1.DeleteOptions{})
}

func (y *workload) jobs() jobClient { return y.client.Resource(api.Jobs).Namespace("default") }

// jobClient is the part of the dynamic client that a workload uses.
type jobClient interface {
	Create(ctx context.Context, obj *unstructured.Unstructured, o metav1.CreateOptions, sub ...string) (*unstructured.Unstructured, error)
	Update(ctx context.Context, obj *unstructured.Unstructured, o metav1.UpdateOptions, sub ...string) (*unstructured.Unstructured, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions, sub ...string) error
	List(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

func perSecond(n int, d time.Duration) float64 { return float64(n) / d.Seconds() }

func median[T float64 | time.Duration](v []T) T { return quantile(v, 0.5) }

func quantile[T float64 | time.Duration](v []T, q float64) T {
	v = slices.Sorted(slices.Values(v))
	return v[min(int(q*float64(len(v))), len(v)-1)]
}

// TestThroughput compares one agent with the bare API calls of its jobs at the same
// concurrency: on the API machinery and on the embedded API.
func TestThroughput(t *testing.T) {
	suite.Full(t)
	for _, c := range []struct {
		name    string
		real    bool
		drivers string
		goal    float64 // of the bare lives
	}{
		{"embedded, 3 drivers", false, "3", 0.35}, // a job is 8 durable writes, a bare life 5
		{"embedded, 16 drivers", false, "16", 0.35},
		{"API machinery, 16 drivers", true, "16", 0.7},
	} {
		t.Run(c.name, func(t *testing.T) {
			y, h := newWorkload(t, c.real, "--drivers", c.drivers)
			y.repositories(32)
			s := y.watchJobs()
			n := size(60, 500)
			y.runJobs(s, n/4, 16) // warm
			var bare, limpet, ratios []float64
			for range size(1, 5) {
				b := perSecond(n, y.baseline(n, 16))
				y.await("bare jobs deleted", s.deleted, n)
				l := perSecond(n, y.runJobs(s, n, 16))
				bare, limpet, ratios = append(bare, b), append(limpet, l), append(ratios, l/b)
			}
			t.Logf("bare create+3 updates+delete %.0f/s, limpet %.0f jobs/s, median ratio %.2f of %.2f (n=%d each)", median(bare), median(limpet),
				median(ratios), ratios, n)
			if *figures && median(ratios) < c.goal {
				t.Errorf("median ratio %.2f, goal %.2f", median(ratios), c.goal)
			}
			if len(h.history(t)) == 0 {
				t.Error("no history")
			}
		})
	}
}

// newWorkload is a workload with a running agent.
func newWorkload(t *testing.T, real bool, flags ...string) (*workload, *home) {
	t.Helper()
	flags = append(flags, "--log-level", "warn")
	if real {
		y, args := realWorkload(t, testenv.Start(t, testenv.Options{}))
		h := newHome(t, args...)
		h.daemon(t, flags...)
		return y, h
	}
	h := newHome(t)
	// Their host does not exist: one that was found silent gets half of the drivers.
	h.daemon(t, append(flags, "--controllers", "off")...)
	return embeddedWorkload(t, h), h
}

// TestClaimLatency measures from before the POST of a job until a watch of a third party
// shows the claim of an idle agent.
func TestClaimLatency(t *testing.T) {
	suite.Full(t)
	const half, most = 20 * time.Millisecond, 150 * time.Millisecond
	for name, real := range map[string]bool{"API machinery": true, "embedded": false} {
		t.Run(name, func(t *testing.T) {
			y, _ := newWorkload(t, real)
			y.repositories(8)
			s := y.watchJobs()
			var took []time.Duration
			for range size(20, 600) {
				began := time.Now()
				if _, err := y.jobs().Create(t.Context(), y.job(), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				y.await("job claimed", s.claimed, 1)
				took = append(took, time.Since(began))
				y.await("job ended", s.deleted, 1)
			}
			p50, p99 := median(took), quantile(took, 0.99)
			t.Logf("POST to claim seen by a watch, n=%d: p50 %s, p99 %s", len(took), p50, p99)
			if *figures && (p50 > half || p99 > most) {
				t.Errorf("goals %s and %s", half, most)
			}
		})
	}
}

// TestIdleAgentIsQuiet counts what an agent that waits for jobs asks of its
// server. Goal: at most one request in 30 s.
func TestIdleAgentIsQuiet(t *testing.T) {
	suite.Full(t)
	server := testenv.Start(t, testenv.Options{})
	y, flags := realWorkload(t, server)
	y.repositories(20)
	newHome(t, flags...).daemon(t, "--log-level", "warn")
	s := y.watchJobs()
	y.runJobs(s, 20, 1)
	// What belongs to the start is over once the first pass over expired claims has been seen.
	until(t, "the agent has looked for expired claims", func() bool {
		return counted(server.Requests(t, 0))["LIST jobs"] > 0
	})
	since := server.Mark(t)
	watched := time.Duration(size(5, 240)) * time.Second
	<-time.After(watched)
	asked := counted(server.Requests(t, since))
	n := 0
	for _, times := range asked {
		n += times
	}
	t.Logf("an idle agent, %s: %d requests %v", watched, n, asked)
	if most := max(1, int(watched/(30*time.Second))); n > most {
		t.Errorf("%d requests in %s, at most %d are allowed: %v", n, watched, most, asked)
	}
}

// counted sums the requests of limpet agents up by kind: verb, resource, and the status when it is
// an error.
func counted(requests []testenv.Request) map[string]int {
	out := map[string]int{}
	for _, r := range requests {
		if strings.HasPrefix(r.Agent, "limpet") {
			out[kindOf(r)]++
		}
	}
	return out
}

// kindOf names a request as "GET jobs" or, without a name in the path, "LIST
// jobs", which is also a watch; errors have their status behind.
func kindOf(r testenv.Request) string {
	parts := strings.Split(strings.Trim(r.Path, "/"), "/")
	verb, resource := r.Method, parts[len(parts)-1]
	// apis GROUP VERSION [namespaces NS] RESOURCE [NAME [SUBRESOURCE]]
	at := 3
	if len(parts) > 4 && parts[3] == "namespaces" {
		at = 5
	}
	if len(parts) > at {
		resource = parts[at]
		if len(parts) == at+1 && verb == "GET" {
			verb = "LIST"
		}
	}
	kind := verb + " " + resource
	if len(parts) > at+2 {
		kind += "/" + parts[at+2]
	}
	if r.Code >= 400 {
		kind += " " + http.StatusText(r.Code)
	}
	return kind
}

// kinds lists what was counted, most first.
func kinds(asked map[string]int) []string {
	return slices.SortedFunc(maps.Keys(asked), func(a, b string) int { return asked[b] - asked[a] })
}
