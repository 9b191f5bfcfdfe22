package ocirepository_test

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"maps"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/source"
	"limpet/sync/source/kind/ocirepository"
	"limpet/sync/testenv/nettest"
	"limpet/sync/testenv/sourcetest"
	"limpet/sync/testenv/suite"
)

// TestFollow: a tag is followed; what has not changed costs one HEAD, a new revision a manifest and
// a layer more.
func TestFollow(t *testing.T) {
	t.Parallel()
	h := sourcetest.NewRegistry(t, "site")
	r := newRig(t, h)
	first, _ := release(h, map[string]string{"z.yaml": "z", "a/b.yaml": "b", "logo.png": "x", "link": "-> z.yaml"}, "latest")
	r.Apply("site", ``)
	status := r.Status("site", "latest@"+first)
	made := status["artifact"].(map[string]any)
	metadata, _ := made["metadata"].(map[string]any)
	if path := "ocirepository/default/site/" + strings.TrimPrefix(first, "sha256:") + ".tar.gz"; made["path"] != path ||
		made["url"] != "http://artifacts.example.com/"+path || metadata[ocispec.AnnotationRevision] != "main@sha1:1234" {
		t.Errorf("%v", made)
	}
	if _, files := r.Files("site"); !maps.Equal(files, map[string]string{"z.yaml": "z", "a/b.yaml": "b"}) {
		t.Errorf("%v", files)
	}
	h.Take()
	r.Ask("site")
	if seen := h.Take(); !slices.Equal(seen, []string{"HEAD manifests/latest"}) {
		t.Errorf("for nothing new: %q", seen)
	}
	second, _ := release(h, map[string]string{"a.yaml": "2"}, "latest")
	r.Ask("site")
	r.Ready("site", "latest@"+second)
	if seen := h.Take(); len(seen) != 3 {
		t.Errorf("for a new revision: %q", seen)
	}
	h.Set(func() { h.Login = "a:b" })
	if s := r.Ask("site"); s.Artifact == nil || s.Artifact.Revision != "latest@"+second {
		t.Errorf("%+v", s)
	}
	if s := r.In("site", source.Failed, "AuthenticationFailed"); s.Artifact == nil {
		t.Errorf("the last good artifact is gone: %+v", s)
	}
}

// TestSink: a directory gets the files of a layer, one that is no archive as a file, and none of one
// that is copied and would fill the disk.
func TestSink(t *testing.T) {
	t.Parallel()
	h := sourcetest.NewRegistry(t, "site")
	r := newRig(t, h)
	for name, c := range map[string]struct {
		layer           []byte
		status, is, has string
	}{
		"files": {sourcetest.Tarball(map[string]string{"a/b": "1"}), "True", "a/b", "1"},
		"plain": {[]byte("text"), "True", "layer", "text"},
		"bomb":  {sourcetest.Tarball(map[string]string{"a": strings.Repeat("0", 2<<20)}), "False", "a", ""},
	} {
		layer := h.Blob("x/y", c.layer)
		h.Push(ocispec.Manifest{Config: h.Blob("x/config", []byte(name)), Layers: []ocispec.Descriptor{layer}}, name)
		dir := filepath.Join(r.layouts, name)
		r.Apply(name, `"ref":{"tag":"`+name+`"},"layerSelector":{"operation":"copy"}`, api.AnnoSinkDir, dir)
		r.Until(name, "in its directory: "+c.status, func(u *unstructured.Unstructured) bool {
			list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
			_, is := api.FindCondition(list, api.ConditionSinkReady)
			return is["status"] == c.status
		})
		if data, _ := os.ReadFile(filepath.Join(dir, c.is)); string(data) != c.has {
			t.Errorf("%s: %q", name, data)
		}
	}
}

