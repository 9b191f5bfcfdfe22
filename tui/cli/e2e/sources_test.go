package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/source"
	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// artifactBytes are what is served as an artifact: no test here unpacks it.
var artifactBytes = []byte(strings.Repeat("a tree, packed\n", 1000))

// serveArtifacts serves them under any path, and something else under /other.
func serveArtifacts(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/other") {
			_, _ = w.Write([]byte("something else"))
			return
		}
		_, _ = w.Write(artifactBytes)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// statusWith is a status with an artifact at a URL.
func statusWith(url string) string {
	sum := sha256.Sum256(artifactBytes)
	return `{"observedGeneration":9,"conditions":[{"type":"Ready","status":"True","reason":"Succeeded","message":"stored artifact","observedGeneration":9,"lastTransitionTime":"2026-11-20T12:00:00Z"}],"artifact":{"path":"x.tar.gz","url":"` + url +
		`","revision":"main@sha1:` + testenv.SourceCommit + `","digest":"sha256:` + hex.EncodeToString(sum[:]) +
		`","lastUpdateTime":"2026-11-20T12:00:00Z"}}`
}

// packed gives a source of a daemon's own API an artifact, and returns its name.
func packed(t *testing.T, h *home, name string, commit ...string) string {
	t.Helper()
	resource := embeddedWorkload(t, h).client.Resource(api.GitRepositories).Namespace("default")
	u, err := resource.Get(t.Context(), name, metav1.GetOptions{})
	if err == nil {
		status := statusWith(serveArtifacts(t) + "/x.tar.gz")
		for _, c := range commit {
			status = strings.ReplaceAll(status, testenv.SourceCommit, c)
		}
		_, err = resource.UpdateStatus(t.Context(), testenv.Source{Status: status}.Seen(t, u), metav1.UpdateOptions{})
	}
	if apierrors.IsConflict(err) { // with the controller
		return packed(t, h, name, commit...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// TestSources: the commands and the dashboard of the built program on the API
// machinery with the definitions of Flux, whose controller writes statuses.
func TestSources(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	server := testenv.Start(t, testenv.Options{})
	yard, _ := realWorkload(t, server)
	resource := yard.client.Resource(api.GitRepositories).Namespace("flux-system")
	base := serveArtifacts(t)
	const spec = `{"url":"https://git.example.com/x.git","interval":"5m"}`
	for _, s := range append(testenv.Sources(),
		testenv.Source{Name: "served", Spec: spec, Status: statusWith(base + "/served.tar.gz")},
		testenv.Source{Name: "swapped", Spec: spec, Status: statusWith(base + "/other.tar.gz")},
		testenv.Source{Name: "inside", Spec: spec, Status: statusWith("http://source-controller.flux-system.svc.cluster.local./x.tar.gz")},
	) {
		s.Put(t, resource, "flux-system")
	}
	h := newHome(t)
	h.args = []string{"--provisioning-server-url", server.URL, "--tls-ca-file", server.CAFile, "--token-file",
		h.file(t, "token", server.Token), "--controllers", "off"}
	read := func(name string) sourceSeen {
		u, err := resource.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return sourceSeen{u}
	}

	t.Run("list and show", func(t *testing.T) {
		var list struct {
			Items []unstructured.Unstructured
		}
		r := h.must(t, 0, "source", "list", "-o", "json")
		if err := json.Unmarshal([]byte(r.out), &list); err != nil || len(list.Items) != len(testenv.Sources())+3 {
			t.Errorf("%d sources, %v", len(list.Items), err)
		}
		wide := h.must(t, 0, "source", "list", "-o", "wide").out
		for _, s := range testenv.Sources() {
			row := ""
			for line := range strings.Lines(wide) {
				if fields := strings.Fields(line); len(fields) > 3 && fields[1] == s.Name {
					row = fields[3]
				}
			}
			if want := map[string]string{"suspended": "suspended"}[s.Name]; row != s.Want && row != want {
				t.Errorf("%s is %q, want %s", s.Name, row, s.Want)
			}
			h.must(t, 0, "source", "show", s.Name)
		}
		if text := r.out + wide + h.must(t, 0, "source", "show", "whole").out; strings.Contains(text, "s3cret") {
			t.Errorf("a secret of a URL is shown:\n%s", text)
		}
		if got := h.must(t, 0, "source", "list", "-o", "name").out; !strings.Contains(got, "gitrepository/served\n") {
			t.Errorf("names: %s", got)
		}
		if got := h.must(t, exitError, "source", "show", "nobody").err; !strings.Contains(got, "nobody") {
			t.Errorf("nobody: %s", got)
		}
	})
	t.Run("get", func(t *testing.T) {
		file := filepath.Join(h.dir, "served.tar.gz")
		h.must(t, 0, "source", "get", "served", "--file", file)
		if got, err := os.ReadFile(file); err != nil || string(got) != string(artifactBytes) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if got := h.must(t, 0, "source", "get", "served", "--file", "-").out; got != string(artifactBytes) {
			t.Errorf("%d bytes on stdout", len(got))
		}
		if got := h.must(t, 0, "source", "get", "inside", "--via", base, "--file", "-").out; got != string(artifactBytes) {
			t.Errorf("%d bytes by another way", len(got))
		}
		for name, c := range map[string]struct {
			code int
			says string
		}{
			"swapped": {exitError, ""},
			"inside":  {exitUnreachable, "kubectl -n flux-system port-forward"},
			"empty":   {exitError, ""},
			"nobody":  {exitError, ""},
		} {
			target := filepath.Join(h.dir, name+".tgz")
			if r := h.must(t, c.code, "source", "get", name, "--file", target); !strings.Contains(r.err, c.says) {
				t.Errorf("%s: %s", name, r.err)
			}
			if r := h.run(t, "source", "get", name, "--file", "-"); r.code != c.code || r.out != "" {
				t.Errorf("%s to stdout: exit %d, %d bytes", name, r.code, len(r.out))
			}
			left, err := filepath.Glob(filepath.Join(h.dir, ".limpet-*"))
			if _, stat := os.Stat(target); stat == nil || err != nil || len(left) > 0 {
				t.Errorf("%s has left %q, %v", name, left, err)
			}
		}
	})
	t.Run("suspend, resume, reconcile", func(t *testing.T) {
		h.must(t, 0, "source", "suspend", "served")
		if !read("served").suspended() {
			t.Error("not suspended")
		}
		if r := h.must(t, exitError, "source", "reconcile", "served"); !strings.Contains(r.err, "limpet source resume served") {
			t.Errorf("%s", r.err)
		}
		h.must(t, 0, "source", "resume", "served")
		if read("served").suspended() {
			t.Error("still suspended")
		}
		h.must(t, 0, "source", "reconcile", "served")
		if read("served").request() == "" {
			t.Error("nothing was asked for")
		}
		if r := h.must(t, exitUsage, "--read-only", "source", "suspend", "served"); !strings.Contains(r.err, "--read-only") {
			t.Errorf("%s", r.err)
		}
		// Its controller answers: of "ready" well, of "auth" as before.
		before := read("ready").request()
		yard.answerReconciles(resource)
		if r := h.must(t, 0, "source", "reconcile", "ready", "--wait"); !strings.Contains(r.out, "main@sha1:") {
			t.Errorf("%s", r.out)
		}
		if read("ready").request() == before {
			t.Error("nothing was asked for")
		}
		if r := h.must(t, exitError, "source", "reconcile", "auth", "--wait"); !strings.Contains(r.err, "AuthenticationFailed") {
			t.Errorf("%s", r.err)
		}
	})
	t.Run("the agent", func(t *testing.T) {
		h.daemon(t)
		var r result
		until(t, "status tells of sources", func() bool {
			r = h.run(t, "status")
			return strings.Contains(r.out, "AuthenticationFailed")
		})
		if r.code != exitError {
			t.Errorf("exit %d\n%s", r.code, r.out)
		}
		tt := h.terminal(t)
		tt.showsNow(t, "Sources")
		tt.Press(t, "6")
		tt.Press(t, "/source:outdated\r")
		tt.showsNow(t, fmt.Sprintf("1 of %d", len(testenv.Sources())+3))
		before := read("outdated").request()
		tt.Press(t, "p")
		until(t, "the dashboard has asked for a look", func() bool { return read("outdated").request() != before })
		tt.Press(t, "s")
		tt.Press(t, "y")
		until(t, "the dashboard has suspended it", func() bool { return read("outdated").suspended() })
		tt.Press(t, "q")
		if code := tt.exit(t); code != 0 {
			t.Errorf("exit %d", code)
		}
	})
}

// TestSourceRevisions: a request as flux makes it packs a new commit, and the dashboard shows what
// differs.
func TestSourceRevisions(t *testing.T) {
	t.Parallel()
	repo, h := testenv.EmptyRepo(t), newHome(t)
	commit := func(subject, data string) string {
		repo.Commit(t, subject, testenv.Change{Path: "deploy/a.yaml", Data: []byte(data)})
		return repo.Head(t)
	}
	commit("First", "x: 1\n")
	url := testenv.Git(t, testenv.GitOptions{}).Serve("fleet.git", repo.Dir)
	h.daemon(t)
	h.must(t, 0, "source", "create", "fleet", "--url", url, "--interval", "1h", "--wait")
	second := commit("Second", "x: 2\n")
	resource := embeddedWorkload(t, h).client.Resource(api.GitRepositories).Namespace("default")
	_, err := resource.Patch(t.Context(), "fleet", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"as flux"}}}`), metav1.PatchOptions{FieldManager: "flux-client-side-apply"})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the request is handled", func() bool {
		u, err := resource.Get(t.Context(), "fleet", metav1.GetOptions{})
		if err != nil || !source.Handled(u, "as flux") {
			return false
		}
		from := source.FromObject(u)
		return from.Commit() == second
	})
	tt := h.terminal(t)
	tt.showsNow(t, "Sources")
	tt.Press(t, "6")
	tt.showsNow(t, "this agent")
	tt.Press(t, "\r")
	tt.showsNow(t, "Revisions")
	tt.Press(t, "d")
	tt.showsNow(t, "deploy/a.yaml")
	tt.Press(t, "\r")
	tt.showsNow(t, "+x: 2")
	tt.Press(t, "q")
	if code := tt.exit(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// sourceSeen is a source as the API has it.
type sourceSeen struct{ *unstructured.Unstructured }

func (s sourceSeen) suspended() bool { return source.FromObject(s.Unstructured).Suspended }
func (s sourceSeen) request() string { return source.Asked(s.Unstructured) }

// answers does what the controller of Flux does with a request for a look: it writes
// that it has handled it, until the test ends.
func (y *workload) answerReconciles(resource testenv.Resource) {
	t := y.t
	t.Helper()
	inf := y.client.Informer(api.GitRepositories, "", kube.InformerOptions{})
	requests := make(chan *unstructured.Unstructured, 100)
	note := func(o kube.Object) {
		u := o.Unstructured()
		if asked := source.Asked(u); asked != "" && !source.Handled(u, asked) && slices.Contains([]string{"ready", "auth", "apps"}, u.GetName()) {
			requests <- u.DeepCopy()
		}
	}
	inf.AddHandler(kube.Handler{Add: note, Update: func(_, o kube.Object) { note(o) }})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for u := range requests {
			if err := unstructured.SetNestedField(u.Object, source.Asked(u), "status", "lastHandledReconcileAt"); err != nil {
				t.Error(err)
			}
			// A conflict comes again with the change that has made it.
			_, _ = resource.UpdateStatus(t.Context(), u, metav1.UpdateOptions{})
		}
	}()
	t.Cleanup(func() { close(requests); <-done })
	y.runInformer(inf)
}
