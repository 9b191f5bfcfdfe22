package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/source"
	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// realRegistry is the registry of distribution at work, with the client crane.
type realRegistry struct {
	t       *testing.T
	address string
	crane   string
	cosign  string
	dir     string
}

func newRealRegistry(t *testing.T) *realRegistry {
	t.Helper()
	program := testenv.Tool(t, "registry", "github.com/distribution/distribution/v3/cmd/registry")
	r := &realRegistry{t: t, address: freeAddress(t), dir: t.TempDir(),
		crane: testenv.Tool(t, "registry", "github.com/google/go-containerregistry/cmd/crane")}
	config := (&home{dir: r.dir}).file(t, "config.yaml", fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: {addr: %q}\n",
		r.dir, r.address))
	cmd := tied(exec.Command(program, "serve", config))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	until(t, "the registry answers", func() bool {
		resp, err := http.Get("http://" + r.address + "/v2/")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	return r
}

// run runs a program and returns the last line that it prints.
func (r *realRegistry) run(program string, args ...string) string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), program, args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "HOME="+r.dir, "COSIGN_PASSWORD=")
	var told bytes.Buffer
	cmd.Stderr = &told
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("%s %q: %v\n%s%s", filepath.Base(program), args, err, out, told.String())
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// push pushes files under a tag and returns the digest of the manifest.
func (r *realRegistry) push(repository, tag string, files map[string][]byte) string {
	r.t.Helper()
	layer := (&home{dir: r.dir}).file(r.t, "layer.tar.gz", string(tarball(r.t, files)))
	pushed := r.run(r.crane, "append", "--insecure", "--oci-empty-base", "-f", layer, "-t", r.address+"/"+repository+":"+tag)
	return pushed[strings.LastIndex(pushed, "@")+1:]
}

// tarball packs files.
func tarball(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for name, data := range files {
		_ = w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data)), Typeflag: tar.TypeReg})
		_, _ = w.Write(data)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	_ = z.Close()
	return out.Bytes()
}

// thin is the registry over a line that is slow. It counts the requests that go on with a blob.
func (r *realRegistry) thin() (address string, resumed *atomic.Int64) {
	resumed = &atomic.Int64{}
	to := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(&url.URL{Scheme: "http", Host: r.address})
		if p.In.Header.Get("Range") != "" {
			resumed.Add(1)
		}
	}, ModifyResponse: func(resp *http.Response) error {
		resp.Body = &slowBody{resp.Body}
		return nil
	}}
	s := httptest.NewServer(to)
	r.t.Cleanup(s.Close)
	return s.Listener.Addr().String(), resumed
}

type slowBody struct{ io.ReadCloser }

func (s *slowBody) Read(p []byte) (int, error) {
	<-time.After(time.Millisecond)
	return s.ReadCloser.Read(p[:min(len(p), 16<<10)])
}

// noise is what does not compress.
func noise(seed, size int) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(data)
	return data
}

// ociSite is an agent that follows the tag latest of a registry and serves what it finds.
type ociSite struct {
	*home
	artifacts string
	agent     *daemon
}

func newOCISite(t *testing.T, registry string) *ociSite {
	t.Helper()
	s := &ociSite{home: newHome(t), artifacts: freeAddress(t)}
	s.file(t, "site/source.yaml", fmt.Sprintf(`apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: site, namespace: default}
spec: {interval: 1h, insecure: true, url: "oci://%s/site"}
`, registry))
	return s
}

func (s *ociSite) start(t *testing.T) {
	t.Helper()
	s.agent = s.daemon(t, "--artifact-listen", s.artifacts, "--manifests", filepath.Join(s.dir, "site"))
}

// look asks for a reconcile, and does not wait for it.
func (s *ociSite) look(t *testing.T) {
	t.Helper()
	s.must(t, 0, "source", "reconcile", "site", "--kind", "ocirepository", "-n", "default")
}

