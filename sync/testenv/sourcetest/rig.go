// Package sourcetest runs the controllers of sources on an API, for the tests of their kinds.
//
//	rig.go       the controllers, and what is read of the sources
//	registry.go  a registry of containers
package sourcetest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
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
)

// late is how long a source may take to be as it should be.
const late = 60 * time.Second

// Rig are controllers at work on an API. Its methods name a source KIND/NAME, or by its name one of
// the first kind.
type Rig struct {
	T           *testing.T
	Client      *kube.Client
	Namespace   string
	Dir         string // of the artifacts
	Artifacts   *artifact.Store
	Sources     source.Watchers
	References  *dependency.Watcher
	Places      auth.Places
	Controllers map[string]*controller.Controller // by kind
	Changed     chan struct{}                     // gets a value when a source changes
	Spec        map[string]any                    // members of each spec that does not say otherwise

	kind string
}

// Store opens a state file of the test.
func Store(t *testing.T) *state.Store {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limpet.db")
	store, _, err := state.Open(t.Context(), state.Options{Path: path, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// Embedded starts the embedded API.
func Embedded(t *testing.T) kube.Config {
	t.Helper()
	server, err := apiserver.New(Store(t), apiserver.Options{Logger: slog.New(slog.DiscardHandler), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return kube.Config{Server: "http://embedded", Transport: server.Transport()}
}

// Connect returns a client of an API.
func Connect(t *testing.T, cfg kube.Config) *kube.Client {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	client, err := kube.Connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// New returns a Rig without controllers, which watches sources of some kinds.
func New(t *testing.T, cfg kube.Config, namespace string, kinds ...string) *Rig {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	client := Connect(t, cfg)
	r := &Rig{T: t, Client: client, Namespace: namespace, Dir: filepath.Join(t.TempDir(), "artifacts"), kind: kinds[0],
		Controllers: map[string]*controller.Controller{}, Changed: make(chan struct{}, 1), Spec: map[string]any{"interval": "1h"}}
	var err error
	r.Artifacts, err = artifact.Open(t.Context(), artifact.Options{Dir: r.Dir, Store: Store(t), Logger: log,
		URL: "http://artifacts.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range kinds {
		k, _ := api.SourceKind(name)
		r.Sources = append(r.Sources, source.NewWatcher(client, k, namespace, log, func() {
			select {
			case r.Changed <- struct{}{}:
			default:
			}
		}))
	}
	r.References = dependency.New(dependency.Options{Client: client, Logger: log, Wake: func(user dependency.Ref) {
		if c := r.Controllers[user.Kind]; c != nil {
			c.Wake(user.Namespace, user.Name)
		}
	}})
	r.Places = auth.Places{Secrets: dependency.Reader{Client: client, Watcher: r.References}.Secret, Observer: r.References}
	return r
}

// Start starts the controllers of kinds, which have options in common. halt ends them.
func (r *Rig) Start(o controller.Options, kinds ...controller.Kind) (halt func()) {
	o.Client, o.Artifacts, o.References, o.Logger = r.Client, r.Artifacts, r.References, slog.New(slog.DiscardHandler)
	if o.Turns == nil {
		o.Turns = controller.NewTurns(func(string) bool { return false })
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	var parts []func(context.Context) error
	for _, kind := range kinds {
		name := kind.Kind().Kind
		o.Kind, o.Sources = kind, r.Sources.Of(name)
		r.Controllers[name] = controller.New(o)
		parts = append(parts, r.Controllers[name].Run)
	}
	for _, w := range r.Sources {
		r.Run(w.Run)
	}
	r.Run(r.References.Run)
	return r.Run(parts...)
}

// Run runs parts until the test ends, or halt is called.
func (r *Rig) Run(parts ...func(context.Context) error) (halt func()) {
	ctx, cancel := context.WithCancel(r.T.Context())
	var running sync.WaitGroup
	for _, part := range parts {
		running.Go(func() { _ = part(ctx) })
	}
	halt = func() { cancel(); running.Wait() }
	r.T.Cleanup(halt)
	return halt
}

func (r *Rig) split(name string) (api.Kind, string) {
	kind, short, is := strings.Cut(name, "/")
	if !is {
		kind, short = r.kind, name
	}
	k, _ := api.SourceKind(kind)
	return k, short
}

// Apply creates a source or replaces its spec and annotations. Of the spec null removes a member;
// annotations are names and values.
func (r *Rig) Apply(name, spec string, annotations ...string) *unstructured.Unstructured {
	r.T.Helper()
	k, short := r.split(name)
	var more map[string]any
	if err := json.Unmarshal([]byte("{"+spec+"}"), &more); err != nil {
		r.T.Fatal(err)
	}
	members := maps.Clone(r.Spec)
	maps.Copy(members, more)
	maps.DeleteFunc(members, func(_ string, v any) bool { return v == nil })
	metadata := map[string]any{"name": short}
	if len(annotations) > 0 {
		metadata["annotations"] = map[string]any{annotations[0]: annotations[1]}
	}
	return r.put(k.Resource(), map[string]any{"apiVersion": k.APIVersion(), "kind": k.Kind, "metadata": metadata, "spec": members})
}

// Secret creates a Secret or replaces it.
func (r *Rig) Secret(name string, data map[string]any) {
	r.T.Helper()
	r.put(api.Secrets, map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name}, "stringData": data})
}

func (r *Rig) put(resource schema.GroupVersionResource, object map[string]any) *unstructured.Unstructured {
	r.T.Helper()
	u := &unstructured.Unstructured{Object: object}
	u.SetNamespace(r.Namespace)
	made, err := r.Client.Resource(resource).Namespace(r.Namespace).Apply(r.T.Context(), u.GetName(), u,
		metav1.ApplyOptions{FieldManager: "test", Force: true})
	if err != nil {
		r.T.Fatal(err)
	}
	return made
}

// Ask requests a reconcile and waits until it is handled.
func (r *Rig) Ask(name string) source.Source {
	r.T.Helper()
	k, short := r.split(name)
	u, err := source.Reconcile(r.T.Context(), r.Client, k, r.Namespace, short, "")
	if err != nil {
		r.T.Fatal(err)
	}
	return source.FromObject(r.Until(name, "handled", func(o *unstructured.Unstructured) bool {
		return source.Handled(o, source.Asked(u))
	}))
}

// Until waits until a source is as it should be.
func (r *Rig) Until(name, what string, holds func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	r.T.Helper()
	timer := time.NewTimer(late)
	defer timer.Stop()
	k, short := r.split(name)
	for {
		u, _ := r.Sources.Of(k.Kind).Get(r.Namespace, short)
		if u != nil && holds(u) {
			return u
		}
		select {
		case <-r.Changed:
		case <-timer.C:
			status := "none"
			if u != nil {
				data, _ := json.MarshalIndent(u.Object, "", " ")
				status = string(data)
			}
			r.T.Fatalf("%s is not %s: %s", name, what, status)
		}
	}
}

// Ready waits until a source is ready at a revision.
func (r *Rig) Ready(name, revision string) *unstructured.Unstructured {
	r.T.Helper()
	return r.Until(name, "ready at "+revision, func(u *unstructured.Unstructured) bool {
		s := source.FromObject(u)
		return s.State == source.Ready && s.Artifact != nil && s.Artifact.Revision == revision
	})
}

// Status is the status of Ready.
func (r *Rig) Status(name, revision string) map[string]any {
	r.T.Helper()
	return r.Ready(name, revision).Object["status"].(map[string]any)
}

// In waits until a source is in a state for a reason.
func (r *Rig) In(name, state, reason string) source.Source {
	r.T.Helper()
	return source.FromObject(r.Until(name, state+" for "+reason, func(u *unstructured.Unstructured) bool {
		s := source.FromObject(u)
		return s.State == state && s.Reason == reason
	}))
}

// Key is the key of the artifacts of a source.
func (r *Rig) Key(name string) artifact.Key {
	k, short := r.split(name)
	return artifact.KeyOf(k.Kind, r.Namespace, short)
}

// Bytes returns the newest artifact and its bytes.
func (r *Rig) Bytes(name string) (artifact.Artifact, []byte) {
	r.T.Helper()
	a, err := r.Artifacts.Latest(r.T.Context(), r.Key(name))
	if err != nil {
		r.T.Fatal(err)
	}
	f, err := r.Artifacts.OpenFile(r.T.Context(), a)
	if err != nil {
		r.T.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		r.T.Fatal(err)
	}
	return a, data
}

// Files returns the newest artifact and its files; of one that is no archive there are none.
func (r *Rig) Files(name string) (artifact.Artifact, map[string]string) {
	r.T.Helper()
	a, data := r.Bytes(name)
	files := map[string]string{}
	for file, err := range archive.Files(bytes.NewReader(data)) {
		if err != nil {
			r.T.Fatal(err)
		}
		body, _ := io.ReadAll(file)
		files[file.Path] = string(body)
	}
	return a, files
}
