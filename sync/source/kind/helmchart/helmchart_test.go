package helmchart_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/source"
	"limpet/sync/source/artifact"
	"limpet/sync/source/controller"
	"limpet/sync/source/kind/helmchart"
	"limpet/sync/testenv/nettest"
	"limpet/sync/testenv/sourcetest"
)

// TestFollow: the index is followed, and the charts follow it. What has not changed costs one
// answer without a body for all charts together.
func TestFollow(t *testing.T) {
	t.Parallel()
	h, r := newHost(t), newRig(t)
	h.publish("1.0.0", "", nil)
	body := h.publish("1.1.0", "", nil)
	h.publish("2.0.0-rc.1", "", nil)
	r.Apply("HelmRepository/charts", `"url":"`+h.URL+`"`)
	r.Apply("HelmChart/site", `"chart":"site","version":"1.x","sourceRef":{"kind":"HelmRepository","name":"charts"}`)
	status := r.Status("HelmChart/site", "1.1.0")
	made := status["artifact"].(map[string]any)
	if made["path"] != "helmchart/default/site/site-1.1.0.tgz" || made["digest"] != "sha256:"+digest(body) || status["observedChartName"] != "site" {
		t.Errorf("%v", status)
	}
	if s := r.In("HelmChart/site", source.Ready, "ChartPullSucceeded"); s.Message != "pulled 'site' chart with version '1.1.0'" {
		t.Errorf("%+v", s)
	}
	index, raw := r.Bytes("HelmRepository/charts")
	if want := "sha256:" + digest(raw); index.Revision != want || index.Digest != want ||
		index.Path != "helmrepository/default/charts/index-"+digest(raw)+".yaml" || status["observedSourceArtifactRevision"] != want {
		t.Errorf("%+v", index)
	}
	h.take()
	r.Ask("HelmRepository/charts")
	r.Ask("HelmChart/site")
	if seen := h.take(); !slices.Equal(seen, []string{"/index.yaml  304"}) {
		t.Errorf("for nothing new: %q", seen)
	}
	r.Apply("HelmRepository/charts", `"url":"`+h.URL+`/"`) // the same index at another address
	if s := r.Ask("HelmRepository/charts"); s.State != source.Ready {
		t.Errorf("%+v", s)
	}
	h.take()
	body = h.publish("1.2.0", "", nil)
	r.Ask("HelmRepository/charts")
	r.Ready("HelmChart/site", "1.2.0")
	if _, got := r.Bytes("HelmChart/site"); !bytes.Equal(got, body) {
		t.Error("the bytes are not those that were published")
	}
	if seen := h.take(); !slices.Equal(seen, []string{"/index.yaml  200", "/site-1.2.0.tgz  200"}) {
		t.Errorf("for a new version: %q", seen)
	}
}

const (
	ofIndex = `"sourceRef":{"kind":"HelmRepository","name":"charts"}`
	ofTree  = `"sourceRef":{"kind":"GitRepository","name":"site"}`
)

