package helmchart_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
	"limpet/sync/netx"
	"limpet/sync/source"
	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
	"limpet/sync/source/controller"
	"limpet/sync/source/kind/helmchart"
	"limpet/sync/source/kind/helmrepository"
	"limpet/sync/source/kind/ocirepository"
	"limpet/sync/testenv"
)

func TestMain(m *testing.M) {
	if state.RunProbe() {
		return
	}
	os.Exit(testenv.Main(m))
}

// rig are the controllers of both kinds at work on the embedded API.
type rig struct {
	t         *testing.T
	client    *kube.Client
	artifacts *artifact.Store
	sources   source.Watchers
	controls  map[string]*controller.Controller
	changed   chan struct{}
	local     string // directory below which repositories may be
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
	r := &rig{t: t, client: client, changed: make(chan struct{}, 1), local: t.TempDir(), controls: map[string]*controller.Controller{}}
	r.artifacts, err = artifact.Open(t.Context(), artifact.Options{Dir: filepath.Join(t.TempDir(), "artifacts"), Store: open(), Logger: log,
		URL: "http://artifacts.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	references := dependency.New(dependency.Options{Client: client, Logger: log, Wake: func(user dependency.Ref) {
		if c := r.controls[user.Kind]; c != nil {
			c.Wake(user.Namespace, user.Name)
		}
	}})
	for _, k := range api.SourceKinds() {
		r.sources = append(r.sources, source.NewWatcher(client, k, "default", log, func() {
			select {
			case r.changed <- struct{}{}:
			default:
			}
		}))
	}
	places := auth.Places{Secrets: dependency.Reader{Client: client, Watcher: references}.Secret, Observer: references}
	dir := filepath.Join(t.TempDir(), "layers")
	repositories := &helmrepository.Client{Places: places, Credentials: places.WithTransport(places.NamedSecret()), HTTP: &netx.Client{UserAgent: "limpet/test"}, AllowLocal: []string{r.local}}
	turns := controller.NewTurns(func(string) bool { return false })
	parts := []func(context.Context) error{references.Run}
	for _, kind := range []controller.Kind{
		helmrepository.New(helmrepository.Options{Client: repositories, Dir: dir, MaxBytes: 1 << 20}),
		helmchart.New(helmchart.Options{Sources: r.sources, Artifacts: r.artifacts, References: references, Client: repositories, Dir: dir,
			Registries: ocirepository.New(ocirepository.Options{Places: places, Dir: dir, MaxBytes: 1 << 20, UserAgent: "limpet/test"})}),
	} {
		name := kind.Kind().Kind
		c := controller.New(controller.Options{Kind: kind, Client: client, Sources: r.sources.Of(name), Turns: turns, Artifacts: r.artifacts,
			References: references, Now: time.Now, Logger: log})
		r.controls[name], parts = c, append(parts, c.Run)
	}
	for _, w := range r.sources {
		parts = append(parts, w.Run)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, part := range parts {
		running.Go(func() { _ = part(ctx) })
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	return r
}

// apply creates an object or replaces its spec and annotations. name is KIND/NAME.
func (r *rig) apply(name, spec string, annotations ...string) {
	r.t.Helper()
	kind, name, _ := strings.Cut(name, "/")
	k, _ := api.SourceKind(kind)
	members := map[string]any{"interval": "1h"}
	var more map[string]any
	if err := json.Unmarshal([]byte("{"+spec+"}"), &more); err != nil {
		r.t.Fatal(err)
	}
	maps.Copy(members, more)
	metadata := map[string]any{"name": name, "namespace": "default"}
	if len(annotations) > 0 {
		metadata["annotations"] = map[string]any{annotations[0]: "true"}
	}
	r.put(k.Resource(), map[string]any{"apiVersion": k.APIVersion(), "kind": k.Kind, "metadata": metadata, "spec": members})
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

// tree stores files as the artifact of a source, KIND/NAME, which no controller reconciles here.
func (r *rig) tree(of, revision string, files map[string]string) {
	r.t.Helper()
	r.apply(of, map[bool]string{true: `"bucketName":"site","endpoint":"s3.example.com"`, false: `"url":"https://git.example.com/site.git"`}[of[0] == 'B'])
	u := r.until(of, "there", func(*unstructured.Unstructured) bool { return true })
	kind, name, _ := strings.Cut(of, "/")
	_, err := r.artifacts.Put(r.t.Context(), artifact.Artifact{Kind: strings.ToLower(kind), Namespace: "default", Name: name, UID: string(u.GetUID()),
		Revision: revision}, func(w io.Writer) (archive.Digests, error) {
		return archive.Pack(w, func(add func(string, int64, io.Reader) error) error {
			for _, name := range slices.Sorted(maps.Keys(files)) {
				if err := add(name, int64(len(files[name])), strings.NewReader(files[name])); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// ask requests a reconcile and waits until it is handled.
func (r *rig) ask(name string) source.Source {
	r.t.Helper()
	kind, short, _ := strings.Cut(name, "/")
	k, _ := api.SourceKind(kind)
	u, err := source.Reconcile(r.t.Context(), r.client, k, "default", short, "")
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
	kind, short, _ := strings.Cut(name, "/")
	for {
		u, _ := r.sources.Of(kind).Get("default", short)
		if u != nil && holds(u) {
			return u
		}
		select {
		case <-r.changed:
		case <-late.C:
			status := "none"
			if u != nil {
				data, _ := json.MarshalIndent(u.Object, "", " ")
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

// bytes returns the newest artifact and its bytes.
func (r *rig) bytes(name string) (artifact.Artifact, []byte) {
	r.t.Helper()
	kind, short, _ := strings.Cut(name, "/")
	a, err := r.artifacts.Latest(r.t.Context(), artifact.KeyOf(kind, "default", short))
	if err != nil {
		r.t.Fatal(err)
	}
	f, err := r.artifacts.OpenFile(r.t.Context(), a)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		r.t.Fatal(err)
	}
	return a, data
}

// files returns the files of the newest artifact.
func (r *rig) files(name string) map[string]string {
	r.t.Helper()
	_, data := r.bytes(name)
	files := map[string]string{}
	for file, err := range archive.Files(bytes.NewReader(data)) {
		if err != nil {
			r.t.Fatal(err)
		}
		body, _ := io.ReadAll(file)
		files[file.Path] = string(body)
	}
	return files
}

// chart is the Chart.yaml of a version.
func chart(name, version string) string {
	return fmt.Sprintf("apiVersion: v2\nname: %s\nversion: %s # of a comment\nappVersion: \"1.0\"\n", name, version)
}

// pack makes a chart as other tools do.
func pack(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(files[name]))}
		if target, link := strings.CutPrefix(files[name], "-> "); link {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, target, 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			_, _ = w.Write([]byte(files[name]))
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// host is a Helm repository.
type host struct {
	*httptest.Server
	t *testing.T

	mu    sync.Mutex // guards what follows
	files map[string][]byte
	index []string // versions of site
	login string   // user:password; "" = none is demanded
	seen  []string // requests, with the status of their answers
}

func newHost(t *testing.T) *host {
	h := &host{t: t, files: map[string][]byte{}}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

func (h *host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	status := http.StatusOK
	user, password, _ := r.BasicAuth()
	body, ok := h.files[r.URL.Path]
	tag := `"` + digest(body) + `"`
	switch {
	case h.login != "" && user+":"+password != h.login:
		status = http.StatusUnauthorized
	case !ok:
		status = http.StatusNotFound
	case r.Header.Get("If-None-Match") == tag:
		status = http.StatusNotModified
	}
	h.seen = append(h.seen, fmt.Sprint(r.URL.Path, " ", user, " ", status))
	w.Header().Set("ETag", tag)
	if w.WriteHeader(status); status == http.StatusOK {
		_, _ = w.Write(body)
	}
}

// take returns the requests since the last call.
func (h *host) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.seen
	h.seen = nil
	return out
}

// serve replaces a file.
func (h *host) serve(path string, body []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.files[path] = body
}

// publish adds a version of the chart site, with an index in which it has a digest, "" for its own.
func (h *host) publish(version, sum string, files map[string]string) []byte {
	h.t.Helper()
	all := map[string]string{"site/Chart.yaml": chart("site", version), "site/values.yaml": "replicas: 1\nimage: {tag: a, name: b}\n",
		"site/templates/a.yaml": "kind: ConfigMap"}
	maps.Copy(all, files)
	body := pack(h.t, all)
	if sum == "" {
		sum = digest(body)
	}
	h.serve("/site-"+version+".tgz", body)
	h.index = append(h.index, fmt.Sprintf("  - apiVersion: v2\n    created: \"2026-01-01T00:00:00Z\"\n    digest: %s\n    name: site\n"+
		"    urls:\n    - site-%s.tgz\n    version: %s\n", sum, version, version))
	h.serve("/index.yaml", []byte("apiVersion: v1\nentries:\n  other:\n  - name: other\n    version: 1.0.0\n    apiVersion: v1\n  site:\n"+
		strings.Join(h.index, "")+"generated: \"2026-01-01T00:00:00Z\"\n"))
	return body
}

func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// registry is a registry of containers with one repository, charts/site.
type registry struct {
	*httptest.Server
	t *testing.T

	mu    sync.Mutex // guards what follows
	tags  map[string][]byte
	blob  map[string][]byte
	login string // user:password; "" = none is demanded
	seen  []string
}

func newRegistry(t *testing.T) *registry {
	h := &registry{t: t, tags: map[string][]byte{}, blob: map[string][]byte{}}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

func (h *registry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := strings.TrimPrefix(r.URL.Path, "/v2/charts/site/")
	kind, at, _ := strings.Cut(name, "/")
	if user, password, _ := r.BasicAuth(); h.login != "" && user+":"+password != h.login {
		w.Header().Set("WWW-Authenticate", `Basic realm="charts"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	h.seen = append(h.seen, r.Method+" "+at)
	body, ok := h.blob[at]
	if kind == "manifests" && !ok {
		body, ok = h.tags[at]
	}
	switch {
	case name == "tags/list":
		_ = json.NewEncoder(w).Encode(map[string]any{"name": "charts/site", "tags": slices.Sorted(maps.Keys(h.tags))})
		return
	case !ok:
		w.WriteHeader(http.StatusNotFound)
		return
	case kind == "manifests":
		w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		w.Header().Set("Docker-Content-Digest", "sha256:"+digest(body))
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}

// push adds a chart at a tag and returns its digest.
func (h *registry) push(tag string, body []byte) string {
	sum := "sha256:" + digest(body)
	manifest := fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","layers":[{"mediaType":`+
		`"application/vnd.cncf.helm.chart.content.v1.tar+gzip","digest":%q,"size":%d}]}`, sum, len(body))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tags[tag], h.blob["sha256:"+digest(manifest)], h.blob[sum] = manifest, manifest, body
	return sum
}

// take returns the requests since the last call.
func (h *registry) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.seen
	h.seen = nil
	return out
}
