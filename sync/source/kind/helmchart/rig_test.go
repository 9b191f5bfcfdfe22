package helmchart_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/netx"
	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
	"limpet/sync/source/controller"
	"limpet/sync/source/kind/helmchart"
	"limpet/sync/source/kind/helmrepository"
	"limpet/sync/source/kind/ocirepository"
	"limpet/sync/testenv"
	"limpet/sync/testenv/sourcetest"
)

func TestMain(m *testing.M) {
	if state.RunProbe() {
		return
	}
	os.Exit(testenv.Main(m))
}

// rig are the controllers of both kinds.
type rig struct {
	*sourcetest.Rig
	local string // directory below which repositories may be
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{sourcetest.New(t, sourcetest.Embedded(t), "default", "HelmChart", "HelmRepository", "GitRepository", "Bucket"), t.TempDir()}
	dir := filepath.Join(t.TempDir(), "layers")
	client := &helmrepository.Client{Places: r.Places, Credentials: r.Places.WithTransport(r.Places.NamedSecret()),
		HTTP: &netx.Client{UserAgent: "limpet/test"}, AllowLocal: []string{r.local}}
	r.Start(controller.Options{}, helmrepository.New(helmrepository.Options{Client: client, Dir: dir, MaxBytes: 1 << 20}),
		helmchart.New(helmchart.Options{Sources: r.Sources, Artifacts: r.Artifacts, References: r.References, Client: client, Dir: dir,
			Registries: ocirepository.New(ocirepository.Options{Places: r.Places, Dir: dir, MaxBytes: 1 << 20, UserAgent: "limpet/test"})}))
	return r
}

// tree stores files as the artifact of a source, KIND/NAME, which no controller reconciles here.
func (r *rig) tree(of, revision string, files map[string]string) {
	r.T.Helper()
	r.Apply(of, map[bool]string{true: `"bucketName":"site","endpoint":"s3.example.com"`, false: `"url":"https://git.example.com/site.git"`}[of[0] == 'B'])
	u := r.Until(of, "there", func(*unstructured.Unstructured) bool { return true })
	kind, name, _ := strings.Cut(of, "/")
	_, err := r.Artifacts.Put(r.T.Context(), artifact.Artifact{Kind: strings.ToLower(kind), Namespace: "default", Name: name, UID: string(u.GetUID()),
		Revision: revision}, func(w io.Writer) (archive.Digests, error) {
		return archive.Pack(r.T.Context(), w, func(add func(string, int64, io.Reader) error) error {
			for _, name := range slices.Sorted(maps.Keys(files)) {
				if err := add(name, int64(len(files[name])), strings.NewReader(files[name])); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		r.T.Fatal(err)
	}
}

// chart is the Chart.yaml of a version.
func chart(name, version string) string {
	return fmt.Sprintf("apiVersion: v2\nname: %s\nversion: %s # of a comment\nappVersion: \"1.0\"\n", name, version)
}

// host is a Helm repository.
type host struct {
	*httptest.Server

	mu    sync.Mutex // guards what follows
	files map[string][]byte
	index []string // versions of site
	login string   // user:password; "" = none is demanded
	seen  []string // requests, with the status of their answers
}

func newHost(t *testing.T) *host {
	h := &host{files: map[string][]byte{}}
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
	h.seen = append(h.seen, fmt.Sprint(r.URL.RequestURI(), " ", user, " ", status))
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
	all := map[string]string{"site/Chart.yaml": chart("site", version), "site/values.yaml": "replicas: 1\nimage: {tag: a, name: b}\n",
		"site/templates/a.yaml": "kind: ConfigMap"}
	maps.Copy(all, files)
	body := sourcetest.Tarball(all)
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
