package dependency

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/apiserver"
	"limpet/sync/kube"
	"limpet/sync/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// canary is the value of all Secrets. It must not travel.
const canary = "s3cr3t-of-the-canary"

// rig is a Watcher at work on one of the two APIs. The API machinery serves no
// Secrets; Connections stand for them there.
type rig struct {
	t         *testing.T
	resource  schema.GroupVersionResource
	namespace string
	client    *kube.Client // of the test
	w         *Watcher
	told      chan Ref
	wire      *wiretap
	log       *logText
	idle      bool // do not Run
}

// wiretap looks for the canary in what a Watcher receives, and counts its requests.
type wiretap struct {
	next  http.RoundTripper
	seen  atomic.Bool
	mu    sync.Mutex // guards asked
	asked []string
}

func (w *wiretap) RoundTrip(req *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.asked = append(w.asked, fmt.Sprintf("%s %s", req.URL.Path, req.URL.Query().Get("fieldSelector")))
	w.mu.Unlock()
	resp, err := w.next.RoundTrip(req)
	if err == nil {
		resp.Body = &tapped{ReadCloser: resp.Body, wire: w}
	}
	return resp, err
}

func (w *wiretap) requests() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked)
}

type tapped struct {
	io.ReadCloser
	wire *wiretap
	tail []byte
}

func (b *tapped) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.tail = append(b.tail[max(0, len(b.tail)-2*len(canary)):], p[:n]...)
	if bytes.Contains(b.tail, []byte(canary)) || bytes.Contains(b.tail, []byte(base64.StdEncoding.EncodeToString([]byte(canary)))) {
		b.wire.seen.Store(true)
	}
	return n, err
}

// logText collects what is logged.
type logText struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

var namespaces atomic.Int64

func newRig(t *testing.T, server string, change func(*rig)) *rig {
	t.Helper()
	r := &rig{t: t, resource: api.Secrets, namespace: fmt.Sprintf("refs-%d", namespaces.Add(1)), told: make(chan Ref, 64), log: &logText{}}
	var base string
	var transport http.RoundTripper
	switch server {
	case "embedded":
		store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(t.TempDir(), "limpet.db")})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		s, err := apiserver.New(store, apiserver.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		web := httptest.NewServer(s)
		t.Cleanup(func() { s.Close(); web.Close() })
		base, transport = web.URL, http.DefaultTransport
	case "real":
		s := testenv.Real(t)
		r.resource, base, transport = api.Connections, s.URL, s.Client(t).Transport
	case "denied":
		s := testenv.Start(t, testenv.Options{Deny: []string{"watch connections *"}})
		r.resource, base, transport = api.Connections, s.URL, s.Client(t).Transport
	}
	connect := func(next http.RoundTripper) *kube.Client {
		c, err := kube.Connect(t.Context(), kube.Config{Server: base, Transport: next, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	r.client, r.wire = connect(transport), &wiretap{next: transport}
	r.w = New(Options{Wake: func(user Ref) { r.told <- user }, Client: connect(r.wire), Logger: slog.New(slog.NewTextHandler(r.log, nil))})
	r.w.resource = r.resource
	if change != nil {
		change(r)
	}
	if r.idle {
		return r
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if r.wire.seen.Load() {
			t.Error("the value of a Secret was received")
		}
	})
	return r
}

func (r *rig) ref(kind, name string) Ref { return Ref{kind, r.namespace, name} }

// put creates or changes a Secret.
func (r *rig) put(name, value string) {
	r.t.Helper()
	res := r.client.Resource(r.resource).Namespace(r.namespace)
	u := &unstructured.Unstructured{Object: map[string]any{"stringData": map[string]any{"token": canary, "value": value}}}
	u.SetAPIVersion("v1")
	u.SetKind("Secret")
	if r.resource == api.Connections {
		u.Object = map[string]any{"spec": map[string]any{"title": canary + value, "type": "gitlab", "gitlab": map[string]any{"clientID": canary}}}
		u.SetAPIVersion(api.Connections.GroupVersion().String())
		u.SetKind("Connection")
	}
	u.SetName(name)
	data, err := u.MarshalJSON()
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := res.Patch(r.t.Context(), name, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: "test"}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) remove(name string) {
	r.t.Helper()
	if err := r.client.Resource(r.resource).Namespace(r.namespace).Delete(r.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// knows waits until there is a version of all of the Secrets.
func (r *rig) knows(names ...string) {
	r.t.Helper()
	deadline, tick := time.After(20*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for {
		r.w.registry.mu.Lock()
		known := !slices.ContainsFunc(names, func(name string) bool { _, ok := r.w.registry.seen[r.ref(Secret, name)]; return !ok })
		r.w.registry.mu.Unlock()
		if known {
			return
		}
		select {
		case <-deadline:
			r.t.Fatalf("timed out: nothing is known of %v; asked %q", names, r.wire.requests())
		case <-tick.C:
		}
	}
}

// tells waits until these are told, in order, and nobody else is meanwhile.
func (r *rig) tells(what string, want ...Ref) {
	r.t.Helper()
	for _, user := range want {
		select {
		case got := <-r.told:
			if got != user {
				r.t.Fatalf("%s: told %v, want %v", what, got, user)
			}
		case <-time.After(10 * time.Second):
			r.t.Fatalf("%s: %v is not told", what, user)
		}
	}
}

// read reads a Secret as who uses it does.
func (r *rig) read(name string) {
	r.t.Helper()
	u, err := r.client.Resource(r.resource).Namespace(r.namespace).Get(r.t.Context(), name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		r.w.Observe(r.ref(Secret, name), "")
	case err != nil:
		r.t.Fatal(err)
	default:
		r.w.Observe(r.ref(Secret, name), kube.ObjectVersionOf(u).Version)
	}
}
