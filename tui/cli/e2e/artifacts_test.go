package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
	"limpet/sync/source"
	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// servedArtifact is that of the status of a source.
type servedArtifact struct{ URL, Revision, Digest, Path string }

func (h *home) artifact(t *testing.T, name string) (a servedArtifact) {
	t.Helper()
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct{ Artifact servedArtifact }
		}
	}
	if err := json.Unmarshal([]byte(h.must(t, 0, "get", "gitrepositories", "-n", "default", "-o", "json").out), &list); err != nil {
		t.Fatal(err)
	}
	for _, item := range list.Items {
		if item.Metadata.Name == name {
			a = item.Status.Artifact
		}
	}
	return a
}

// published returns the ExternalArtifact of a Repository that asks for one.
func (h *home) published(t *testing.T, url string) (a servedArtifact) {
	t.Helper()
	h.must(t, 0, "apply", "-f", h.file(t, "published.yaml", fmt.Sprintf(`apiVersion: provisioning.grafana.app/v0alpha1
kind: Repository
metadata: {name: published, namespace: default, annotations: {limpet/external-artifact: "true"}}
spec: {title: Published, type: git, workflows: [], sync: {enabled: true, target: folder, intervalSeconds: 3600}, git: {url: %q, branch: %s, path: %s}}
`, url, testenv.Branch, testenv.Directory)))
	until(t, "it is pulled and published", func() bool {
		var u unstructured.Unstructured
		if json.Unmarshal([]byte(h.run(t, "get", "externalartifact", "published", "-n", "default", "-o", "json").out), &u.Object) != nil {
			return false
		}
		of := source.FromObject(&u)
		if of.State == source.Ready {
			a = servedArtifact{URL: of.Artifact.URL, Digest: of.Artifact.Digest, Revision: of.Artifact.Revision}
		}
		return of.State == source.Ready
	})
	return a
}