// TestValues: values files of the chart become its values.yaml, under a version of their own.
func TestValues(t *testing.T) {
	t.Parallel()
	h, r := newHost(t), newRig(t)
	h.publish("1.0.0", "", map[string]string{"site/prod.yaml": "image: {tag: c}\n", "site/charts/db/Chart.yaml": chart("db", "1.0.0")})
	r.Apply("HelmRepository/charts", `"url":"`+h.URL+`"`)
	r.Apply("HelmChart/site", `"chart":"site","valuesFiles":["values.yaml","none.yaml","./prod.yaml"],"ignoreMissingValuesFiles":true,`+ofIndex)
	status := r.Status("HelmChart/site", "1.0.0+1")
	if used, _ := status["observedValuesFiles"].([]any); len(used) != 2 {
		t.Errorf("%v", status)
	}
	r.In("HelmChart/site", source.Ready, "ChartPackageSucceeded")
	_, files := r.Files("HelmChart/site")
	if files["site/values.yaml"] != "image:\n  name: b\n  tag: c\nreplicas: 1\n" || !strings.Contains(files["site/Chart.yaml"], "version: 1.0.0+1\n") ||
		files["site/charts/db/Chart.yaml"] != chart("db", "1.0.0") || files["site/prod.yaml"] == "" {
		t.Errorf("%v", files)
	}
	first, _ := r.Bytes("HelmChart/site")
	r.Apply("HelmChart/same", `"chart":"site","valuesFiles":["values.yaml","prod.yaml"],`+ofIndex)
	r.Ready("HelmChart/same", "1.0.0+1")
	if second, _ := r.Bytes("HelmChart/same"); second.Digest != first.Digest {
		t.Error("the same chart has other bytes")
	}
	r.Apply("HelmChart/own", `"chart":"site","valuesFiles":["values.yaml"],`+ofIndex)
	r.Ready("HelmChart/own", "1.0.0")
	r.Apply("HelmChart/missing", `"chart":"site","valuesFiles":["none.yaml"],`+ofIndex)
	if s := r.In("HelmChart/missing", source.Stalled, "ValuesFilesError"); !strings.Contains(s.Message, "no values file found at path 'none.yaml'") {
		t.Errorf("%+v", s)
	}
}

// TestTree: a chart of the files of another source is packed by its version, or by the revision of
// the source.
func TestTree(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	files := map[string]string{"charts/site/.helmignore": "*.md\n", "charts/site/Chart.yaml": chart("site", "1.0.0"), "charts/site/README.md": "x",
		"charts/site/templates/a.yaml": "a", "charts/site/values.yaml": "a: 1\n", "prod.yaml": "b: 2\n",
		"charts/packed.tgz":       string(sourcetest.Tarball(map[string]string{"db/Chart.yaml": chart("db", "2.0.0"), "db/values.yaml": "c: 3\n"})),
		"charts/half/Chart.yaml":  chart("half", "1.0.0") + "dependencies: [{name: db}]\n",
		"charts/whole/Chart.yaml": chart("whole", "1.0.0") + "dependencies: [{name: db}]\n", "charts/whole/charts/db-2.0.0.tgz": "x"}
	r.tree("GitRepository/site", "main@sha1:0123456789abcdef", files)
	r.Apply("HelmChart/version", `"chart":"./charts/site","valuesFiles":["charts/site/values.yaml","prod.yaml"],`+ofTree)
	r.Apply("HelmChart/revision", `"chart":"charts/site","reconcileStrategy":"Revision",`+ofTree)
	r.Apply("HelmChart/both", `"chart":"charts/packed.tgz","reconcileStrategy":"Revision","valuesFiles":["prod.yaml"],`+ofTree)
	r.Apply("HelmChart/packed", `"chart":"charts/packed.tgz",`+ofTree)
	r.Apply("HelmChart/whole", `"chart":"charts/whole",`+ofTree)
	r.Apply("HelmChart/half", `"chart":"charts/half",`+ofTree)
	r.Apply("HelmChart/away", `"chart":"../site",`+ofTree)
	r.Apply("HelmChart/none", `"chart":"charts/none",`+ofTree)
	r.Ready("HelmChart/version", "1.0.0+1")
	if _, got := r.Files("HelmChart/version"); got["site/values.yaml"] != "a: 1\nb: 2\n" || got["site/README.md"] != "" || len(got) != 4 {
		t.Errorf("%v", got)
	}
	r.Ready("HelmChart/revision", "1.0.0+0123456789ab")
	r.Ready("HelmChart/both", "2.0.0+0123456789ab.1")
	r.Ready("HelmChart/packed", "2.0.0")
	r.Ready("HelmChart/whole", "1.0.0")
	r.tree("Bucket/store", "sha256:"+digest(nil), files)
	r.Apply("HelmChart/bucket", `"chart":"charts/site","reconcileStrategy":"Revision","sourceRef":{"kind":"Bucket","name":"store"}`)
	r.Ready("HelmChart/bucket", "1.0.0+"+digest(nil)[:12])
	if s := r.In("HelmChart/half", source.Failed, "DependencyBuildError"); !strings.Contains(s.Message, `"db"`) {
		t.Errorf("%+v", s)
	}
	r.In("HelmChart/away", source.Stalled, "InvalidChartReference")
	r.In("HelmChart/none", source.Stalled, "InvalidChartReference")

	before, _ := r.Bytes("HelmChart/packed")
	files["charts/site/values.yaml"] = "a: 2\n"
	files["charts/none/Chart.yaml"] = chart("none", "1.0.0")
	r.tree("GitRepository/site", "main@sha1:fedcba9876543210", files)
	for _, name := range []string{"version", "revision", "packed", "none"} {
		r.Ask("HelmChart/" + name)
	}
	r.Ready("HelmChart/revision", "1.0.0+fedcba987654")
	r.Ready("HelmChart/none", "1.0.0")
	status := r.Status("HelmChart/version", "1.0.0+1")
	if _, got := r.Files("HelmChart/version"); got["site/values.yaml"] != "a: 1\nb: 2\n" || status["observedSourceArtifactRevision"] != "main@sha1:fedcba9876543210" {
		t.Errorf("the same version: %v %v", got, status)
	}
	if after, _ := r.Bytes("HelmChart/packed"); after.Digest != before.Digest {
		t.Error("the same chart has other bytes")
	}
}