// TestRefs: each kind of ref, and what it becomes.
func TestRefs(t *testing.T) {
	t.Parallel()
	h := sourcetest.NewRegistry(t, "site")
	r := newRig(t, h)
	one, layer := release(h, map[string]string{"a": "1"}, "v1.0.0", "1.2.0-rc.1")
	two, _ := release(h, map[string]string{"a": "2"}, "v1.1.0", "latest")
	chart := h.Push(ocispec.Manifest{Layers: []ocispec.Descriptor{h.Blob("other", []byte("x")),
		h.Blob("application/vnd.cncf.helm.chart.content.v1.tar+gzip", layer)}}, "2.0.0_build")
	for name, c := range map[string]struct{ spec, revision string }{
		"tag":        {`"ref":{"tag":"v1.0.0"}`, "v1.0.0@" + one},
		"semver":     {`"ref":{"semver":"1.x"}`, "v1.1.0@" + two},
		"filter":     {`"ref":{"semver":">=1.0.0-0","semverFilter":"rc"}`, "1.2.0-rc.1@" + one},
		"digest":     {`"ref":{"digest":"` + one + `","semver":"1.x"}`, one},
		"ignore":     {`"ignore":"a"`, "latest@" + two},
		"copy":       {`"ref":{"tag":"2.0.0_build"},"layerSelector":{"mediaType":"application/vnd.cncf.helm.chart.content.v1.tar+gzip","operation":"copy"}`, "2.0.0_build@" + string(chart.Digest)},
		"chartrange": {`"ref":{"semver":"2.x"},"layerSelector":{"mediaType":"application/vnd.cncf.helm.chart.content.v1.tar+gzip"}`, "2.0.0_build@" + string(chart.Digest)},
	} {
		r.Apply(name, c.spec)
		r.Ready(name, c.revision)
	}
	if a, _ := r.Files("copy"); a.Digest != string(digest.FromBytes(layer)) || a.Size != int64(len(layer)) {
		t.Errorf("a copy: %+v", a)
	}
	if _, files := r.Files("ignore"); len(files) != 0 {
		t.Errorf("%v", files)
	}
	if s := r.Status("copy", "2.0.0_build@"+string(chart.Digest)); s["observedLayerSelector"] == nil {
		t.Errorf("%v", s)
	}
	h.Take()
	r.Ask("digest")
	if seen := h.Take(); len(seen) != 0 {
		t.Errorf("for a stored digest: %q", seen)
	}
	r.Ask("semver")
	if seen := h.Take(); len(seen) != 2 {
		t.Errorf("for a range: %q", seen)
	}
}

// TestResume: a download that was cut goes on where it ended.
func TestResume(t *testing.T) {
	t.Parallel()
	h := sourcetest.NewRegistry(t, "site")
	r := newRig(t, h)
	revision, layer := release(h, map[string]string{"a": rand.Text() + rand.Text()}, "latest")
	h.Set(func() { h.Cut = len(layer) - 10 })
	r.Apply("site", ``)
	r.Ready("site", "latest@"+revision)
	if seen := h.Take(); !slices.ContainsFunc(seen, func(s string) bool { return strings.Contains(s, "bytes=") }) {
		t.Errorf("%q", seen)
	}
}