// status returns the source, and whether what is served of it has the digest that it names.
func (s *ociSite) status(t *testing.T) (of source.Source, served bool) {
	t.Helper()
	u, err := embeddedWorkload(t, s.home).client.Resource(api.OCIRepositories).Namespace("default").Get(t.Context(), "site", metav1.GetOptions{})
	if err != nil {
		return of, false
	}
	of = source.FromObject(u)
	if of.Artifact == nil {
		return of, false
	}
	resp, err := http.Get(of.Artifact.URL)
	if err != nil {
		return of, false
	}
	defer resp.Body.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, resp.Body)
	return of, err == nil && of.Artifact.Digest == fmt.Sprintf("sha256:%x", sum.Sum(nil))
}

// follows waits until a revision is served, and looks at what is left beside it.
func (s *ociSite) follows(t *testing.T, revision string) {
	t.Helper()
	until(t, revision+" is served", func() bool {
		of, served := s.status(t)
		return served && of.State == source.Ready && of.Artifact.Revision == revision
	})
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(s.state()), "layers", "*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestOCIRepositoryKilled: whenever the process is killed on the way to a new revision, the one before
// is served after the start, and the new one follows, whose layer is not downloaded twice.
func TestOCIRepositoryKilled(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	r := newRealRegistry(t)
	address, resumed := r.thin()
	s := newOCISite(t, address)
	draw := rand.New(rand.NewPCG(suite.Seed(t), 7))
	last := "latest@" + r.push("site", "latest", map[string][]byte{"a": noise(0, 1<<20)})
	s.start(t)
	s.follows(t, last)
	rounds := suite.Count(5, 60)
	for n := range rounds {
		next := "latest@" + r.push("site", "latest", map[string][]byte{"a": noise(n+1, 4<<20), "b": []byte(fmt.Sprint(n))})
		s.look(t)
		kill := time.AfterFunc(time.Duration(draw.IntN(800))*time.Millisecond, func() { _ = s.agent.cmd.Process.Kill() })
		<-s.agent.done
		kill.Stop()
		s.start(t)
		if of, served := s.status(t); !served || of.Artifact.Revision != last && of.Artifact.Revision != next {
			t.Fatalf("after kill %d: served %v, %+v", n, served, of)
		}
		s.look(t)
		s.follows(t, next)
		last = next
	}
	if resumed.Load() == 0 {
		t.Error("no download went on where one was killed")
	}
	s.agent.stop(t)
	s.sound(t)
}

// TestOCIRepositoryPowerCut cuts the power within the transactions of an agent that follows a
// registry: an artifact of its index is served, or made anew, and the newest revision follows.
func TestOCIRepositoryPowerCut(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	r := newRealRegistry(t)
	s := newOCISite(t, r.address)
	var last string
	cuts := s.cutPower(t, suite.Count(3, 40), func() {
		for n := range suite.Count(4, 8) {
			last = "latest@" + r.push("site", "latest", map[string][]byte{"a": noise(n, 100_000)})
			if n == 0 {
				s.start(t)
			} else {
				s.look(t)
			}
			s.follows(t, last)
		}
		s.agent.stop(t)
	})
	files := os.DirFS(filepath.Join(s.dir, "state", "artifacts"))
	for _, cut := range cuts {
		next := newOCISite(t, r.address)
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

// keyPairs makes key pairs of the real cosign and returns their public keys.
func (r *realRegistry) keyPairs(names ...string) map[string]string {
	r.t.Helper()
	r.cosign = testenv.Tool(r.t, "registry", "github.com/sigstore/cosign/v3/cmd/cosign")
	public := map[string]string{}
	for _, name := range names {
		r.run(r.cosign, "generate-key-pair", "--output-key-prefix", name)
		public[name] = string(read(r.t, filepath.Join(r.dir, name+".pub")))
	}
	return public
}

// sign signs an artifact with a key, or attests it.
func (r *realRegistry) sign(verb, at, key string, more ...string) {
	r.t.Helper()
	r.run(r.cosign, append(append([]string{verb, "--yes", "--key", key + ".key", "--use-signing-config=false", "--tlog-upload=false",
		"--allow-http-registry", "--allow-insecure-registry"}, more...), at)...)
}

// TestHelmChartCosign: a chart of a registry is taken that the real cosign has signed with the key,
// and none that was signed with another one or not at all.
func TestHelmChartCosign(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	r, h, charts := newRealRegistry(t), newHome(t), newChartServer(t)
	public := r.keyPairs("mine", "others")
	text := secretYAML("keys", "a.pub", public["mine"]) + fmt.Sprintf(`---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: charts, namespace: default}
spec: {url: "oci://%s/charts", type: oci, insecure: true}
`, r.address)
	for n, key := range []string{"mine", "others", ""} {
		charts.helm(t, "push", filepath.Join("published", "demo-"+charts.publish(t, n)+".tgz"), "oci://"+r.address+"/charts", "--plain-http")
		if at := r.address + "/charts/demo"; key != "" {
			r.sign("sign", at+"@"+r.run(r.crane, "digest", "--insecure", fmt.Sprintf("%s:1.0.%d", at, n)), key)
		}
		text += fmt.Sprintf(`---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmChart
metadata: {name: "%[1]d", namespace: default}
spec: {interval: 1h, chart: demo, version: "1.0.%[1]d", sourceRef: {kind: HelmRepository, name: charts},
  verify: {provider: cosign, secretRef: {name: keys}}}
`, n)
	}
	h.daemon(t)
	h.must(t, 0, "apply", "-f", h.file(t, "charts.yaml", text))
	client := embeddedWorkload(t, h).client.Resource(api.HelmCharts).Namespace("default")
	for n, want := range []source.Condition{{Type: "SourceVerified", Status: "True", Reason: "Succeeded"},
		{Type: "SourceVerified", Status: "False", Reason: "VerificationError"}, {Type: "SourceVerified", Status: "False", Reason: "VerificationError"}} {
		until(t, fmt.Sprintf("%d is %s", n, want.Reason), func() bool {
			u, err := client.Get(t.Context(), fmt.Sprint(n), metav1.GetOptions{})
			if err != nil {
				return false
			}
			of := source.FromObject(u)
			return (of.State == source.Ready) == (n == 0) && (of.Artifact != nil) == (n == 0) && slices.ContainsFunc(of.Conditions, func(c source.Condition) bool {
				c.Message = ""
				return c == want
			})
		})
	}
}

// TestOCIRepositoryCosign: what the real cosign has signed with one of the keys is taken, in both of
// its forms, and nothing else is. Other keys verify again, and take nothing away.
func TestOCIRepositoryCosign(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	r, h := newRealRegistry(t), newHome(t)
	public := r.keyPairs("mine", "others", "unused")
	at, digests := r.address+"/site", map[string]string{}
	for _, tag := range []string{"older", "bundle", "others", "none", "copiedolder", "copied", "attested"} {
		digests[tag] = r.push("site", tag, map[string][]byte{"a": []byte(tag)})
	}
	sign := func(verb, tag, key string, more ...string) { r.sign(verb, at+"@"+digests[tag], key, more...) }
	sign("sign", "older", "mine", "--new-bundle-format=false")
	sign("sign", "bundle", "mine")
	sign("sign", "others", "others")
	sign("attest", "attested", "mine", "--predicate", (&home{dir: r.dir}).file(t, "predicate.json", "{}"), "--type", "https://slsa.dev/provenance/v1")
	beside := func(tag string) string { return strings.Replace(digests[tag], ":", "-", 1) }
	r.run(r.crane, "tag", "--insecure", at+":"+beside("older")+".sig", beside("copiedolder")+".sig")
	r.run(r.crane, "tag", "--insecure", at+":"+beside("bundle"), beside("copied"))

	h.daemon(t)
	keys := func(names ...string) {
		text := secretYAML("keys")
		for i, name := range names {
			text += fmt.Sprintf("  %d.pub: %q\n", i, public[name])
		}
		h.must(t, 0, "apply", "-f", h.file(t, "keys.yaml", text))
	}
	keys("unused", "mine")
	var all strings.Builder
	for tag := range digests {
		fmt.Fprintf(&all, `---
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: %s, namespace: default}
spec: {interval: 1h, insecure: true, url: "oci://%s", ref: {tag: %s}, verify: {provider: cosign, secretRef: {name: keys}}}
`, tag, at, tag)
	}
	h.must(t, 0, "apply", "-f", h.file(t, "sources.yaml", all.String()))
	sources := embeddedWorkload(t, h).client.Resource(api.OCIRepositories).Namespace("default")
	is := func(tag, state, reason string, stored bool) {
		t.Helper()
		until(t, tag+" is "+state, func() bool {
			u, err := sources.Get(t.Context(), tag, metav1.GetOptions{})
			if err != nil {
				return false
			}
			s := source.FromObject(u)
			return s.State == state && (reason == "" || s.Reason == reason) && (s.Artifact != nil) == stored
		})
	}
	for tag := range digests {
		if tag == "older" || tag == "bundle" {
			is(tag, source.Ready, "", true)
		} else {
			is(tag, source.Failed, "VerificationError", false)
		}
	}
	if out := h.must(t, 0, "source", "test", "bundle", "--kind", "ocirepository").out; !strings.Contains(out, "bundle@"+digests["bundle"]) {
		t.Errorf("source test: %s", out)
	}
	h.must(t, 1, "source", "test", "-f", h.file(t, "gone.yaml", strings.Replace(all.String(), "/site", "/gone", -1)), "bundle", "--kind", "ocirepository")
	keys("others", "others")
	is("others", source.Ready, "", true)
	is("bundle", source.Failed, "VerificationError", true)
	is("older", source.Failed, "VerificationError", true)
}

// TestOCIRepositoryCost: a new artifact of 20 MB from its creation until it is ready, beside what
// crane takes to export it, in turns. Goal with -figures: 1.3 times that, of time and of processor.
func TestOCIRepositoryCost(t *testing.T) {
	suite.Full(t)
	const goal = 1.3
	r, h := newRealRegistry(t), newHome(t)
	d := h.daemon(t, "--log-level", "info")
	sources := embeddedWorkload(t, h).client.Resource(api.OCIRepositories).Namespace("default")
	changes, err := sources.Watch(t.Context(), metav1.ListOptions{TimeoutSeconds: new(int64(600))})
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	for _, content := range []string{"noise", "text"} {
		var ratios, ofCPU []float64
		for n := range size(2, 15) {
			files := map[string][]byte{}
			for i := range 20 {
				files[fmt.Sprintf("dir/%02d.yaml", i)] = noise(n*20+i, size(100_000, 1<<20))
				if content == "text" {
					files[fmt.Sprintf("dir/%02d.yaml", i)] = []byte(fmt.Sprintf("%x", files[fmt.Sprintf("dir/%02d.yaml", i)]))
				}
			}
			name := fmt.Sprintf("%s-%d", content, n)
			r.push(name, "latest", files)
			began, before := time.Now(), readUsage(t, d.cmd.Process.Pid)
			u := newObject(api.OCIRepositories, name, nil, map[string]any{"url": "oci://" + r.address + "/" + name, "interval": "1h", "insecure": true})
			u.SetKind("OCIRepository")
			if _, err := sources.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			for change := range changes.ResultChan() {
				s := source.FromObject(change.Object.(*unstructured.Unstructured))
				if s.Name == name && s.State == source.Ready {
					break
				}
			}
			took, used := time.Since(began), readUsage(t, d.cmd.Process.Pid).cpu-before.cpu
			began = time.Now()
			export := exec.Command(r.crane, "export", "--insecure", r.address+"/"+name+":latest", filepath.Join(r.dir, "exported"))
			if out, err := export.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			theirs := time.Since(began)
			cpu := export.ProcessState.UserTime() + export.ProcessState.SystemTime()
			ratios, ofCPU = append(ratios, took.Seconds()/theirs.Seconds()), append(ofCPU, used.Seconds()/cpu.Seconds())
			t.Logf("%s: %s and %s of processor; crane %s and %s", name, took, used, theirs, cpu)
		}
		t.Logf("%s: %.2f of the time of crane, %.2f of its processor", content, median(ratios), median(ofCPU))
		if *figures && (median(ratios) > goal || median(ofCPU) > goal) {
			t.Errorf("%s: the goal is %.1f", content, goal)
		}
	}
}