// TestBadCharts: what is wrong with a chart is in the condition of Flux, and the last good artifact
// is served on.
func TestBadCharts(t *testing.T) {
	t.Parallel()
	h, r := newHost(t), newRig(t)
	h.publish("1.0.0", "", nil)
	h.publish("2.0.0", strings.Repeat("ab", 32), nil)
	h.publish("3.0.0", "", map[string]string{"site/Chart.yaml": chart("site", "3.0.1")})
	h.publish("4.0.0", "", map[string]string{"site/../../x": "x"})
	h.publish("5.0.0", "", nil)
	h.serve("/site-5.0.0.tgz", make([]byte, 11<<20))
	h.publish("6.0.0", "", map[string]string{"site/Chart.yaml": "-> values.yaml"})
	r.Apply("HelmRepository/charts", `"url":"`+h.URL+`/"`)
	r.Apply("HelmChart/site", `"chart":"site","version":"1.0.0",`+ofIndex)
	r.Ready("HelmChart/site", "1.0.0")
	for version, c := range map[string]struct{ state, reason, message string }{
		"2.0.0": {source.Failed, "ChartPullError", "digest"},
		"3.0.0": {source.Failed, "ChartPullError", "3.0.1"},
		"4.0.0": {source.Failed, "ChartPullError", "leaves the archive"},
		"5.0.0": {source.Failed, "ChartPullError", "exceeds"},
		"6.0.0": {source.Failed, "ChartPullError", "Chart.yaml"},
		"9.x":   {source.Stalled, "InvalidChartReference", "no 'site' chart with version matching '9.x' found"},
	} {
		r.Apply("HelmChart/site", `"chart":"site","version":"`+version+`",`+ofIndex)
		u := r.Until("HelmChart/site", c.reason+" "+c.message, func(u *unstructured.Unstructured) bool {
			s := source.FromObject(u)
			return s.State == c.state && s.Reason == c.reason && strings.Contains(s.Message, c.message)
		})
		if s := source.FromObject(u); s.Artifact == nil || s.Artifact.Revision != "1.0.0" {
			t.Errorf("%s: the last good artifact is gone: %+v", version, s)
		}
	}
	r.Apply("HelmChart/site", `"chart":"site","version":"2.0.0",`+ofIndex, api.AnnoAcceptDigest, "true")
	r.Ready("HelmChart/site", "2.0.0")
	if s := r.Ask("HelmChart/site"); !strings.Contains(s.Message, "its digest is not that of the index") {
		t.Errorf("%+v", s)
	}
	r.Apply("HelmChart/alone", `"chart":"site","sourceRef":{"kind":"HelmRepository","name":"none"}`)
	r.In("HelmChart/alone", source.Failed, "SourceUnavailable")
	r.Apply("HelmRepository/none", `"url":"`+h.URL+`/none"`)
	r.In("HelmRepository/none", source.Failed, "Failed")
	r.Ask("HelmChart/alone")
	r.In("HelmChart/alone", source.Failed, "NoSourceArtifact")
	r.Apply("HelmChart/signed", `"chart":"site","verify":{"provider":"cosign","secretRef":{"name":"keys"}},`+ofIndex)
	if s := r.In("HelmChart/signed", source.Failed, "ChartVerificationError"); !slices.ContainsFunc(s.Conditions, func(c source.Condition) bool {
		return c.Type == "SourceVerified" && c.Status == "False" && c.Reason == "VerificationError"
	}) {
		t.Errorf("%+v", s)
	}
}

