package sourcetest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Registry is a registry with one repository. It speaks the part of the distribution API that is read.
type Registry struct {
	*httptest.Server
	name string

	mu        sync.Mutex // guards what follows
	Blobs     map[digest.Digest][]byte
	Manifests map[string][]byte // by tag and by digest
	seen      []string          // requests
	Logins    int               // that came with them
	Login     string            // USER:PASSWORD that is demanded
	Cut       int               // bytes after which the next blob ends
	Away      bool              // there is no blob after the one that ends so
	Long      bool              // the next blob has a byte too many
	Elsewhere string            // where the blobs are
}

// NewRegistry starts one with a repository of a name.
func NewRegistry(t *testing.T, name string) *Registry {
	h := &Registry{name: name, Blobs: map[digest.Digest][]byte{}, Manifests: map[string][]byte{}}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

func (h *Registry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	what := strings.TrimPrefix(r.URL.Path, "/v2/"+h.name+"/")
	h.seen = append(h.seen, strings.TrimSpace(r.Method+" "+what+" "+r.Header.Get("Range")))
	if r.Header.Get("Authorization") != "" {
		h.Logins++
	}
	if user, password, _ := r.BasicAuth(); h.Login != "" && user+":"+password != h.Login {
		w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	kind, name, _ := strings.Cut(what, "/")
	switch {
	case kind == "tags":
		tags := slices.DeleteFunc(slices.Sorted(maps.Keys(h.Manifests)), func(tag string) bool { return strings.Contains(tag, ":") })
		_ = json.NewEncoder(w).Encode(map[string]any{"name": h.name, "tags": tags})
	case kind == "manifests" && h.Manifests[name] != nil:
		body := h.Manifests[name]
		var m struct{ MediaType string }
		_ = json.Unmarshal(body, &m)
		w.Header().Set("Content-Type", m.MediaType)
		w.Header().Set("Docker-Content-Digest", string(digest.FromBytes(body)))
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		if r.Method == http.MethodGet {
			_, _ = w.Write(body)
		}
	case kind == "blobs" && h.Blobs[digest.Digest(name)] != nil && !(h.Away && h.Cut == 0):
		h.blob(w, r, h.Blobs[digest.Digest(name)])
	default:
		http.NotFound(w, r)
	}
}

func (h *Registry) blob(w http.ResponseWriter, r *http.Request, body []byte) {
	w.Header().Set("Accept-Ranges", "bytes")
	switch {
	case h.Elsewhere != "":
		http.Redirect(w, r, h.Elsewhere+r.URL.Path, http.StatusTemporaryRedirect)
	case h.Cut > 0:
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body[:h.Cut])
		_ = http.NewResponseController(w).Flush()
		h.Cut = 0
		panic(http.ErrAbortHandler)
	case h.Long:
		h.Long = false
		_, _ = w.Write(append(bytes.Clone(body), 'x'))
	default:
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	}
}

// Address is that of the repository.
func (h *Registry) Address() string {
	return "oci://" + strings.TrimPrefix(h.URL, "http://") + "/" + h.name
}

// Take returns the requests since the last call.
func (h *Registry) Take() (seen []string) {
	h.Set(func() { seen, h.seen = h.seen, nil })
	return seen
}

// Set changes what the registry does.
func (h *Registry) Set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

// Blob adds a blob.
func (h *Registry) Blob(mediaType string, data []byte) ocispec.Descriptor {
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	h.Set(func() { h.Blobs[d.Digest] = data })
	return d
}

// Push adds a manifest under tags.
func (h *Registry) Push(m ocispec.Manifest, tags ...string) ocispec.Descriptor {
	m.SchemaVersion = 2
	m.MediaType = ocispec.MediaTypeImageManifest
	m.Config = h.Blob("application/vnd.cncf.flux.config.v1+json", []byte("{}"))
	body, _ := json.Marshal(m)
	d := ocispec.Descriptor{MediaType: m.MediaType, Digest: digest.FromBytes(body), Size: int64(len(body)), ArtifactType: m.ArtifactType}
	h.Set(func() {
		for _, name := range append(tags, string(d.Digest)) {
			h.Manifests[name] = body
		}
	})
	return d
}

// Tarball packs files as other tools do. A content that begins with "-> " is a symbolic link.
func Tarball(files map[string]string) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content := files[name]
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
