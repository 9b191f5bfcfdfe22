package controller_test

import (
	"bytes"
	"context"
	"encoding/json"
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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/apiserver"
	"limpet/sync/auth"
	"limpet/sync/dependency"
	"limpet/sync/git"
	"limpet/sync/kube"
	"limpet/sync/netx"
	"limpet/sync/notify"
	"limpet/sync/reconcile"
	"limpet/sync/source"
	"limpet/sync/source/artifact"
	"limpet/sync/source/controller"
	"limpet/sync/source/kind/gitrepository"
	"limpet/sync/testenv"
	"limpet/sync/testenv/gittest"
	"limpet/sync/worker/checkout"
)

var gitRepository, _ = api.SourceKind("gitrepository")

func TestMain(m *testing.M) {
	if state.RunProbe() {
		return
	}
	os.Exit(testenv.Main(m))
}

// rig is a controller at work on an API, with a real Git host.
type rig struct {
	t         *testing.T
	namespace string
	client    *kube.Client
	writes    *writes
	server    *gittest.Server
	origin    *gittest.Origin
	mirrors   *git.Mirrors
	artifacts *artifact.Store
	dir       string // of the artifacts
	sources   *source.Watcher
	control   *controller.Controller
	notices   *state.Store   // of the outbox
	outbox    *notify.Outbox // which nothing is taken from
	later     atomic.Int64   // how much the server's clock is ahead
	events    chan reconcile.Event
	changed   chan struct{}
	halt      func() // ends control
}

// writes counts what the controller writes.
type writes struct {
	next http.RoundTripper
	mu   sync.Mutex // guards seen
	seen []string
}

func (w *writes) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && strings.Contains(r.URL.RawQuery, controller.FieldManager) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		w.mu.Lock()
		w.seen = append(w.seen, r.Method+" "+r.URL.Path)
		w.mu.Unlock()
	}
	return w.next.RoundTrip(r)
}

// take returns the writes since the last call.
func (w *writes) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.seen
	w.seen = nil
	return out
}

// onEach runs a test on the embedded API and on the API machinery.
func onEach(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Run("embedded", func(t *testing.T) { t.Parallel(); test(t, embedded(t)) })
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		s := testenv.Real(t)
		test(t, newRig(t, kube.Config{Server: s.URL, TLS: kube.TLS{CAFile: s.CAFile}, Token: s.Token}, nil, "src-"+
			strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))))
	})
}