// TestBadIndexes: an index that is too large or none is refused, and a repository that is away keeps
// its artifact.
func TestBadIndexes(t *testing.T) {
	t.Parallel()
	h, r := newHost(t), newRig(t)
	h.publish("1.0.0", "", nil)
	r.Apply("HelmRepository/charts", `"url":"`+h.URL+`"`)
	r.In("HelmRepository/charts", source.Ready, "Succeeded")
	h.serve("/page/index.yaml", []byte("<html>\n"))
	r.Apply("HelmRepository/page", `"url":"`+h.URL+`/page"`)
	r.In("HelmRepository/page", source.Failed, "IndexationFailed")
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for chunk := make([]byte, 1<<20); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	t.Cleanup(endless.Close)
	r.Apply("HelmRepository/endless", `"url":"`+endless.URL+`"`)
	if s := r.In("HelmRepository/endless", source.Failed, "Failed"); !strings.Contains(s.Message, "limit") {
		t.Errorf("%+v", s)
	}
	for name, spec := range map[string]string{
		"scheme":   `"url":"oci://example.com/charts","type":"default"`,
		"registry": `"url":"https://example.com/charts","type":"oci"`,
		"password": `"url":"https://ann:hunter22@example.com/charts"`,
		"login":    `"url":"oci://ann:hunter22@example.com/charts","type":"oci"`,
		"odd":      `"url":"https://ann:hunter22@example.com:x/charts"`,
		"nowhere":  `"url":"oci://","type":"oci"`,
	} {
		r.Apply("HelmRepository/"+name, spec)
		if s := r.In("HelmRepository/"+name, source.Stalled, "URLInvalid"); strings.Contains(fmt.Sprint(s), "hunter22") {
			t.Errorf("%s: %+v", name, s)
		}
	}
	r.Apply("HelmChart/nowhere", `"chart":"site","sourceRef":{"kind":"HelmRepository","name":"nowhere"}`)
	r.In("HelmChart/nowhere", source.Failed, "SourceUnavailable")
	r.Apply("HelmRepository/nowhere", `"url":"oci://example.com","type":"oci"`)
	r.Until("HelmRepository/nowhere", "static", func(u *unstructured.Unstructured) bool {
		return len(u.GetFinalizers()) == 0 && source.FromObject(u).State == source.Ready
	})
	h.serve("/index.yaml", nil)
	if s := r.Ask("HelmRepository/charts"); s.Reason != "IndexationFailed" || s.Artifact == nil {
		t.Errorf("%+v", s)
	}
}

