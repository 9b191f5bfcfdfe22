package dependency

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
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

// rig is a Watcher at work on one of the two APIs. The API machinery serves no Secrets;
// Connections stand for them there.
type rig struct {
	t         *testing.T
	namespace string
	client    *kube.Client // of the test
	w         *Watcher
	woken     chan Ref

	mu        sync.Mutex // guards what follows
	requests  []string   // of the Watcher
	transport http.RoundTripper
	log       bytes.Buffer
}

// RoundTrip notes the requests of the Watcher, and looks for the canary in the answers.
func (r *rig) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.requests = append(r.requests, req.URL.Path+" "+req.URL.Query().Get("fieldSelector"))
	r.mu.Unlock()
	resp, err := r.transport.RoundTrip(req)
	if err == nil {
		resp.Body = &canaryReader{ReadCloser: resp.Body, t: r.t}
	}
	return resp, err
}

// Write collects the log.
func (r *rig) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

// seen returns the requests, and how often the log says that Secrets may not be watched.
func (r *rig) seen() (requests []string, denied int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests), strings.Count(r.log.String(), "may not be watched")
}

type canaryReader struct {
	io.ReadCloser
	t    *testing.T
	tail []byte
}

func (c *canaryReader) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.tail = append(c.tail[max(0, len(c.tail)-2*len(canary)):], p[:n]...)
	if bytes.Contains(c.tail, []byte(canary)) || bytes.Contains(c.tail, []byte(base64.StdEncoding.EncodeToString([]byte(canary)))) {
		c.t.Error("the value of a Secret was received")
	}
	return n, err
}

var namespaces atomic.Int64

// newRig makes a rig; begin runs its Watcher until the test ends.
func newRig(t *testing.T, server string) *rig {
	t.Helper()
	r := &rig{t: t, namespace: fmt.Sprintf("refs-%d", namespaces.Add(1)), woken: make(chan Ref, 64)}
	base, resource := "http://embedded", api.Connections
	switch server {
	case "embedded":
		store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(t.TempDir(), "limpet.db")})
		if err != nil {
			t.Fatal(err)
		}
		s, err := apiserver.New(store, apiserver.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close(); store.Close() })
		r.transport, resource = s.Transport(), api.Secrets
	case "real":
		s := testenv.Real(t)
		base, r.transport = s.URL, s.Client(t).Transport
	case "denied":
		s := testenv.Start(t, testenv.Options{Deny: []string{"watch connections *"}})
		base, r.transport = s.URL, s.Client(t).Transport
	}
	connect := func(next http.RoundTripper) *kube.Client {
		c, err := kube.Connect(t.Context(), kube.Config{Server: base, Transport: next, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	r.client = connect(r.transport)
	r.w = New(Options{Wake: func(user Ref) { r.woken <- user }, Client: connect(r), Logger: slog.New(slog.NewTextHandler(r, nil))})
	r.w.resource = resource
	return r
}

func (r *rig) begin() *rig {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.w.Run(ctx) }()
	r.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	})
	return r
}

func (r *rig) ref(kind, name string) Ref { return Ref{kind, r.namespace, name} }

