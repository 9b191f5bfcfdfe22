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
	"k8s.io/apimachinery/pkg/watch"

	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/kube"
	"limpet/sync/testenv"
)

// The figures of README, measured with the built binary. Without -figures the
// workloads are small and only what does not depend on the machine is judged;
// with it they have their full size and the goals are judged too.

var figures = flag.Bool("figures", false, "measure at full size and judge by the goals")

// size is how many of something a measurement takes.
func size(small, full int) int {
	if *figures {
		return full
	}
	return small
}

// yard is an API with repositories to post jobs for, and a client that sees
// what becomes of them.
type yard struct {
	t      *testing.T
	client *kube.Client
	repos  int
	posted atomic.Int64
}

// realYard is a namespace of the API machinery with an agent's flags for it.
func realYard(t *testing.T, s *testenv.Server) (*yard, []string) {
	t.Helper()
	token := (&home{dir: t.TempDir()}).file(t, "token", s.Token)
	client, err := kube.Connect(t.Context(), kube.Config{Server: s.URL, TLS: kube.TLS{CAFile: s.CAFile}, Token: s.Token, UserAgent: "yard"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &yard{t: t, client: client}, []string{"--provisioning-server-url", s.URL, "--tls-ca-file", s.CAFile, "--token-file", token, "--controllers", "off"}
}

// embeddedYard is the embedded API of a daemon, through its socket.
func embeddedYard(t *testing.T, h *home) *yard {
	t.Helper()
	tr := control.Transport(filepath.Join(filepath.Dir(h.state()), "limpet.sock"))
	t.Cleanup(tr.CloseIdleConnections)
	client, err := kube.Connect(t.Context(), kube.Config{Server: control.BaseURL, Transport: tr, UserAgent: "yard"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &yard{t: t, client: client}
}

// repositories makes n of them whose sync is off: a pull of one runs through
// claim, worker, history and removal, and the worker returns at once. Nothing
// in limpet does less.
func (y *yard) repositories(n int) {
	y.t.Helper()
	for i := range n {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": "Repository",
			"spec": map[string]any{"title": fmt.Sprint("r", i), "type": "git",
				"git":  map[string]any{"url": fmt.Sprintf("https://git.invalid/r%d.git", i), "branch": "main"},
				"sync": map[string]any{"enabled": false, "target": "folder", "intervalSeconds": int64(3600)}}}}
		u.SetName(fmt.Sprintf("r%04d", i))
		if _, err := y.client.Resource(api.Repositories).Namespace("default").Create(y.t.Context(), u, metav1.CreateOptions{}); err != nil {
			y.t.Fatal(err)
		}
	}
	y.repos = n
}

// job is a no-op job with a name of its own.
func (y *yard) job() *unstructured.Unstructured {
	n := y.posted.Add(1)
	repo := fmt.Sprintf("r%04d", int(n)%y.repos)
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": "Job",
		"spec": map[string]any{"action": "pull", "repository": repo, "pull": map[string]any{"incremental": true}}}}
	u.SetName(fmt.Sprintf("job-%06d", n))
	u.SetLabels(map[string]string{api.LabelRepository: repo})
	return u
}

// post makes n jobs from several goroutines at once.
func (y *yard) post(n, at int) {
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

// sight is what a watch of the jobs has seen.
type sight struct {
	claimed chan string // names, once each
	gone    chan string // names
}

// look watches the jobs until the test ends.
func (y *yard) look() sight {
	y.t.Helper()
	s := sight{claimed: make(chan string, 1<<16), gone: make(chan string, 1<<16)}
	inf := y.client.Informer(api.Jobs, "default", kube.InformerOptions{})
	claim := kube.PathTo("metadata", "labels", api.LabelClaim)
	inf.AddHandler(kube.Handler{
		Update: func(old, now kube.Object) {
			if old.Text(claim) == "" && now.Text(claim) != "" {
				s.claimed <- now.Name()
			}
		},
		Delete: func(job kube.Object) { s.gone <- job.Name() },
	})
	y.run(inf)
	return s
}

// run keeps an informer until the test ends and waits for its first picture.
func (y *yard) run(inf *kube.Informer) {
	y.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = inf.Run(ctx) })
	y.t.Cleanup(func() { cancel(); running.Wait() })
	if err := inf.WaitSynced(y.t.Context()); err != nil {
		y.t.Fatal(err)
	}
}

// await takes n names from a channel of a sight.
func (y *yard) await(what string, from <-chan string, n int) {
	y.t.Helper()
	for i := range n {
		select {
		case <-from:
		case <-time.After(callTimeout):
			y.t.Fatalf("%s: %d of %d", what, i, n)
		}
	}
}