// TestCredentials: they go to the host of the index alone, unless the spec says otherwise; and a
// change of their Secret is noticed.
func TestCredentials(t *testing.T) {
	t.Parallel()
	h, other, r := newHost(t), newHost(t), newRig(t)
	body := h.publish("1.0.0", "", nil)
	other.serve("/site-1.0.0.tgz", body)
	h.serve("/index.yaml", bytes.ReplaceAll(h.files["/index.yaml"], []byte("- site-1"), []byte("- "+other.URL+"/site-1")))
	h.login = "ann:secret"
	r.Secret("login", map[string]any{"username": "ann", "password": "wrong"})
	r.Apply("HelmRepository/charts", `"url":"`+h.URL+`","secretRef":{"name":"login"}`)
	r.In("HelmRepository/charts", source.Failed, "AuthenticationFailed")
	r.Secret("login", map[string]any{"username": "ann", "password": "secret"})
	r.In("HelmRepository/charts", source.Ready, "Succeeded")
	r.Apply("HelmChart/site", `"chart":"site",`+ofIndex)
	r.Ready("HelmChart/site", "1.0.0")
	if seen := other.take(); !slices.Equal(seen, []string{"/site-1.0.0.tgz  200"}) {
		t.Errorf("%q", seen)
	}
	r.Apply("HelmRepository/charts", `"url":"`+h.URL+`","secretRef":{"name":"login"},"passCredentials":true`)
	r.Apply("HelmChart/again", `"chart":"site",`+ofIndex)
	r.Ready("HelmChart/again", "1.0.0")
	if seen := other.take(); len(seen) != 1 || !strings.Contains(seen[0], " ann ") {
		t.Errorf("%q", seen)
	}
	away := httptest.NewServer(http.RedirectHandler(other.URL+"/site-1.0.0.tgz", http.StatusFound))
	t.Cleanup(away.Close)
	r.Apply("HelmRepository/away", `"url":"`+away.URL+`","secretRef":{"name":"login"}`)
	r.In("HelmRepository/away", source.Failed, "IndexationFailed")
	if seen := other.take(); len(seen) == 0 || strings.Contains(seen[0], "ann") {
		t.Errorf("%q", seen)
	}
}

// TestQuery: the query of a repository is part of the addresses that are relative to it, as with
// Helm, and of no message; one of another host does not get it.
func TestQuery(t *testing.T) {
	t.Parallel()
	h, other, r := newHost(t), newHost(t), newRig(t)
	body := h.publish("1.0.0", "", nil)
	other.serve("/site-2.0.0.tgz", h.publish("2.0.0", "", nil))
	h.serve("/index.yaml", bytes.ReplaceAll(h.files["/index.yaml"], []byte("- site-2"), []byte("- "+other.URL+"/site-2")))
	r.Apply("HelmRepository/charts", `"url":"`+h.URL+`/?pass=hunter22"`)
	r.Apply("HelmChart/site", `"chart":"site","version":"1.x",`+ofIndex)
	r.Ready("HelmChart/site", "1.0.0")
	if _, got := r.Bytes("HelmChart/site"); !bytes.Equal(got, body) {
		t.Error("the bytes are not those that were published")
	}
	if seen := h.take(); !slices.Equal(seen, []string{"/index.yaml?pass=hunter22  200", "/site-1.0.0.tgz?pass=hunter22  200"}) {
		t.Errorf("%q", seen)
	}
	r.Apply("HelmChart/away", `"chart":"site","version":"2.x",`+ofIndex)
	r.Ready("HelmChart/away", "2.0.0")
	if seen := other.take(); !slices.Equal(seen, []string{"/site-2.0.0.tgz  200"}) {
		t.Errorf("%q", seen)
	}
	mute := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(mute.Close)
	third := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Referer() != "" {
			t.Errorf("another host gets %s", r.Referer())
		}
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(third.Close)
	away := httptest.NewServer(http.RedirectHandler(third.URL, http.StatusFound))
	t.Cleanup(away.Close)
	for name, url := range map[string]string{"none": h.URL + "/none", "mute": mute.URL, "away": away.URL} {
		r.Apply("HelmRepository/"+name, `"url":"`+url+`?pass=hunter22"`)
		if s := r.In("HelmRepository/"+name, source.Failed, "Failed"); strings.Contains(s.Message, "hunter22") {
			t.Error(s.Message)
		}
	}
}

