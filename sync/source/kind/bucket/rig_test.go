package bucket_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/apiserver"
	"limpet/sync/auth"
	"limpet/sync/dependency"
	"limpet/sync/identity"
	"limpet/sync/kube"
	"limpet/sync/netx"
	"limpet/sync/source"
	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
	"limpet/sync/source/controller"
	"limpet/sync/source/kind/bucket"
	"limpet/sync/testenv"
)

func TestMain(m *testing.M) {
	if state.RunProbe() {
		return
	}
	os.Exit(testenv.Main(m))
}

var buckets, _ = api.SourceKind("bucket")

// rig is the controller of the kind at work on the embedded API, with a bucket that it reads.
type rig struct {
	*host
	t         *testing.T
	client    *kube.Client
	artifacts *artifact.Store
	sources   *source.Watcher
	control   *controller.Controller
	changed   chan struct{}
	dir       string // of downloads
}

func newRig(t *testing.T) *rig {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	open := func() *state.Store {
		store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(t.TempDir(), "limpet.db"), Version: "test"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		return store
	}
	server, err := apiserver.New(open(), apiserver.Options{Logger: log, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	client, err := kube.Connect(t.Context(), kube.Config{Server: "http://embedded", Transport: server.Transport(), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	r := &rig{t: t, host: newHost(t), client: client, changed: make(chan struct{}, 1), dir: filepath.Join(t.TempDir(), "objects")}
	r.artifacts, err = artifact.Open(t.Context(), artifact.Options{Dir: filepath.Join(t.TempDir(), "artifacts"), Store: open(), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	r.sources = source.NewWatcher(client, buckets, "default", log, func() {
		select {
		case r.changed <- struct{}{}:
		default:
		}
	})
	references := dependency.New(dependency.Options{Client: client, Logger: log,
		Wake: func(user dependency.Ref) { r.control.Wake(user.Namespace, user.Name) }})
	reader := dependency.Reader{Client: client, Watcher: references}
	kind := bucket.New(bucket.Options{Places: auth.Places{Secrets: reader.Secret, Observer: references},
		Identities: identity.New(identity.Options{AllowInsecure: true, Getenv: r.getenv}),
		Client:     &netx.Client{UserAgent: "limpet/test", Transport: r.host}, Artifacts: r.artifacts, Dir: r.dir, MaxBytes: 1 << 20, MaxFiles: 2000})
	r.control = controller.New(controller.Options{Kind: kind, Client: client, Sources: r.sources,
		Turns: controller.NewTurns(func(string) bool { return false }), Artifacts: r.artifacts, References: references, Now: time.Now, Logger: log})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, part := range []func(context.Context) error{r.sources.Run, references.Run, r.control.Run} {
		running.Go(func() { _ = part(ctx) })
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	r.secret("keys", map[string]any{"accesskey": access, "secretkey": secret})
	return r
}

func (r *rig) secret(name string, data map[string]any) {
	r.t.Helper()
	r.put(api.Secrets, map[string]any{"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"name": name, "namespace": "default"}, "stringData": data})
}

// apply creates a source or replaces its spec.
func (r *rig) apply(name, spec string) {
	r.t.Helper()
	members := map[string]any{"endpoint": r.Listener.Addr().String(), "bucketName": "site", "interval": "1h", "insecure": true,
		"secretRef": map[string]any{"name": "keys"}}
	var more map[string]any
	if err := json.Unmarshal([]byte("{"+spec+"}"), &more); err != nil {
		r.t.Fatal(err)
	}
	maps.Copy(members, more)
	maps.DeleteFunc(members, func(_ string, v any) bool { return v == nil })
	r.put(api.Buckets, map[string]any{"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "Bucket",
		"metadata": map[string]any{"name": name, "namespace": "default"}, "spec": members})
}

func (r *rig) put(resource schema.GroupVersionResource, object map[string]any) {
	r.t.Helper()
	u := &unstructured.Unstructured{Object: object}
	if _, err := r.client.Resource(resource).Namespace("default").Apply(r.t.Context(), u.GetName(), u,
		metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
		r.t.Fatal(err)
	}
}

// ask requests a reconcile, waits until it is handled, and returns the requests that it has sent.
func (r *rig) ask(name string) []string {
	r.t.Helper()
	r.take()
	u, err := source.Reconcile(r.t.Context(), r.client, buckets, "default", name, "")
	if err != nil {
		r.t.Fatal(err)
	}
	r.until(name, "handled", func(o *unstructured.Unstructured) bool { return source.Handled(o, source.Asked(u)) })
	return r.take()
}

// until waits until a source is as it should be.
func (r *rig) until(name, what string, holds func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	r.t.Helper()
	late := time.NewTimer(30 * time.Second)
	defer late.Stop()
	for {
		u, _ := r.sources.Get("default", name)
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

// ready waits until a source is ready at what the bucket holds below a prefix, and returns its files.
func (r *rig) ready(name, prefix string, without ...string) map[string]string {
	r.t.Helper()
	want := r.revision(prefix, without...)
	r.until(name, "ready at "+want, func(u *unstructured.Unstructured) bool {
		s := source.FromObject(u)
		return s.State == source.Ready && s.Artifact != nil && s.Artifact.Revision == want
	})
	_, files := r.latest(name)
	return files
}

// in waits until a source is in a state for a reason.
func (r *rig) in(name, state, reason string) source.Source {
	r.t.Helper()
	return source.FromObject(r.until(name, state+" for "+reason, func(u *unstructured.Unstructured) bool {
		s := source.FromObject(u)
		return s.State == state && s.Reason == reason
	}))
}

// latest returns the newest artifact and its files.
func (r *rig) latest(name string) (artifact.Artifact, map[string]string) {
	r.t.Helper()
	a, err := r.artifacts.Latest(r.t.Context(), artifact.KeyOf("Bucket", "default", name))
	if err != nil {
		r.t.Fatal(err)
	}
	f, err := r.artifacts.OpenFile(r.t.Context(), a)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	files := map[string]string{}
	for file, err := range archive.Files(f) {
		if err != nil {
			r.t.Fatal(err)
		}
		data, _ := io.ReadAll(file)
		files[file.Path] = string(data)
	}
	return a, files
}