// TestArtifactsForFlux: the built program makes the artifact of a repository, once as a GitRepository
// and once as a Repository with an ExternalArtifact, and serves it; the
// code of Flux's controllers takes it, verifies its digest and unpacks the tree. One that is
// damaged on disk is not served, and made anew.
func TestArtifactsForFlux(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	client, repo, h := testenv.FluxClient(t), testenv.Repo(t, 3, 40), newHome(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	ln.Close()
	d := h.daemon(t, "--artifact-listen", address)
	url := testenv.Git(t, testenv.GitOptions{}).Serve("x.git", repo.Dir)
	if r := h.runWithInput(t, sourceYAML("site", url, "ref: {branch: main}"), "apply", "-f", "-"); r.code != 0 {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	until(t, "the artifact is there", func() bool { return h.artifact(t, "site").Digest != "" })
	a, head := h.artifact(t, "site"), repo.Head(t)
	if a.Revision != "main@sha1:"+head || a.URL != "http://"+address+"/gitrepository/default/site/"+head+".tar.gz" {
		t.Errorf("%+v", a)
	}
	take := func(url, digest string) (string, string, error) {
		dir := t.TempDir()
		out, err := exec.CommandContext(t.Context(), client, url, digest, dir).CombinedOutput()
		return dir, string(out), err
	}
	base := strings.TrimSuffix(a.URL, head+".tar.gz")
	for _, key := range []string{head, "main", "latest", a.Digest} {
		dir, out, err := take(base+key+".tar.gz", a.Digest)
		if err != nil {
			t.Errorf("%s: %v\n%s", key, err, out)
		}
		want := strings.Split(repo.Git(t, "ls-tree", "-r", "--name-only", "main"), "\n")
		want = slices.DeleteFunc(want, func(name string) bool { return strings.HasPrefix(name, ".github/") })
		var got []string
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				name, _ := filepath.Rel(dir, path)
				got = append(got, name)
				data, _ := os.ReadFile(path)
				if text := repo.Git(t, "show", "main:"+name); strings.TrimSpace(string(data)) != text {
					t.Errorf("%s has another content", name)
				}
			}
			return err
		})
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	if _, out, err := take(a.URL, "sha256:"+strings.Repeat("0", 64)); err == nil || !strings.Contains(out, "digest") {
		t.Errorf("another digest: %v\n%s", err, out)
	}
	published := h.published(t, url)
	if _, out, err := take(published.URL, published.Digest); err != nil || published.Revision != a.Revision || published.Digest != a.Digest {
		t.Errorf("published: %+v, %v\n%s", published, err, out)
	}
	file := filepath.Join(filepath.Dir(h.state()), "artifacts", "gitrepository", "default", "site", a.Digest[7:]+".tar.gz")
	if err := os.WriteFile(file, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(a.URL)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a damaged artifact: %s", resp.Status)
	}
	until(t, "it is made anew", func() bool { _, _, err := take(a.URL, a.Digest); return err == nil })
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// chartObjects are a chart from each place, with its values and with others. Their parameters are
// the repository, the registry and the Git host.
const chartObjects = `apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: charts, namespace: default}
spec: {url: "%s", interval: 1h}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: registry, namespace: default}
spec: {url: "oci://%s/charts", type: oci, insecure: true}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: tree, namespace: default}
spec: {url: "%s", interval: 1h, ref: {branch: main}}
---
` + chartObject + chartObject + chartObject + chartObject

const chartObject = `apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmChart
metadata: {name: %s, namespace: default}
spec: {interval: 1h, chart: %s, version: ">=1", sourceRef: {kind: %s, name: %s}, valuesFiles: %s}
---
`

// TestHelm: what the real helm has packed, published and pushed is followed, and the real helm reads
// what is served: it renders the same as from the chart itself. A restart reads no index again.
func TestHelm(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	program, client, registry, h := testenv.Tool(t, "helm", "helm.sh/helm/v3/cmd/helm"), testenv.FluxClient(t), newRealRegistry(t), newHome(t)
	dir := t.TempDir()
	helm := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("helm %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	published := filepath.Join(dir, "published")
	version := func(version string) {
		helm("package", "demo", "--version", version, "-d", published)
		helm("repo", "index", published)
		helm("push", filepath.Join(published, "demo-"+version+".tgz"), "oci://"+registry.address+"/charts", "--plain-http")
	}
	helm("create", "demo")
	prod := (&home{dir: dir}).file(t, "demo/prod.yaml", "replicaCount: 7\n")
	version("1.0.0")
	version("1.1.0+edge")
	made := time.Now().Add(-time.Hour) // a time of the second of the answer is no validator
	if err := os.Chtimes(filepath.Join(published, "index.yaml"), made, made); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // guards seen
	var seen []string
	files := http.FileServer(http.Dir(published))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = append(seen, r.URL.Path+" "+r.Header.Get("If-Modified-Since"))
		mu.Unlock()
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	repo := testenv.Repo(t, 1, 1)
	var changes []testenv.Change
	demo := os.DirFS(dir)
	if err := fs.WalkDir(demo, "demo", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := fs.ReadFile(demo, name)
		changes = append(changes, testenv.Change{Path: "charts/" + name, Data: data})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	repo.Commit(t, "chart", changes...)

	listen := freeAddress(t)
	d := h.daemon(t, "--artifact-listen", listen)
	h.must(t, 0, "apply", "-f", h.file(t, "charts.yaml", fmt.Sprintf(chartObjects, server.URL, registry.address,
		testenv.Git(t, testenv.GitOptions{}).Serve("tree.git", repo.Dir),
		"index", "demo", "HelmRepository", "charts", "[]",
		"merged", "demo", "HelmRepository", "charts", "[values.yaml, prod.yaml]",
		"registry", "demo", "HelmRepository", "registry", "[]",
		"tree", "./charts/demo", "GitRepository", "tree", "[charts/demo/values.yaml, charts/demo/prod.yaml]")))
	charts := embeddedWorkload(t, h).client.Resource(api.HelmCharts).Namespace("default")
	of := map[string]source.Source{}
	for name, revision := range map[string]string{"index": "1.1.0+edge", "merged": "1.1.0+1", "registry": "1.1.0+edge", "tree": "0.1.0+1"} {
		until(t, name+" is ready", func() bool {
			u, err := charts.Get(t.Context(), name, metav1.GetOptions{})
			if err == nil {
				of[name] = source.FromObject(u)
			}
			return err == nil && of[name].State == source.Ready && of[name].Artifact.Revision == revision
		})
	}
	for name, a := range of {
		resp, err := http.Get(a.Artifact.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		at := h.file(t, name+".tgz", string(body))
		if about := helm("show", "chart", at); !strings.Contains(about, "version: "+a.Artifact.Revision+"\n") {
			t.Errorf("%s: %s", name, about)
		}
		values := []string{}
		if name == "merged" || name == "tree" {
			values = []string{"-f", prod}
		}
		label := "helm.sh/chart: demo-" + strings.Replace(a.Artifact.Revision, "+", "_", 1)
		want := strings.ReplaceAll(helm(append([]string{"template", "demo"}, values...)...), "helm.sh/chart: demo-0.1.0", label)
		if got := helm("template", at); strings.Replace(got, "release-name", "demo", -1) != strings.Replace(want, "release-name", "demo", -1) {
			t.Errorf("%s renders\n%s\nnot\n%s", name, got, want)
		}
		if out, err := exec.CommandContext(t.Context(), client, a.Artifact.URL, a.Artifact.Digest, t.TempDir()).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	d.stop(t)
	mu.Lock()
	seen = nil
	mu.Unlock()
	h.daemon(t, "--artifact-listen", listen)
	h.must(t, 0, "source", "reconcile", "charts", "--kind", "helmrepository", "-n", "default", "--wait")
	h.must(t, 0, "source", "reconcile", "helmchart/merged", "-n", "default", "--wait")
	mu.Lock()
	defer mu.Unlock()
	for _, request := range seen {
		if path, since, _ := strings.Cut(request, " "); path != "/index.yaml" || since == "" {
			t.Errorf("after a restart: %s", request)
		}
	}
	if len(seen) == 0 {
		t.Error("the index was not looked at")
	}
}

// chartServer is a Helm repository with a chart that the real helm packs.
type chartServer struct{ url, program, dir string }

func newChartServer(t *testing.T) *chartServer {
	t.Helper()
	s := &chartServer{program: testenv.Tool(t, "helm", "helm.sh/helm/v3/cmd/helm"), dir: t.TempDir()}
	server := httptest.NewServer(http.FileServer(http.Dir(filepath.Join(s.dir, "published"))))
	t.Cleanup(server.Close)
	s.url = server.URL
	s.helm(t, "create", "demo")
	return s
}

func (s *chartServer) helm(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), s.program, args...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "HOME="+s.dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("helm %q: %v\n%s", args, err, out)
	}
}

// publish publishes a version of the chart.
func (s *chartServer) publish(t *testing.T, n int) (version string) {
	t.Helper()
	version = fmt.Sprintf("1.0.%d", n)
	s.helm(t, "package", "demo", "--version", version, "-d", "published")
	s.helm(t, "repo", "index", "published")
	return version
}

// helmSite is an agent that follows the index and the chart of a chartServer.
type helmSite struct {
	*home
	artifacts, client string
	agent             *daemon
}

func newHelmSite(t *testing.T, from *chartServer) *helmSite {
	t.Helper()
	s := &helmSite{home: newHome(t), artifacts: freeAddress(t), client: testenv.FluxClient(t)}
	s.file(t, "site/source.yaml", fmt.Sprintf(`apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: charts, namespace: default}
spec: {interval: 1h, url: %q}
---
`, from.url)+fmt.Sprintf(chartObject, "demo", "demo", "HelmRepository", "charts", "[]"))
	return s
}

func (s *helmSite) start(t *testing.T) {
	t.Helper()
	s.agent = s.daemon(t, "--artifact-listen", s.artifacts, "--manifests", filepath.Join(s.dir, "site"))
}

// look has the index looked at, which wakes the chart, and does not wait for it.
func (s *helmSite) look(t *testing.T) {
	t.Helper()
	s.must(t, 0, "source", "reconcile", "helmrepository/charts", "-n", "default")
}

// served returns a source, and whether Flux takes what is served of it.
func (s *helmSite) served(t *testing.T, kind schema.GroupVersionResource, name string) (of source.Source, served bool) {
	t.Helper()
	u, err := embeddedWorkload(t, s.home).client.Resource(kind).Namespace("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return of, false
	}
	if of = source.FromObject(u); of.Artifact == nil {
		return of, false
	}
	if kind == api.HelmCharts {
		return of, exec.CommandContext(t.Context(), s.client, of.Artifact.URL, of.Artifact.Digest, t.TempDir()).Run() == nil
	}
	return of, fmt.Sprintf("sha256:%x", sha256.Sum256(httpBody(t, of.Artifact.URL))) == of.Artifact.Digest
}

// follows waits until the index and a version of the chart are served, and looks at what is left
// beside them.
func (s *helmSite) follows(t *testing.T, version string) {
	t.Helper()
	until(t, version+" is served", func() bool {
		index, whole := s.served(t, api.HelmRepositories, "charts")
		if !whole || index.State != source.Ready || index.Waiting {
			return false
		}
		of, served := s.served(t, api.HelmCharts, "demo")
		return served && of.State == source.Ready && of.Artifact.Revision == version
	})
	if left, _ := filepath.Glob(filepath.Join(s.dir, "state", "layers", "*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestHelmKilled: whenever the process is killed on the way to a new version of a chart, the one before
// or the new one is served after the start, whole, and the new one follows.
func TestHelmKilled(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	charts := newChartServer(t)
	s, last := newHelmSite(t, charts), charts.publish(t, 0)
	s.start(t)
	s.follows(t, last)
	draw := rand.New(rand.NewPCG(suite.Seed(t), 13))
	for n := range suite.Count(5, 60) {
		next := charts.publish(t, n+1)
		s.look(t)
		kill := time.AfterFunc(time.Duration(draw.IntN(300))*time.Millisecond, func() { _ = s.agent.cmd.Process.Kill() })
		<-s.agent.done
		kill.Stop()
		s.start(t)
		if of, served := s.served(t, api.HelmCharts, "demo"); !served || of.Artifact.Revision != last && of.Artifact.Revision != next {
			t.Fatalf("after kill %d: served %v, %+v", n, served, of)
		}
		s.look(t)
		s.follows(t, next)
		last = next
	}
	s.agent.stop(t)
	s.sound(t)
}

// TestHelmPowerCut cuts the power within the transactions of an agent that follows an index and a
// chart of it: what its own index of artifacts names is served, or made anew, and the newest follows.
func TestHelmPowerCut(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	charts := newChartServer(t)
	s := newHelmSite(t, charts)
	var last string
	cuts := s.cutPower(t, suite.Count(3, 40), func() {
		last = charts.publish(t, 0)
		s.start(t)
		s.follows(t, last)
		for n := range suite.Count(3, 7) {
			last = charts.publish(t, n+1)
			s.look(t)
			s.follows(t, last)
		}
		s.agent.stop(t)
	})
	files := os.DirFS(filepath.Join(s.dir, "state", "artifacts"))
	for _, cut := range cuts {
		next := newHelmSite(t, charts)
		cut.restore(t, next.home)
		if err := os.CopyFS(filepath.Join(next.dir, "state", "artifacts"), files); err != nil {
			t.Fatal(err)
		}
		next.start(t)
		next.look(t)
		next.follows(t, last)
		next.agent.stop(t)
		next.sound(t)
	}
}