// TestClientCertificate: it is shown to the host of the index alone, and to none to which that
// redirects.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	r, authority := newRig(t), nettest.NewAuthority(t)
	index := []byte("apiVersion: v1\nentries: {}\n")
	other, toOther := authority.ServeAsking(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(index) }))
	url, toHost := authority.ServeAsking(t, http.RedirectHandler(other, http.StatusFound))
	cert, key := authority.Client(t, time.Now().Add(time.Hour))
	r.Secret("cert", map[string]any{"ca.crt": string(authority.PEM), "tls.crt": string(cert), "tls.key": string(key)})
	r.Apply("HelmRepository/charts", `"url":"`+url+`","certSecretRef":{"name":"cert"}`)
	r.In("HelmRepository/charts", source.Ready, "Succeeded")
	if toHost.Load() == 0 || toOther.Load() > 0 {
		t.Errorf("%d certificates to the host, %d to the other one", toHost.Load(), toOther.Load())
	}
	plain := newHost(t)
	plain.publish("1.0.0", "", nil)
	down := authority.Serve(t, nettest.Site{Handler: http.RedirectHandler(plain.URL+"/index.yaml", http.StatusFound)})
	r.Apply("HelmRepository/down", `"url":"`+down+`","certSecretRef":{"name":"cert"}`)
	r.In("HelmRepository/down", source.Failed, "Failed")
	if seen := plain.take(); len(seen) > 0 {
		t.Errorf("from https to plain http: %q", seen)
	}
}

