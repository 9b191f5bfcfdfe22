package repos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/api/patch"
	"limpet/sync/apiserver"
	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/jobs"
	"limpet/sync/kube"
	"limpet/sync/reconcile"
	"limpet/sync/testenv"
	"limpet/sync/worker"
	"limpet/sync/worker/checkout"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// rig is a controller at work on one of the two APIs and a real Git host.
type rig struct {
	t          *testing.T
	namespace  string
	client     *kube.Client // of the test and of the puller
	writes     *recording   // of the controller
	git        *testenv.GitServer
	repo       *testenv.Repository
	url        string
	mirrored   string // of the Repository: its mirrors
	store      *state.Store
	mirrors    *git.Mirrors
	creds      atomic.Pointer[auth.Credentials]
	controller *Controller
	hold       chan struct{} // the controller begins when it is closed; nil = at once
	ahead      atomic.Int64  // how far the controller's clock of the server is ahead, in ns
	events     chan reconcile.Event
	trust      auth.TrustSource // of the puller
}

// recording keeps the writes of a controller.
type recording struct {
	next http.RoundTripper
	mu   sync.Mutex // guards seen
	seen []*write
}

type write struct {
	what string // "PATCH repositories/x/status"
	ops  []string
	body string
	code int
}

func (r *recording) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
		req.Body.Close()
		req = req.Clone(req.Context())
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	if req.Method == http.MethodGet {
		return r.next.RoundTrip(req)
	}
	_, rest, _ := strings.Cut(req.URL.Path, "/namespaces/")
	_, rest, _ = strings.Cut(rest, "/")
	w := &write{what: req.Method + " " + rest, body: string(body)}
	var ops []patch.Op
	if req.Method == http.MethodPatch && json.Unmarshal(body, &ops) == nil {
		for _, o := range ops {
			w.ops = append(w.ops, o.Op+" "+o.Path)
		}
	}
	// Who sees what a write has done may ask for it before its answer is here.
	r.mu.Lock()
	r.seen = append(r.seen, w)
	r.mu.Unlock()
	resp, err := r.next.RoundTrip(req)
	if err == nil {
		r.mu.Lock()
		w.code = resp.StatusCode
		r.mu.Unlock()
	}
	return resp, err
}

// take returns the writes since the last call, one line each.
func (r *recording) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, w := range r.seen {
		line := w.what
		if len(w.ops) > 0 {
			line += ": " + strings.Join(w.ops, ", ")
		} else {
			line += " " + w.body
		}
		if w.code >= 300 {
			line += fmt.Sprintf(" [%d]", w.code)
		}
		out = append(out, line)
	}
	r.seen = nil
	return out
}

var namespaces atomic.Int64

// servers are the two APIs that the tests run on.
var servers = []string{"embedded", "real"}

func newRig(t *testing.T, server string, change func(*rig, *Options)) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{t: t, namespace: fmt.Sprintf("keep-%d", namespaces.Add(1)), events: make(chan reconcile.Event, 256)}
	store := openStore(t)
	r.store = store
	base, transport := apiOf(t, server, store)
	r.client = connect(t, base, transport)
	r.writes = &recording{next: transport}
	r.repo = testenv.EmptyRepo(t)
	if r.git == nil {
		r.git = testenv.Git(t, testenv.GitOptions{})
	}
	var err error
	if r.mirrors, err = git.Open(filepath.Join(dir, "mirrors"), git.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.mirrors.Close() })
	o := Options{Git: r.mirrors, Logger: slog.New(slog.DiscardHandler), Resync: time.Second, Observe: func(e reconcile.Event) { r.events <- e },
		Remotes: checkout.Source{Credentials: r.credentials(), AllowInsecure: true}.Remote}
	if change != nil {
		change(r, &o)
	}
	r.url = r.git.Serve("ops/dashboards.git", r.repo.Dir)
	mine := connect(t, base, r.writes)
	queue, objects := mine.Informer(api.Jobs, r.namespace, kube.InformerOptions{Compact: true}),
		mine.Informer(api.Repositories, r.namespace, kube.InformerOptions{})
	r.controller = New(mine, objects, queue, o)
	now := r.controller.now
	r.controller.now = func() time.Time { return now().Add(time.Duration(r.ahead.Load())) }
	r.run(queue.Run, objects.Run, func(ctx context.Context) error {
		if r.hold != nil {
			<-r.hold
		}
		return r.controller.Run(ctx)
	})
	return r
}

// credentials finds those of the rig.
func (r *rig) credentials() auth.Source {
	return func(context.Context, auth.Lookup) (*auth.Credentials, error) { return r.creds.Load(), nil }
}