// TestPowerCuts: whatever a power cut has left of a download, the next look ends with the right bytes,
// and nothing stays of what they were made of.
func TestPowerCuts(t *testing.T) {
	t.Parallel()
	h := sourcetest.NewRegistry(t, "site")
	r := newRig(t, h)
	draw := mathrand.New(mathrand.NewPCG(suite.Seed(t), 0))
	last, _ := release(h, map[string]string{"a": "first"}, "latest")
	r.Apply("site", ``)
	r.Ready("site", "latest@"+last)
	for n := range suite.Count(20, 1000) {
		files := map[string]string{}
		for i := range 1 + draw.IntN(20) {
			files[strconv.Itoa(i)] = rand.Text() + rand.Text()
		}
		revision, layer := release(h, files, "latest")
		h.Set(func() { h.Away, h.Cut = true, 1+draw.IntN(len(layer)-1) })
		s := r.Ask("site")
		if s.State != source.Failed || s.Artifact == nil || s.Artifact.Revision != "latest@"+last {
			t.Fatalf("cut %d: %+v", n, s)
		}
		left, _ := filepath.Glob(filepath.Join(r.layers, "*"))
		if len(left) != 1 {
			t.Fatalf("cut %d: %q", n, left)
		}
		// What was not synced: any blocks of it, and any length.
		data, _ := os.ReadFile(left[0])
		for at := range data {
			if at%64 == 0 && draw.IntN(4) == 0 {
				clear(data[at:min(at+64, len(data))])
			}
		}
		data = append(data[:draw.IntN(len(data)+1)], make([]byte, draw.IntN(2)*draw.IntN(2*len(layer)))...)
		if err := os.WriteFile(left[0], data, 0o600); err != nil {
			t.Fatal(err)
		}
		h.Set(func() { h.Away = false })
		if s := r.Ask("site"); s.State != source.Ready || s.Artifact.Revision != "latest@"+revision {
			t.Fatalf("after cut %d: %+v", n, s)
		}
		a, got := r.Files("site")
		if !maps.Equal(got, files) {
			t.Fatalf("after cut %d: %v", n, got)
		}
		// The power may go before the name of what was stored is removed.
		owner, _, _ := strings.Cut(left[0], ".")
		if err := os.WriteFile(owner+"."+strings.TrimPrefix(a.Digest, "sha256:"), layer, 0o600); err != nil {
			t.Fatal(err)
		}
		r.Ask("site")
		if left, _ := filepath.Glob(filepath.Join(r.layers, "*")); len(left) > 0 {
			t.Fatalf("after cut %d: %q", n, left)
		}
		last = revision
	}
}

// TestTooLong: a download that brought too much begins anew, as no part is behind it.
func TestTooLong(t *testing.T) {
	t.Parallel()
	h := sourcetest.NewRegistry(t, "site")
	r := newRig(t, h)
	revision, _ := release(h, map[string]string{"a": "1"}, "latest")
	h.Set(func() { h.Long = true })
	r.Apply("site", ``)
	r.Ready("site", "latest@"+revision)
}

// TestLogin: a Secret of Docker's form is used, and its change is noticed.
func TestLogin(t *testing.T) {
	t.Parallel()
	h := sourcetest.NewRegistry(t, "site")
	r := newRig(t, h)
	revision, _ := release(h, map[string]string{"a": "1"}, "latest")
	h.Set(func() { h.Login = "robot:geheim" })
	r.Apply("site", `"secretRef":{"name":"login"}`)
	r.In("site", source.Failed, "AuthenticationFailed")
	registry := strings.TrimPrefix(h.URL, "http://")
	login := base64.StdEncoding.EncodeToString([]byte("robot:geheim"))
	r.Secret("login", map[string]any{".dockerconfigjson": `{"auths":{"https://` + registry + `/v1/":{"auth":"` + login + `"}}}`})
	r.Ready("site", "latest@"+revision)
	// The first Secret of a service account that has a login for the registry is used.
	r.Secret("other", map[string]any{".dockerconfigjson": `{"auths":{"ghcr.io":{"auth":"` + login + `"}}}`})
	r.Apply("account", `"serviceAccountName":"robot"`)
	r.Ready("account", "latest@"+revision)
}