// put creates or changes a Secret.
func (r *rig) put(name, value string) {
	r.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"stringData": map[string]any{"token": canary, "value": value}}}
	u.SetAPIVersion("v1")
	u.SetKind("Secret")
	if r.w.resource == api.Connections {
		u.Object = map[string]any{"spec": map[string]any{"title": canary + value, "type": "gitlab", "gitlab": map[string]any{"clientID": canary}}}
		u.SetAPIVersion(api.Connections.GroupVersion().String())
		u.SetKind("Connection")
	}
	u.SetName(name)
	data, err := u.MarshalJSON()
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.client.Resource(r.w.resource).Namespace(r.namespace).Patch(r.t.Context(), name, types.ApplyPatchType, data,
		metav1.PatchOptions{FieldManager: "test"}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) remove(name string) {
	r.t.Helper()
	if err := r.client.Resource(r.w.resource).Namespace(r.namespace).Delete(r.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// read reads a Secret as its users do.
func (r *rig) read(name string) {
	r.t.Helper()
	u, err := r.client.Resource(r.w.resource).Namespace(r.namespace).Get(r.t.Context(), name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		r.w.Observe(r.ref(Secret, name), "")
	case err != nil:
		r.t.Fatal(err)
	default:
		r.w.Observe(r.ref(Secret, name), kube.ObjectVersionOf(u).Version)
	}
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	deadline, tick := time.After(20*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			requests, _ := r.seen()
			r.t.Fatalf("timed out: %s; requests %q", what, requests)
		case <-tick.C:
		}
	}
}

// knows waits until a version of all of the Secrets was observed.
func (r *rig) knows(names ...string) {
	r.t.Helper()
	r.eventually(fmt.Sprint("nothing is known of ", names), func() bool {
		r.w.registry.mu.Lock()
		defer r.w.registry.mu.Unlock()
		return !slices.ContainsFunc(names, func(name string) bool { _, ok := r.w.registry.seen[r.ref(Secret, name)]; return !ok })
	})
}

// wakes waits until these are woken, in order, and no others meanwhile.
func (r *rig) wakes(what string, want ...Ref) {
	r.t.Helper()
	for _, user := range want {
		select {
		case got := <-r.woken:
			if got != user {
				r.t.Fatalf("%s: woke %v, want %v", what, got, user)
			}
		case <-time.After(10 * time.Second):
			r.t.Fatalf("%s: %v is not woken", what, user)
		}
	}
}

// TestSecrets: a Secret that is created, changed or deleted wakes its users, and no other
// one does, whether a few are watched by name or many together. Values do not travel, and
// an idle Watcher makes no request.
func TestSecrets(t *testing.T) {
	t.Parallel()
	for _, server := range []string{"embedded", "real"} {
		for _, number := range []int{1, maxNamed + 2} {
			t.Run(fmt.Sprintf("%s %d", server, number), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, server).begin()
				site, link := r.ref(Repository, "site"), r.ref(Connection, "link")
				r.put("s0", "1")
				r.put("stranger", "1")
				var names []string
				var refs []Ref
				for n := range number {
					names = append(names, fmt.Sprint("s", n))
					refs = append(refs, r.ref(Secret, names[n]))
				}
				r.w.Use(site, refs...)
				r.w.Use(link, refs[0])
				r.knows(names...)
				at := "/namespaces/" + r.namespace + "/" + r.w.resource.Resource + " "
				if number == 1 {
					at += "metadata.name=s0"
				}
				if requests, _ := r.seen(); len(requests) != 1 || !strings.HasSuffix(requests[0], at) {
					t.Errorf("requests %q", requests)
				}
				r.put("stranger", "2")
				r.put("s0", "2")
				r.wakes("changed", link, site)
				r.remove("s0")
				r.wakes("deleted", link, site)
				r.remove("stranger")
				r.put("s0", "3")
				r.wakes("created", link, site)
				r.w.Use(link)
				r.put("s0", "4")
				r.wakes("changed for one", site)
				if requests, _ := r.seen(); len(requests) != 1 {
					t.Errorf("requests %q", requests)
				}
			})
		}
	}
}

// TestReadBeforeTheWatch: what has changed between a reader and the first stream, or
// between two streams, wakes its users; what has not does not.
func TestReadBeforeTheWatch(t *testing.T) {
	t.Parallel()
	for _, server := range []string{"embedded", "real"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, server)
			for _, name := range []string{"changed", "deleted", "same"} {
				r.put(name, "1")
			}
			for _, name := range []string{"changed", "created", "deleted", "same"} {
				r.w.Use(r.ref(Repository, name), r.ref(Secret, name))
				r.read(name)
			}
			r.put("changed", "2")
			r.put("created", "1")
			r.remove("deleted")
			r.begin()
			r.wakes("between", r.ref(Repository, "changed"), r.ref(Repository, "created"), r.ref(Repository, "deleted"))
			r.put("same", "2")
			r.wakes("afterwards", r.ref(Repository, "same"))
		})
	}
}

// TestSecretsThatMayNotBeWatched: it is logged once, the server gets no more requests, and
// a reader of a change wakes all others.
func TestSecretsThatMayNotBeWatched(t *testing.T) {
	t.Parallel()
	r := newRig(t, "denied").begin()
	site, other := r.ref(Repository, "site"), r.ref(Repository, "other")
	r.put("a", "1")
	r.w.Use(site, r.ref(Secret, "a"), r.ref(Secret, "b"))
	r.read("a")
	r.w.Use(other, r.ref(Secret, "a"))
	r.eventually("it is not logged", func() bool { requests, denied := r.seen(); return len(requests) == 2 && denied > 0 })
	r.put("a", "2")
	r.read("a")
	r.wakes("read", other, site)
	if requests, denied := r.seen(); len(requests) != 2 || denied != 1 {
		t.Errorf("requests %q, logged %d times", requests, denied)
	}
}