// drain posts n jobs and waits until an agent has ended them all. It returns
// the time from the first POST to the last removal.
func (y *yard) drain(s sight, n, posters int) time.Duration {
	y.t.Helper()
	began := time.Now()
	y.post(n, posters)
	y.await("jobs ended", s.gone, n)
	return time.Since(began)
}

// bare does what the life of a job costs at least, without limpet: create,
// three updates, delete, of n jobs by so many goroutines.
func (y *yard) bare(n, at int) time.Duration {
	y.t.Helper()
	began := time.Now()
	var all sync.WaitGroup
	for w := range at {
		all.Go(func() {
			for range (n + at - 1 - w) / at {
				if err := y.life(); err != nil {
					y.t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return time.Since(began)
}

// life is one bare life. The job has a claim from the start, so that no agent
// looks at it.
func (y *yard) life() error {
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

func (y *yard) jobs() jobClient { return y.client.Resource(api.Jobs).Namespace("default") }

// jobClient is what a yard needs of the API of jobs.
type jobClient interface {
	Create(ctx context.Context, obj *unstructured.Unstructured, o metav1.CreateOptions, sub ...string) (*unstructured.Unstructured, error)
	Update(ctx context.Context, obj *unstructured.Unstructured, o metav1.UpdateOptions, sub ...string) (*unstructured.Unstructured, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions, sub ...string) error
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

func perSecond(n int, d time.Duration) float64 { return float64(n) / d.Seconds() }

func median[T float64 | time.Duration](v []T) T { return quantile(v, 0.5) }

func quantile[T float64 | time.Duration](v []T, q float64) T {
	v = slices.Sorted(slices.Values(v))
	return v[min(int(q*float64(len(v))), len(v)-1)]
}

// TestThroughputEmbedded: one agent, its embedded API and its history in one
// durable file, jobs posted over the socket while it works.
func TestThroughputEmbedded(t *testing.T) {
	suite.Full(t)
	const (
		goal       = 150  // jobs/s
		leastRatio = 0.35 // of bare lives; a job is 8 durable writes, 7 of them one after the other, a bare life 5
	)
	for name, flags := range map[string][]string{"3 drivers (default)": nil, "16 drivers": {"--drivers", "16"}} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			d := h.daemon(t, append([]string{"--log-level", "warn"}, flags...)...)
			y := embeddedYard(t, h)
			y.repositories(32)
			s := y.look()
			n := size(60, 500)
			var rates, bare, ratios []float64
			for range size(1, 5) {
				b := perSecond(n, y.bare(n, 8))
				y.await("bare jobs deleted", s.gone, n)
				l := perSecond(n, y.drain(s, n, 8))
				rates, bare, ratios = append(rates, l), append(bare, b), append(ratios, l/b)
			}
			t.Logf("embedded API, one agent, %s: median %.0f jobs/s of %.0f; bare create+3 updates+delete %.0f/s, median ratio %.2f (n=%d each)",
				name, median(rates), rates, median(bare), median(ratios), n)
			if got := len(h.history(t)); got == 0 {
				t.Error("no history")
			}
			// A machine that is busy with other things shows it in the bare calls too.
			if *figures && median(rates) < goal && median(ratios) < leastRatio {
				t.Errorf("median %.0f jobs/s, goal %d; ratio %.2f, goal %.2f", median(rates), goal, median(ratios), leastRatio)
			}
			if code := d.stop(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// TestThroughputReal compares one agent with the bare calls that the life of a
// job costs at least, in turn, at the same concurrency, on the API machinery.
func TestThroughputReal(t *testing.T) {
	suite.Full(t)
	const goal, at = 0.70, 16
	y, flags := realYard(t, testenv.Start(t, testenv.Options{}))
	y.repositories(32)
	h := newHome(t, flags...)
	h.daemon(t, "--log-level", "warn", "--drivers", "16")
	s := y.look()
	n := size(60, 500)
	y.drain(s, n/4, at) // warm
	y.warm(s, n/4, at)
	var bare, limpet, ratios []float64
	for range size(1, 7) {
		b := perSecond(n, y.bare(n, at))
		y.await("bare jobs deleted", s.gone, n)
		l := perSecond(n, y.drain(s, n, at))
		bare, limpet, ratios = append(bare, b), append(limpet, l), append(ratios, l/b)
	}
	t.Logf("API machinery, %d at once: bare create+3 updates+delete %.0f/s, limpet %.0f jobs/s (POST to removal), median ratio %.2f of %.2f (n=%d each)",
		at, median(bare), median(limpet), median(ratios), ratios, n)
	if *figures && median(ratios) < goal {
		t.Errorf("median ratio %.2f, goal %.2f", median(ratios), goal)
	}
}

// warm runs bare lives until the connections and caches are there.
func (y *yard) warm(s sight, n, at int) time.Duration {
	d := y.bare(n, at)
	y.await("bare jobs deleted", s.gone, n)
	return d
}

// TestClaimLatency measures from before the POST of a job until a watch of a
// third party shows the claim: the way of the event to the agent, its look at
// the job, its claim, and the way of that event. The agent is idle each time.
// In turn with it the same is measured for the least that anybody can do: a
// client that writes the claim as soon as its watch shows the job.
func TestClaimLatency(t *testing.T) {
	suite.Full(t)
	const half, most = 20 * time.Millisecond, 150 * time.Millisecond
	measure := func(t *testing.T, y *yard) {
		y.repositories(8)
		s := y.look()
		y.claimBare()
		once := func(u *unstructured.Unstructured) time.Duration {
			began := time.Now()
			if _, err := y.jobs().Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			y.await("job claimed", s.claimed, 1)
			return time.Since(began)
		}
		var limpet, bare []time.Duration
		n := size(20, 600)
		const warm = 10
		for i := range warm + n {
			a := once(y.job())
			y.await("job ended", s.gone, 1)
			u := y.job()
			_ = unstructured.SetNestedField(u.Object, bareAction, "spec", "action")
			b := once(u)
			if err := y.jobs().Delete(t.Context(), u.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			y.await("job deleted", s.gone, 1)
			if i >= warm {
				limpet, bare = append(limpet, a), append(bare, b)
			}
		}
		tell := func(v []time.Duration) string {
			return fmt.Sprintf("p50 %s, p90 %s, p99 %s, most %s", ms(median(v)), ms(quantile(v, 0.9)), ms(quantile(v, 0.99)), ms(slices.Max(v)))
		}
		t.Logf("POST to claim seen by a watch, n=%d in turn: limpet %s; bare %s", n, tell(limpet), tell(bare))
		// A machine that is busy with other things shows it in the bare calls too.
		goal50, goal99 := max(half, 2*median(bare)), max(most, 2*quantile(bare, 0.99))
		if *figures && (median(limpet) > goal50 || quantile(limpet, 0.99) > goal99) {
			t.Errorf("p50 %s, goal %s; p99 %s, goal %s", ms(median(limpet)), ms(goal50), ms(quantile(limpet, 0.99)), ms(goal99))
		}
	}
	t.Run("API machinery", func(t *testing.T) {
		y, flags := realYard(t, testenv.Start(t, testenv.Options{}))
		newHome(t, flags...).daemon(t, "--log-level", "warn")
		measure(t, y)
	})
	t.Run("embedded", func(t *testing.T) {
		h := newHome(t)
		h.daemon(t, "--log-level", "warn")
		measure(t, embeddedYard(t, h))
	})
}

// bareAction is one that limpet has no worker for.
const bareAction = "fixFolderMetadata"

// claimBare claims the jobs of bareAction as soon as a watch shows them, until
// the test ends.
func (y *yard) claimBare() {
	y.t.Helper()
	inf := y.client.Informer(api.Jobs, "default", kube.InformerOptions{})
	inf.AddHandler(kube.Handler{Add: func(job kube.Object) {
		u := job.Unstructured().DeepCopy()
		if action, _, _ := unstructured.NestedString(u.Object, "spec", "action"); action != bareAction {
			return
		}
		labels := u.GetLabels()
		labels[api.LabelClaim], labels[api.LabelClaimOwner] = fmt.Sprint(time.Now().UnixMilli()), "bare"
		u.SetLabels(labels)
		if _, err := y.jobs().Update(context.Background(), u, metav1.UpdateOptions{}); err != nil {
			y.t.Error(err)
		}
	}})
	y.run(inf)
}

func ms(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// TestIdleAgentIsQuiet counts what an agent that waits for jobs asks of its
// server. Goal: at most one request in 30 s.
func TestIdleAgentIsQuiet(t *testing.T) {
	suite.Full(t)
	server := testenv.Start(t, testenv.Options{})
	y, flags := realYard(t, server)
	y.repositories(20)
	newHome(t, flags...).daemon(t, "--log-level", "warn")
	s := y.look()
	y.drain(s, 20, 1)
	// What belongs to the start is over once the first pass over expired claims
	// has been seen.
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

// counted sums the requests of limpet agents up by kind: verb, resource, and the
// status when it is an error.
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
