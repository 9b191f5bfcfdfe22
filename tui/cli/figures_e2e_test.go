package cli_test

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"limpet/sync/api"
	"limpet/sync/control"
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
	client *api.Client
	repos  int
	posted atomic.Int64
}

// realYard is a namespace of the API machinery with an agent's flags for it.
func realYard(t *testing.T, s *testenv.Server) (*yard, []string) {
	t.Helper()
	token := (&home{dir: t.TempDir()}).file(t, "token", s.Token)
	client, err := api.Connect(t.Context(), api.Config{Server: s.URL, TLS: api.TLS{CAFile: s.CAFile}, Token: s.Token, UserAgent: "yard"})
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
	client, err := api.Connect(t.Context(), api.Config{Server: control.BaseURL, Transport: tr, UserAgent: "yard"})
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
	inf := y.client.Informer(api.Jobs, "default", api.InformerOptions{})
	claimed := func(u *unstructured.Unstructured) bool { return u.GetLabels()[api.LabelClaim] != "" }
	inf.OnEvent(api.Handler{
		Update: func(old, now *unstructured.Unstructured) {
			if !claimed(old) && claimed(now) {
				s.claimed <- now.GetName()
			}
		},
		Delete: func(u *unstructured.Unstructured) { s.gone <- u.GetName() },
	})
	y.run(inf)
	return s
}

// run keeps an informer until the test ends and waits for its first picture.
func (y *yard) run(inf *api.Informer) {
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
