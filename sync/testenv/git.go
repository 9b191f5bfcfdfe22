package testenv

import (
	"bytes"
	"crypto/subtle"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"limpet/sync/testenv/gittest"
)

// GitOptions say how a Git server is reached. Without a password it answers
// everybody.
type GitOptions struct {
	TLS            bool // https with a certificate of its own, see GitServer.CAFile
	User, Password string
	// Accept, when set, says who may read a repository instead.
	Accept func(user, password, path string) bool
	// MayPush, when set, says who may write as well; others get 403, as from hosts.
	MayPush func(user string) bool
}

// GitServer serves bare repositories with git http-backend, the program behind
// many hosts. It is closed at the end of the test.
type GitServer struct {
	URL    string // without a slash at the end
	CAFile string // PEM file, "" without TLS

	o       GitOptions
	http    *httptest.Server
	backend string

	mu     sync.Mutex        // guards what follows
	repos  map[string]string // directories by path
	counts GitCounts
	large  map[string]string // what Git LFS keeps, by the SHA-256
}

// GitCounts sums requests up.
type GitCounts struct {
	InfoRefs   int   // listings of references
	UploadPack int   // fetches
	PushRefs   int   // listings of references for a push, which InfoRefs leaves out
	LFSBatches int   // requests where contents of Git LFS are
	LFSGets    int   // contents of Git LFS
	Sent       int64 // body bytes of all answers
	Connected  int   // connections that were made
}

// Git starts a server without repositories; see Serve.
func Git(t testing.TB, o GitOptions) *GitServer {
	t.Helper()
	g := &GitServer{o: o, backend: gittest.Must[string](t)(gittest.Backend()), repos: map[string]string{}, large: map[string]string{}}
	g.http = httptest.NewUnstartedServer(http.HandlerFunc(g.serve))
	g.http.Config.ErrorLog = log.New(io.Discard, "", 0) // tests refuse handshakes on purpose
	g.http.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			g.count(func(c *GitCounts) { c.Connected++ })
		}
	}
	if o.TLS {
		g.http.StartTLS()
		g.CAFile = filepath.Join(t.TempDir(), "git-ca.crt")
		data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.http.Certificate().Raw})
		if err := os.WriteFile(g.CAFile, data, 0o600); err != nil {
			t.Fatal(err)
		}
	} else {
		g.http.Start()
	}
	g.URL = g.http.URL
	t.Cleanup(func() {
		g.http.CloseClientConnections()
		g.http.Close()
	})
	return g
}

// Serve makes the bare repository in dir reachable and returns its URL. The
// path is that below the server, for example "ops/dashboards.git".
func (g *GitServer) Serve(path, dir string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.repos[path] = dir
	return g.URL + "/" + path
}

// Reset returns what was asked since the start or the last Reset, and forgets
// it. A request is counted before its client has the first byte of an answer.
func (g *GitServer) Reset() GitCounts {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.counts
	g.counts = GitCounts{}
	return c
}

// serve counts the request, checks the credentials, and hands over to git
// http-backend.
func (g *GitServer) serve(w http.ResponseWriter, r *http.Request) {
	path, dir := g.find(r.URL.Path)
	push := r.URL.Query().Get("service") == "git-receive-pack" || strings.HasSuffix(r.URL.Path, "/git-receive-pack")
	g.count(func(c *GitCounts) {
		switch {
		case push && strings.HasSuffix(r.URL.Path, "/info/refs"):
			c.PushRefs++
		case strings.HasSuffix(r.URL.Path, "/info/refs"):
			c.InfoRefs++
		case strings.HasSuffix(r.URL.Path, "/git-upload-pack"):
			c.UploadPack++
		}
	})
	out := &meter{ResponseWriter: w, server: g}
	user, password, _ := r.BasicAuth()
	if !g.accepts(user, password, path) {
		out.Header().Set("WWW-Authenticate", `Basic realm="limpet test"`)
		http.Error(out, "who are you?", http.StatusUnauthorized)
		return
	}
	if push && g.o.MayPush != nil && !g.o.MayPush(user) {
		http.Error(out, "Write access to repository not granted.", http.StatusForbidden)
		return
	}
	if dir == "" {
		http.NotFound(out, r)
		return
	}
	if strings.Contains(r.URL.Path, lfsPath) {
		g.serveLFS(out, r, path)
		return
	}
	h := &cgi.Handler{
		Path: g.backend, Root: "/" + path, Dir: dir, Stderr: io.Discard, Logger: log.New(io.Discard, "", 0),
		Env: append(gittest.Quick, "GIT_PROJECT_ROOT="+dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER="+user,
			"GIT_CONFIG_NOSYSTEM=1", "HOME="+dir),
	}
	// CGI knows bodies of a given length only; git sends large ones in chunks.
	if r.ContentLength < 0 {
		if err := spool(r); err != nil {
			http.Error(out, err.Error(), http.StatusBadRequest)
			return
		}
	}
	gittest.ServeGit(h, dir, out, r)
}

func (g *GitServer) accepts(user, password, path string) bool {
	switch {
	case g.o.Accept != nil:
		return g.o.Accept(user, password, path)
	case g.o.Password == "":
		return true
	}
	return user == g.o.User && subtle.ConstantTimeCompare([]byte(password), []byte(g.o.Password)) == 1
}

// ServeHTTP answers as the server itself does, for one that is in front of it.
func (g *GitServer) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.serve(w, r) }

func (g *GitServer) count(add func(*GitCounts)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	add(&g.counts)
}

// find returns which repository a URL path is in; dir is "" when there is none.
func (g *GitServer) find(urlPath string) (path, dir string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for path, dir := range g.repos {
		if strings.HasPrefix(urlPath, "/"+path+"/") {
			return path, dir
		}
	}
	return "", ""
}

// meter counts what an answer sends.
type meter struct {
	http.ResponseWriter
	server *GitServer
}

func (m *meter) Write(p []byte) (int, error) {
	m.server.count(func(c *GitCounts) { c.Sent += int64(len(p)) })
	return m.ResponseWriter.Write(p)
}

// maxBody bounds a body that has no length.
const maxBody = 64 << 20

// spool reads the body into memory, so that its length is known.
func spool(r *http.Request) error {
	data, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return fmt.Errorf("read body: %w", err)
	}
	if len(data) > maxBody {
		return fmt.Errorf("body of more than %d bytes", maxBody)
	}
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(data)), int64(len(data)), nil
	return nil
}