// TestDirectory: a directory of this host is a repository, and none outside of the permitted ones.
func TestDirectory(t *testing.T) {
	t.Parallel()
	h, r := newHost(t), newRig(t)
	body := h.publish("1.0.0", "", nil)
	for name, data := range map[string][]byte{"index.yaml": h.files["/index.yaml"], "site-1.0.0.tgz": body} {
		if err := os.WriteFile(filepath.Join(r.local, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pipe := filepath.Join(r.local, "pipe")
	if err := errors.Join(os.Mkdir(pipe, 0o700), syscall.Mkfifo(filepath.Join(pipe, "index.yaml"), 0o600)); err != nil {
		t.Fatal(err)
	}
	r.Apply("HelmRepository/charts", `"url":"file://`+r.local+`"`)
	r.Apply("HelmChart/site", `"chart":"site",`+ofIndex)
	r.Ready("HelmChart/site", "1.0.0")
	index := strings.ReplaceAll(string(h.files["/index.yaml"]), "- site-1.0.0.tgz", "- ../../../../etc/passwd")
	if err := os.WriteFile(filepath.Join(r.local, "index.yaml"), []byte(index), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Ask("HelmRepository/charts")
	r.Apply("HelmChart/away", `"chart":"site",`+ofIndex)
	r.In("HelmChart/away", source.Failed, "ChartPullError")
	r.Apply("HelmRepository/away", `"url":"file:///etc"`)
	r.In("HelmRepository/away", source.Failed, "Failed")
	r.Apply("HelmRepository/pipe", `"url":"file://`+pipe+`"`)
	r.In("HelmRepository/pipe", source.Failed, "Failed")
}

// TestStart: a chart does not fail because its repository has not been listed yet.
func TestStart(t *testing.T) {
	t.Parallel()
	k, _ := api.SourceKind("HelmRepository")
	unlisted := source.Watchers{source.NewWatcher(nil, k, "default", slog.New(slog.DiscardHandler), func() {})}
	spec, err := helmchart.New(helmchart.Options{Sources: unlisted}).Read(&unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"interval": "1h", "chart": "lamp", "sourceRef": map[string]any{"kind": "HelmRepository", "name": "site"}}}})
	if err != nil {
		t.Fatal(err)
	}
	err = spec.Open(controller.Visit{Stored: artifact.Artifact{Digest: "sha256:00"}}).Require(t.Context())
	if _, is := errors.AsType[*controller.Failure](err); err == nil || is {
		t.Errorf("%v", err)
	}
}

// TestRegistry: a repository of type oci has no status, and its charts are those of the registry.
func TestRegistry(t *testing.T) {
	t.Parallel()
	h, r := sourcetest.NewRegistry(t, "charts/site"), newRig(t)
	push := func(tag string, chart []byte) string {
		layer := h.Blob("application/vnd.cncf.helm.chart.content.v1.tar+gzip", chart)
		h.Push(ocispec.Manifest{Layers: []ocispec.Descriptor{layer}}, tag)
		return string(layer.Digest)
	}
	first := push("1.0.0", sourcetest.Tarball(map[string]string{"site/Chart.yaml": chart("site", "1.0.0")}))
	built := push("1.1.0_b1", sourcetest.Tarball(map[string]string{"site/Chart.yaml": chart("site", "1.1.0+b1")}))
	push("2.0.0", sourcetest.Tarball(map[string]string{"site/Chart.yaml": chart("other", "2.0.0")}))
	at := strings.TrimSuffix(h.Address(), "/site")
	r.Apply("HelmRepository/charts", `"url":"`+h.URL+`"`)
	r.In("HelmRepository/charts", source.Failed, "Failed")
	r.Apply("HelmRepository/charts", `"url":"`+at+`","type":"oci","insecure":true`)
	u := r.Until("HelmRepository/charts", "static", func(u *unstructured.Unstructured) bool {
		return len(u.GetFinalizers()) == 0 && source.FromObject(u).State == source.Ready
	})
	if conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions"); len(conditions) > 0 {
		t.Errorf("%v", u.Object["status"])
	}
	r.Apply("HelmChart/exact", `"chart":"site","version":"1.0.0",`+ofIndex)
	r.Apply("HelmChart/range", `"chart":"site","version":"1.x",`+ofIndex)
	r.Apply("HelmChart/other", `"chart":"site","version":"2.0.0",`+ofIndex)
	r.Apply("HelmChart/none", `"chart":"site","version":"9.x",`+ofIndex)
	r.Ready("HelmChart/exact", "1.0.0")
	r.Ready("HelmChart/range", "1.1.0+b1")
	if a, _ := r.Bytes("HelmChart/exact"); a.Digest != first {
		t.Errorf("%+v", a)
	}
	if a, _ := r.Bytes("HelmChart/range"); a.Digest != built {
		t.Errorf("%+v", a)
	}
	r.In("HelmChart/other", source.Failed, "ChartPullError")
	r.In("HelmChart/none", source.Failed, "InvalidChartReference")
	h.Take()
	r.Ask("HelmChart/exact")
	if seen := h.Take(); !slices.Equal(seen, []string{"HEAD manifests/1.0.0"}) {
		t.Errorf("for nothing new: %q", seen)
	}
	h.Set(func() { h.Login = "ann:secret" })
	r.Ask("HelmChart/exact")
	r.In("HelmChart/exact", source.Failed, "AuthenticationFailed")
	r.Secret("login", map[string]any{"username": "ann", "password": "secret"})
	r.Apply("HelmRepository/charts", `"url":"`+at+`","type":"oci","insecure":true,"secretRef":{"name":"login"}`)
	if s := r.Ask("HelmChart/exact"); s.State != source.Ready {
		t.Errorf("%+v", s)
	}
}

// TestTwiceInASecond: an index that changes again in the second of its last change is read again.
func TestTwiceInASecond(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	at := time.Now().UTC().Format(http.TimeFormat)
	var times atomic.Int64 // that it has changed
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Date", at)
		w.Header().Set("Last-Modified", at)
		if q.Header.Get("If-Modified-Since") == at {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprintf(w, "apiVersion: v1\nentries: {}\ngenerated: %d\n", times.Load())
	}))
	t.Cleanup(server.Close)
	r.Apply("HelmRepository/charts", `"url":"`+server.URL+`"`)
	before := r.In("HelmRepository/charts", source.Ready, "Succeeded")
	times.Add(1)
	if after := r.Ask("HelmRepository/charts"); after.Artifact.Revision == before.Artifact.Revision {
		t.Errorf("%s again", after.Artifact.Revision)
	}
}