// openStore opens a state file for the test.
func openStore(t testing.TB) *state.Store {
	t.Helper()
	store, _, err := state.Open(context.Background(), state.Options{Path: filepath.Join(t.TempDir(), "limpet.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// embedded returns an embedded API of its own, for a bubble, and what is written to it.
func embedded(t *testing.T) (*kube.Client, *recording, *state.Store) {
	t.Helper()
	store := openStore(t)
	base, transport := apiOf(t, "embedded", store)
	wire := &recording{next: transport}
	return connect(t, base, wire), wire, store
}

// connect returns a client of an API.
func connect(t *testing.T, base string, transport http.RoundTripper) *kube.Client {
	t.Helper()
	c, err := kube.Connect(context.Background(), kube.Config{Server: base, Transport: transport, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// informers returns those of all Repositories and Jobs.
func informers(c *kube.Client) (objects, queue *kube.Informer) {
	return c.Informer(api.Repositories, "", kube.InformerOptions{}), c.Informer(api.Jobs, "", kube.InformerOptions{Compact: true})
}

// running runs parts until stop is called.
func running(t testing.TB, parts ...func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var g errgroup.Group
	for _, part := range parts {
		g.Go(func() error { return part(ctx) })
	}
	return func() {
		cancel()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// plainRemotes are the URLs of Repositories of type git.
var plainRemotes Remotes = func(_ context.Context, _, _ string, repo api.Repository) (git.Remote, error) {
	return git.Remote{URL: repo.Spec.Git.URL}, nil
}

// run runs parts until the test ends.
func (r *rig) run(parts ...func(context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	g, ctx := errgroup.WithContext(ctx)
	for _, part := range parts {
		g.Go(func() error { return part(ctx) })
	}
	r.t.Cleanup(func() {
		stop()
		if err := g.Wait(); err != nil && ctx.Err() == nil {
			r.t.Error(err)
		}
	})
}

// apiOf returns one of the two APIs.
func apiOf(t *testing.T, kind string, store *state.Store) (base string, transport http.RoundTripper) {
	t.Helper()
	if kind == "real" {
		s := testenv.Real(t)
		return s.URL, s.Client(t).Transport
	}
	s, err := apiserver.New(store, apiserver.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return "http://embedded", s.Transport()
}

// pulls runs the agents' own job controller with the pull worker, by the API of
// the test.
func (r *rig) pulls() {
	r.t.Helper()
	log := slog.New(slog.DiscardHandler)
	queue, objects := r.client.Informer(api.Jobs, r.namespace, kube.InformerOptions{}), r.client.Informer(api.Repositories, r.namespace,
		kube.InformerOptions{})
	worker := worker.NewPull(worker.PullOptions{Client: r.client, Store: r.store, Logger: log,
		Source: checkout.Source{Git: r.mirrors, Credentials: auth.Chain(), Signers: checkout.NewSigners(r.trust, nil, nil)}})
	c, err := jobs.New(r.client, queue, objects, r.store, []jobs.Worker{worker}, jobs.Options{Namespace: r.namespace, Logger: log,
		Grace: 50 * time.Millisecond})
	if err != nil {
		r.t.Fatal(err)
	}
	r.run(queue.Run, objects.Run, c.Run)
}

// create makes the Repository "site".
func (r *rig) create(spec map[string]any, status map[string]any) *unstructured.Unstructured {
	r.t.Helper()
	all := map[string]any{"title": "Site", "type": "git", "workflows": []any{},
		"git":  map[string]any{"url": r.url, "branch": testenv.Branch},
		"sync": map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(60)}}
	for k, v := range spec {
		all[k] = v
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": all}}
	u.SetAPIVersion(api.Repositories.GroupVersion().String())
	u.SetKind("Repository")
	u.SetName("site")
	if r.mirrored != "" {
		u.SetAnnotations(map[string]string{api.AnnoGitMirrors: r.mirrored})
	}
	res := r.client.Resource(api.Repositories).Namespace(r.namespace)
	made, err := res.Create(r.t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return made
}

// merge changes a Repository.
func (r *rig) merge(patch string) {
	r.t.Helper()
	res := r.client.Resource(api.Repositories).Namespace(r.namespace)
	if _, err := res.Patch(r.t.Context(), "site", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) get() (api.Repository, *unstructured.Unstructured) {
	r.t.Helper()
	u, err := r.client.Resource(api.Repositories).Namespace(r.namespace).Get(r.t.Context(), "site", metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	repo, err := api.RepositoryView(u)
	if err != nil {
		r.t.Fatal(err)
	}
	return repo, u
}

// until waits until the Repository is like that.
func (r *rig) until(what string, ok func(api.Repository) bool) api.Repository {
	r.t.Helper()
	deadline, tick := time.After(30*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for {
		repo, _ := r.get()
		if ok(repo) {
			return repo
		}
		select {
		case <-deadline:
			r.t.Fatalf("timed out: %s: %+v\nwrites %q", what, repo.Status, r.writes.take())
		case <-tick.C:
		}
	}
}

// later has the controller believe that time has passed on the server, and look.
func (r *rig) later(d time.Duration) {
	r.ahead.Add(int64(d))
	r.controller.Wake(r.namespace, "site")
}

func condition(repo api.Repository, kind string) api.Condition {
	for _, c := range repo.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return api.Condition{}
}

// wrote takes the next n writes of the controller, and complains about more.
func (r *rig) wrote(n int) {
	r.t.Helper()
	var got []string
	eventually(r.t, fmt.Sprintf("%d writes", n), func() bool { got = append(got, r.writes.take()...); return len(got) >= n })
	if len(got) > n {
		r.t.Errorf("%d writes, want %d: %q", len(got), n, got)
	}
}