// TestTransport: an authority and a proxy of a Secret are used, and changes of them are noticed; what is
// redirected to another host comes without the login.
func TestTransport(t *testing.T) {
	t.Parallel()
	h := sourcetest.NewRegistry(t, "site")
	secure := httptest.NewTLSServer(h)
	t.Cleanup(secure.Close)
	var proxied atomic.Int64
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		proxied.Add(1)
		p.Out.URL.Scheme, p.Out.URL.Host = "http", strings.TrimPrefix(h.URL, "http://")
	}})
	t.Cleanup(proxy.Close)
	r := newRig(t, h)
	revision, layer := release(h, map[string]string{"a": "1"}, "latest")
	at := strings.TrimPrefix(secure.URL, "https://")
	r.Apply("secure", `"insecure":false,"url":"oci://`+at+`/site","certSecretRef":{"name":"ca"}`)
	r.In("secure", source.Failed, "AuthenticationFailed")
	r.Secret("ca", map[string]any{"ca.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: newCertificate(t)}))})
	r.In("secure", source.Failed, "OCIArtifactPullFailed")
	r.Secret("ca", map[string]any{"ca.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))})
	r.Ready("secure", "latest@"+revision)

	r.Secret("proxy", map[string]any{"address": proxy.URL})
	r.Apply("proxied", `"url":"oci://registry.example.com/site","proxySecretRef":{"name":"proxy"}`)
	r.Ready("proxied", "latest@"+revision)
	if proxied.Load() < 3 {
		t.Errorf("%d requests by the proxy", proxied.Load())
	}

	far := sourcetest.NewRegistry(t, "site")
	far.Blob(layerType, layer)
	h.Set(func() { h.Login, h.Elsewhere = "a:b", strings.Replace(far.URL, "127.0.0.1", "localhost", 1) })
	r.Secret("login", map[string]any{".dockerconfigjson": `{"auths":{"` + strings.TrimPrefix(h.URL, "http://") + `":{"username":"a","password":"b"}}}`})
	r.Apply("redirected", `"secretRef":{"name":"login"}`)
	r.Ready("redirected", "latest@"+revision)
	if seen := far.Take(); len(seen) != 1 || far.Logins > 0 {
		t.Errorf("%q, %d logins at the other host", seen, far.Logins)
	}
}

// TestClientCertificate: it is shown to the registry alone, and not where the blobs are.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	h, authority := sourcetest.NewRegistry(t, "site"), nettest.NewAuthority(t)
	r := newRig(t, h)
	revision, _ := release(h, map[string]string{"a": "1"}, "latest")
	blobs := sourcetest.NewRegistry(t, "site")
	maps.Copy(blobs.Blobs, h.Blobs)
	elsewhere, other := authority.ServeAsking(t, blobs)
	h.Elsewhere = elsewhere
	cert, key := authority.Client(t, time.Now().Add(time.Hour))
	r.Secret("cert", map[string]any{"ca.crt": string(authority.PEM), "tls.crt": string(cert), "tls.key": string(key)})
	registry, own := authority.ServeAsking(t, h)
	at := strings.TrimPrefix(registry, "https://")
	r.Apply("site", `"insecure":false,"url":"oci://`+at+`/site","certSecretRef":{"name":"cert"}`)
	r.Ready("site", "latest@"+revision)
	if own.Load() == 0 || other.Load() > 0 || len(blobs.Take()) == 0 {
		t.Errorf("%d certificates to the registry, %d to the other host", own.Load(), other.Load())
	}
}

// newCertificate returns the certificate of another authority.
func newCertificate(t *testing.T) []byte {
	t.Helper()
	key := newSigner(t).key
	c := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// TestShared: sources of one repository and one login share the answer to a HEAD; those of another
// login have their own. A host that takes requests and answers none ends a look in its timeout.
func TestShared(t *testing.T) {
	t.Parallel()
	h := sourcetest.NewRegistry(t, "site")
	r := newRig(t, h)
	revision, _ := release(h, map[string]string{"a": "1"}, "latest")
	r.Secret("login", map[string]any{".dockerconfigjson": `{"auths":{"` + strings.TrimPrefix(h.URL, "http://") + `":{"username":"a","password":"b"}}}`})
	for name, spec := range map[string]string{"one": "", "two": "", "three": "", "other": `"secretRef":{"name":"login"}`} {
		r.Apply(name, spec)
	}
	for _, name := range []string{"one", "two", "three", "other"} {
		r.Ready(name, "latest@"+revision)
	}
	heads := slices.DeleteFunc(h.Take(), func(s string) bool { return !strings.HasPrefix(s, "HEAD") })
	if len(heads) != 2 {
		t.Errorf("%q", heads)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	r.Apply("silent", `"url":"oci://`+silent.Addr().String()+`/site","timeout":"200ms"`)
	r.In("silent", source.Failed, "OCIArtifactPullFailed")
}

// TestMirrors: a mirror is asked first and without the login of the source; what it lacks or has
// damaged comes from the registry. Without that the mirror suffices.
func TestMirrors(t *testing.T) {
	t.Parallel()
	h, mirror := sourcetest.NewRegistry(t, "site"), sourcetest.NewRegistry(t, "site")
	registry, near := strings.TrimPrefix(h.URL, "http://"), mirror.URL
	r := newRig(t, h, registry+"=http://127.0.0.1:1", registry+"="+near, "127.0.0.1:1="+near)
	old, _ := release(mirror, map[string]string{"a": "1"}, "latest", "1.0.0")
	r.Secret("login", map[string]any{".dockerconfigjson": `{"auths":{"` + registry + `":{"username":"a","password":"b"}}}`})
	r.Apply("mirrored", `"secretRef":{"name":"login"}`)
	r.Ready("mirrored", "latest@"+old)
	if seen := h.Take(); len(seen) > 0 || mirror.Logins > 0 {
		t.Errorf("%q, %d logins at the mirror", seen, mirror.Logins)
	}
	r.Apply("away", `"url":"oci://127.0.0.1:1/site","ref":{"semver":"1.x"}`)
	r.Ready("away", "1.0.0@"+old)

	added, _ := release(h, map[string]string{"a": "2"}, "added")
	r.Apply("lacking", `"ref":{"tag":"added"}`)
	r.Ready("lacking", "added@"+added)

	files := map[string]string{"a": rand.Text()}
	damaged, layer := release(h, files, "damaged")
	releaseLayer(mirror, layer, "damaged")
	mirror.Set(func() { bad := slices.Clone(layer); bad[20] ^= 1; mirror.Blobs[digest.FromBytes(layer)] = bad })
	r.Apply("damaged", `"ref":{"tag":"damaged"}`)
	r.Ready("damaged", "damaged@"+damaged)
	if _, got := r.Files("damaged"); !maps.Equal(got, files) {
		t.Errorf("%v", got)
	}
}

// TestParseMirrors: what is no mirror is refused.
func TestParseMirrors(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "ghcr.io", "=mirror", "ghcr.io=", "ghcr.io=mirror/a:tag", "ghcr.io=ftp://mirror", "a/b=mirror", "ghcr.io=u:p@mirror"} {
		if _, err := ocirepository.ParseMirrors([]string{bad}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	for _, good := range []string{"ghcr.io=mirror.site:5000/ghcr/", "docker.io=http://10.0.0.1", "ghcr.io=https://mirror"} {
		if _, err := ocirepository.ParseMirrors([]string{good}); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}

// TestBad: what is wrong has the reason of Flux, and no artifact is made of it.
func TestBad(t *testing.T) {
	t.Parallel()
	h := sourcetest.NewRegistry(t, "site")
	r := newRig(t, h)
	layer := func(tag string, data []byte) {
		h.Push(ocispec.Manifest{Layers: []ocispec.Descriptor{h.Blob(layerType, data)}}, tag)
	}
	layer("plain", []byte("no gzip"))
	layer("dots", sourcetest.Tarball(map[string]string{"../a": "1"}))
	layer("bomb", sourcetest.Tarball(map[string]string{"a": strings.Repeat("0", 2<<20)}))
	h.Push(ocispec.Manifest{}, "empty")
	d := h.Blob(layerType, sourcetest.Tarball(map[string]string{"a": "1"}))
	h.Push(ocispec.Manifest{Layers: []ocispec.Descriptor{d}}, "damaged")
	h.Set(func() { h.Blobs[d.Digest][20] ^= 1 })
	for name, c := range map[string]struct{ spec, state, reason string }{
		"gone":      {`"ref":{"tag":"gone"}`, source.Failed, "OCIArtifactPullFailed"},
		"range":     {`"ref":{"semver":">9"}`, source.Failed, "ReadOperationFailed"},
		"norange":   {`"ref":{"semver":"x y"}`, source.Stalled, "ReadOperationFailed"},
		"tagged":    {`"url":"` + h.Address() + `:v1"`, source.Stalled, "URLInvalid"},
		"https":     {`"insecure":false`, source.Failed, "OCIArtifactPullFailed"},
		"cloud":     {`"provider":"aws"`, source.Stalled, "InvalidProviderConfiguration"},
		"account":   {`"provider":"aws","insecure":false,"serviceAccountName":"a"`, source.Stalled, "FeatureGateDisabled"},
		"noaccount": {`"serviceAccountName":"a"`, source.Failed, "AuthenticationFailed"},
		"keyless":   {`"verify":{"provider":"cosign"}`, source.Stalled, "VerificationError"},
		"notation":  {`"verify":{"provider":"notation","secretRef":{"name":"a"}}`, source.Stalled, "VerificationError"},
		"plain":     {`"ref":{"tag":"plain"}`, source.Failed, "OCIArtifactLayerOperationFailed"},
		"dots":      {`"ref":{"tag":"dots"}`, source.Failed, "OCIArtifactLayerOperationFailed"},
		"bomb":      {`"ref":{"tag":"bomb"}`, source.Failed, "ArchiveOperationFailed"},
		"empty":     {`"ref":{"tag":"empty"}`, source.Failed, "OCIArtifactLayerOperationFailed"},
		"damaged":   {`"ref":{"tag":"damaged"}`, source.Failed, "OCIArtifactPullFailed"},
		"other":     {`"ref":{"tag":"dots"},"layerSelector":{"mediaType":"none"}`, source.Failed, "OCIArtifactLayerOperationFailed"},
		"away":      {`"url":"oci://127.0.0.1:1/site"`, source.Failed, "OCIArtifactPullFailed"},
		"layout":    {`"url":"oci-layout:///etc"`, source.Failed, "OCIArtifactPullFailed"},
	} {
		r.Apply(name, c.spec)
		if s := r.In(name, c.state, c.reason); s.Artifact != nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestLayout: a directory of this host and a tar of it are sources without a registry.
func TestLayout(t *testing.T) {
	t.Parallel()
	h := sourcetest.NewRegistry(t, "site")
	r := newRig(t, h)
	revision, layer := release(h, map[string]string{"a": "1"}, "v1")
	manifest := h.Manifests["v1"]
	files := map[string]string{
		"oci-layout": `{"imageLayoutVersion":"1.0.0"}`,
		"index.json": `{"schemaVersion":2,"manifests":[{"mediaType":"` + ocispec.MediaTypeImageManifest + `","digest":"` + revision +
			`","size":` + strconv.Itoa(len(manifest)) + `,"annotations":{"org.opencontainers.image.ref.name":"v1"}}]}`,
	}
	for _, blob := range [][]byte{manifest, layer, []byte("{}")} {
		files["blobs/sha256/"+digest.FromBytes(blob).Encoded()] = string(blob)
	}
	for name, content := range files {
		path := filepath.Join(r.layouts, "dir", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(r.layouts, "site.tar"), unpacked(t, sourcetest.Tarball(files)), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Apply("dir", `"url":"oci-layout://`+r.layouts+`/dir:v1"`)
	r.Ready("dir", "v1@"+revision)
	r.Apply("tar", `"url":"oci-layout://`+r.layouts+`/site.tar","ref":{"semver":"1.x"}`)
	r.Ready("tar", "v1@"+revision)
	for _, name := range []string{"pipe.tar", "dir/index.json"} {
		name = filepath.Join(r.layouts, name)
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.Apply("piped", `"url":"oci-layout://`+r.layouts+`/pipe.tar"`)
	r.In("piped", source.Failed, "OCIArtifactPullFailed")
	r.Apply("within", `"url":"oci-layout://`+r.layouts+`/dir:v1"`)
	r.In("within", source.Failed, "OCIArtifactPullFailed")
}

func unpacked(t *testing.T, data []byte) []byte {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
