package ocirepository_test

import (
	"context"
	"encoding/json"
	"errors"
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
	"limpet/sync/kube"
	"limpet/sync/source"
	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
	"limpet/sync/source/controller"
	"limpet/sync/source/kind/ocirepository"
	"limpet/sync/testenv"
)

var ociRepository, _ = api.SourceKind("ocirepository")

func TestMain(m *testing.M) {
	if state.RunProbe() {
		return
	}
	os.Exit(testenv.Main(m))
}

// rig is the controller of the kind at work on the embedded API.
type rig struct {
	t         *testing.T
	client    *kube.Client
	artifacts *artifact.Store
	sources   *source.Watcher
	control   *controller.Controller
	changed   chan struct{}
	url       string // of sources that name none
	layouts   string // directory below which layouts may be
	layers    string // directory of downloads that have not ended
}

func newRig(t *testing.T, url string, mirrors ...string) *rig {
	t.Helper()
	before, err := ocirepository.ParseMirrors(mirrors)
	if err != nil {
		t.Fatal(err)
	}
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
	r := &rig{t: t, client: client, changed: make(chan struct{}, 1), url: url, layouts: t.TempDir(), layers: t.TempDir()}
	r.artifacts, err = artifact.Open(t.Context(), artifact.Options{Dir: filepath.Join(t.TempDir(), "artifacts"), Store: open(), Logger: log,
		URL: "http://artifacts.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	r.sources = source.NewWatcher(client, ociRepository, "default", log, func() {
		select {
		case r.changed <- struct{}{}:
		default:
		}
	})
	references := dependency.New(dependency.Options{Client: client, Logger: log,
		Wake: func(user dependency.Ref) { r.control.Wake(user.Namespace, user.Name) }})
	reader := dependency.Reader{Client: client, Watcher: references}
	kind := ocirepository.New(ocirepository.Options{Places: auth.Places{Secrets: reader.Secret, Observer: references},
		PullSecrets: func(_ context.Context, _, account string) ([]string, error) {
			if account != "robot" {
				return nil, errors.New("there is no such service account")
			}
			return []string{"other", "login"}, nil
		},
		Mirrors: before, AllowLocal: []string{r.layouts}, Dir: r.layers, MaxBytes: 1 << 20, MaxFiles: 1000, UserAgent: "limpet/test"})
	r.control = controller.New(controller.Options{Kind: kind, Client: client, Sources: r.sources,
		Turns: controller.NewTurns(func(string) bool { return false }), Artifacts: r.artifacts, References: references, Now: time.Now, Logger: log,
		SinkPrefixes: []string{r.layouts}, MaxBytes: 1 << 20})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, part := range []func(context.Context) error{r.sources.Run, references.Run, r.control.Run} {
		running.Go(func() { _ = part(ctx) })
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	return r
}

// apply creates a source or replaces its spec.
func (r *rig) apply(name, spec string) {
	r.t.Helper()
	members := map[string]any{"url": r.url, "interval": "1h", "insecure": true}
	var more map[string]any
	if err := json.Unmarshal([]byte("{"+spec+"}"), &more); err != nil {
		r.t.Fatal(err)
	}
	maps.Copy(members, more)
	r.put(api.OCIRepositories, map[string]any{"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "OCIRepository",
		"metadata": map[string]any{"name": name, "namespace": "default"}, "spec": members})
}

func (r *rig) secret(name string, data map[string]any) {
	r.t.Helper()
	r.put(api.Secrets, map[string]any{"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"name": name, "namespace": "default"}, "stringData": data})
}

func (r *rig) put(resource schema.GroupVersionResource, object map[string]any) {
	r.t.Helper()
	u := &unstructured.Unstructured{Object: object}
	if _, err := r.client.Resource(resource).Namespace("default").Apply(r.t.Context(), u.GetName(), u,
		metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
		r.t.Fatal(err)
	}
}

// ask requests a reconcile and waits until it is handled.
func (r *rig) ask(name string) source.Source {
	r.t.Helper()
	u, err := source.Reconcile(r.t.Context(), r.client, ociRepository, "default", name, "")
	if err != nil {
		r.t.Fatal(err)
	}
	return source.FromObject(r.until(name, "handled", func(o *unstructured.Unstructured) bool { return source.Handled(o, source.Asked(u)) }))
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

// ready waits until a source is ready at a revision and returns its status.
func (r *rig) ready(name, revision string) map[string]any {
	r.t.Helper()
	u := r.until(name, "ready at "+revision, func(u *unstructured.Unstructured) bool {
		s := source.FromObject(u)
		return s.State == source.Ready && s.Artifact != nil && s.Artifact.Revision == revision
	})
	return u.Object["status"].(map[string]any)
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
	a, err := r.artifacts.Latest(r.t.Context(), artifact.Key{Kind: "ocirepository", Namespace: "default", Name: name})
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