func embedded(t *testing.T, rules ...auth.VerificationPolicy) *rig {
	t.Helper()
	w := &writes{}
	store := opened(t)
	server, err := apiserver.New(store, apiserver.Options{Logger: slog.New(slog.DiscardHandler), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	w.next = server.Transport()
	return newRig(t, kube.Config{Server: "http://embedded", Transport: w}, w, "default", rules...)
}

func opened(t *testing.T) *state.Store {
	t.Helper()
	store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(t.TempDir(), "limpet.db"), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

func newRig(t *testing.T, cfg kube.Config, w *writes, namespace string, rules ...auth.VerificationPolicy) *rig {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	cfg.Logger = log
	client, err := kube.Connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	r := &rig{t: t, namespace: namespace, client: client, writes: w, server: gittest.NewServer(t), events: make(chan reconcile.Event, 1000),
		changed: make(chan struct{}, 1)}
	r.origin = gittest.NewOrigin(t, r.server.Root, "site.git")
	mirrors, err := git.Open(filepath.Join(t.TempDir(), "mirrors"), git.Options{Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mirrors.Close() })
	r.mirrors = mirrors
	target, err := notify.ParseTargets([]string{"http://127.0.0.1:1"}, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	r.notices = opened(t)
	r.outbox, err = notify.Open(t.Context(), notify.Options{Store: r.notices, Targets: target, Client: &netx.Client{}, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	r.dir = filepath.Join(t.TempDir(), "artifacts")
	r.artifacts, err = artifact.Open(t.Context(), artifact.Options{Dir: r.dir, Store: opened(t), Logger: log,
		URL: "http://artifacts.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	r.sources = source.NewWatcher(client, gitRepository, namespace, log, func() {
		select {
		case r.changed <- struct{}{}:
		default:
		}
	})
	references := dependency.New(dependency.Options{Client: client, Logger: log,
		Wake: func(user dependency.Ref) { r.control.Wake(user.Namespace, user.Name) }})
	reader := dependency.Reader{Client: client, Watcher: references}
	places := auth.Places{Secrets: reader.Secret, Observer: references}
	now := func() time.Time { return time.Now().Add(time.Duration(r.later.Load())) }
	kind := gitrepository.New(gitrepository.Options{Sources: r.sources, Git: mirrors, AllowInsecure: true,
		Credentials: places.WithTransport(places.NamedSecret()), Places: places,
		Signers:   checkout.NewSigners(places.Trust, auth.NewList(rules), references.ObservePath),
		Artifacts: r.artifacts, References: references, MaxFiles: 100_000, Now: now})
	r.control = controller.New(controller.Options{Kind: kind, Client: client, Sources: r.sources,
		Turns: controller.NewTurns(mirrors.Silent), Artifacts: r.artifacts, References: references, Outbox: r.outbox, Now: now,
		Observe: func(e reconcile.Event) { r.events <- e }, Logger: log})
	r.run(r.sources.Run, references.Run)
	r.halt = r.run(r.control.Run)
	return r
}

// key is the key of the artifacts of a source.
func (r *rig) key(name string) artifact.Key {
	return artifact.Key{Kind: "gitrepository", Namespace: r.namespace, Name: name}
}

// run runs parts until the test ends, or halt is called.
func (r *rig) run(parts ...func(context.Context) error) (halt func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	var running sync.WaitGroup
	for _, part := range parts {
		running.Go(func() { _ = part(ctx) })
	}
	halt = func() { cancel(); running.Wait() }
	r.t.Cleanup(halt)
	return halt
}

// apply creates a source or replaces its spec.
func (r *rig) apply(name, spec string) *unstructured.Unstructured {
	r.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
		"metadata": map[string]any{"name": name, "namespace": r.namespace}}}
	var members map[string]any
	if err := json.Unmarshal([]byte(`{"url":"`+r.server.URL+`/site.git","interval":"1h"`+spec+`}`), &members); err != nil {
		r.t.Fatal(err)
	}
	u.Object["spec"] = members
	made, err := r.client.Resource(api.GitRepositories).Namespace(r.namespace).Apply(r.t.Context(), name, u,
		metav1.ApplyOptions{FieldManager: "test", Force: true})
	if err != nil {
		r.t.Fatal(err)
	}
	return made
}

// secret creates or replaces a Secret.
func (r *rig) secret(name string, data map[string]any) {
	r.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"name": name, "namespace": r.namespace}, "stringData": data}}
	if _, err := r.client.Resource(api.Secrets).Namespace(r.namespace).Apply(r.t.Context(), name, u,
		metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
		r.t.Fatal(err)
	}
}

// ask requests a reconcile and waits until it is handled.
func (r *rig) ask(name string) source.Source {
	r.t.Helper()
	u, err := source.Reconcile(r.t.Context(), r.client, gitRepository, r.namespace, name, "")
	if err != nil {
		r.t.Fatal(err)
	}
	return source.FromObject(r.until(name, "handled", func(o *unstructured.Unstructured) bool { return source.Handled(o, source.Asked(u)) }))
}

// until waits until a source is as it should be.
func (r *rig) until(name, what string, holds func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	r.t.Helper()
	late := time.NewTimer(60 * time.Second)
	defer late.Stop()
	for {
		u, _ := r.sources.Get(r.namespace, name)
		if u != nil && holds(u) {
			return u
		}
		select {
		case <-r.changed:
		case <-late.C:
			status := "none"
			if u != nil {
				data, _ := json.MarshalIndent(u.Object["status"], "", " ")
				status = string(data)
			}
			r.t.Fatalf("%s is not %s: %s", name, what, status)
		}
	}
}

// ready waits until a source is ready at a revision.
func (r *rig) ready(name, revision string) source.Source {
	r.t.Helper()
	return source.FromObject(r.until(name, "ready at "+revision, func(u *unstructured.Unstructured) bool {
		s := source.FromObject(u)
		return s.State == source.Ready && s.Artifact != nil && s.Artifact.Revision == revision
	}))
}

// in waits until a source is in a state for a reason.
func (r *rig) in(name, state, reason string) source.Source {
	r.t.Helper()
	return source.FromObject(r.until(name, state+" for "+reason, func(u *unstructured.Unstructured) bool {
		s := source.FromObject(u)
		return s.State == state && s.Reason == reason
	}))
}

// told returns the reasons of the events about a source so far.
func (r *rig) told(name string) (out []string) {
	for {
		select {
		case e := <-r.events:
			if e.Repository == name {
				reason, _, _ := strings.Cut(e.Text, ":")
				out = append(out, reason)
			}
		default:
			return out
		}
	}
}
