package ocirepository_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/opencontainers/go-digest"
)

// host is a registry that speaks the part of the distribution API that is read.
type host struct {
	*httptest.Server
	mu        sync.Mutex // guards what follows
	blobs     map[digest.Digest][]byte
	manifests map[string][]byte // by tag and by digest
	seen      []string          // requests
	logins    int               // that came with them
	login     string            // USER:PASSWORD that is demanded
	cut       int               // bytes after which the next blob ends
	away      bool              // there is no blob after the one that ends so
	long      bool              // the next blob has a byte too many
	elsewhere string            // where the blobs are
}

func newHost(t *testing.T) *host {
	h := &host{blobs: map[digest.Digest][]byte{}, manifests: map[string][]byte{}}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

func (h *host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	what := strings.TrimPrefix(r.URL.Path, "/v2/site/")
	h.seen = append(h.seen, strings.TrimSpace(r.Method+" "+what+" "+r.Header.Get("Range")))
	if r.Header.Get("Authorization") != "" {
		h.logins++
	}
	if user, password, _ := r.BasicAuth(); h.login != "" && user+":"+password != h.login {
		w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	kind, name, _ := strings.Cut(what, "/")
	switch {
	case kind == "tags":
		tags := []string{}
		for tag := range h.manifests {
			if !strings.Contains(tag, ":") {
				tags = append(tags, tag)
			}
		}
		slices.Sort(tags)
		_ = json.NewEncoder(w).Encode(map[string]any{"name": "site", "tags": tags})
	case kind == "manifests" && h.manifests[name] != nil:
		body := h.manifests[name]
		var m struct{ MediaType string }
		_ = json.Unmarshal(body, &m)
		w.Header().Set("Content-Type", m.MediaType)
		w.Header().Set("Docker-Content-Digest", string(digest.FromBytes(body)))
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		if r.Method == http.MethodGet {
			_, _ = w.Write(body)
		}
	case kind == "blobs" && h.blobs[digest.Digest(name)] != nil && !(h.away && h.cut == 0):
		body := h.blobs[digest.Digest(name)]
		if h.elsewhere != "" {
			http.Redirect(w, r, h.elsewhere+r.URL.Path, http.StatusTemporaryRedirect)
			return
		}
		w.Header().Set("Accept-Ranges", "bytes")
		if h.cut > 0 {
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			_, _ = w.Write(body[:h.cut])
			_ = http.NewResponseController(w).Flush()
			h.cut = 0
			panic(http.ErrAbortHandler)
		}
		if h.long && r.Method == http.MethodGet {
			h.long = false
			_, _ = w.Write(append(bytes.Clone(body), 'x'))
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	default:
		http.NotFound(w, r)
	}
}

// url is that of the one repository.
func (h *host) url() string { return "oci://" + strings.TrimPrefix(h.URL, "http://") + "/site" }

// take returns the requests since the last call.
func (h *host) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.seen
	h.seen = nil
	return out
}

func (h *host) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

func (h *host) blob(mediaType string, data []byte) ocispec.Descriptor {
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	h.set(func() { h.blobs[d.Digest] = data })
	return d
}

// push adds a manifest under tags and returns its digest.
func (h *host) push(m ocispec.Manifest, tags ...string) ocispec.Descriptor {
	m.SchemaVersion = 2
	m.MediaType = ocispec.MediaTypeImageManifest
	m.Config = h.blob("application/vnd.cncf.flux.config.v1+json", []byte("{}"))
	body, _ := json.Marshal(m)
	d := ocispec.Descriptor{MediaType: m.MediaType, Digest: digest.FromBytes(body), Size: int64(len(body)), ArtifactType: m.ArtifactType}
	h.set(func() {
		for _, name := range append(tags, string(d.Digest)) {
			h.manifests[name] = body
		}
	})
	return d
}

const layerType = "application/vnd.cncf.flux.content.v1.tar+gzip"

// release pushes files as flux push artifact does.
func (h *host) release(files map[string]string, tags ...string) (string, []byte) {
	data := packed(files)
	d := h.push(ocispec.Manifest{Layers: []ocispec.Descriptor{h.blob(layerType, data)},
		Annotations: map[string]string{ocispec.AnnotationSource: "https://git.example.com/site", ocispec.AnnotationRevision: "main@sha1:1234"}}, tags...)
	return string(d.Digest), data
}

func packed(files map[string]string) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for name, content := range files {
		h := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}
		if target, link := strings.CutPrefix(content, "-> "); link {
			h.Typeflag, h.Size, h.Linkname, content = tar.TypeSymlink, 0, target, ""
		}
		_ = w.WriteHeader(h)
		_, _ = w.Write([]byte(content))
	}
	_ = w.Close()
	_ = z.Close()
	return out.Bytes()
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

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(s[:])
}
