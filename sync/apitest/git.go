package apitest

import (
	"crypto/subtle"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// GitOptions say how a Git server is reached. Without credentials it answers
// everybody. With both kinds it takes either.
type GitOptions struct {
	TLS            bool // https with a certificate of its own, see GitServer.CAFile
	User, Password string
	Bearer         string
}

// GitServer serves bare repositories with git http-backend, the program behind
// many hosts. It is closed at the end of the test.
type GitServer struct {
	URL    string // without a slash at the end
	CAFile string // PEM file, "" without TLS

	o       GitOptions
	http    *httptest.Server
	backend string
	done    chan struct{} // closed at the end: requests that hang go on

	mu       sync.Mutex // guards all below
	repos    map[string]string
	fault    *Fault
	requests []*GitRequest
}

// GitRequest is one request that the server took.
type GitRequest struct {
	At       time.Time
	Method   string
	Repo     string // path of the repository, as given to Serve
	Service  string // info/refs, git-upload-pack, git-receive-pack, or the path of a dumb client
	Agent    string
	Protocol string // header Git-Protocol
	User     string // of basic authentication, "bearer" for a token, "" without
	code     atomic.Int64
	sent     atomic.Int64
}

// Code is the HTTP status that was sent, 0 before one was.
func (r *GitRequest) Code() int { return int(r.code.Load()) }

// Sent is the number of body bytes that were sent.
func (r *GitRequest) Sent() int64 { return r.sent.Load() }

// GitCounts sums requests up.
type GitCounts struct {
	InfoRefs   int   // listings of references
	UploadPack int   // fetches
	Other      int   // pushes, and files that dumb clients ask for
	Sent       int64 // body bytes of all answers
}

// Git starts a server without repositories; see Serve.
func Git(t testing.TB, o GitOptions) *GitServer {
	t.Helper()
	g := &GitServer{o: o, backend: httpBackend(t), repos: map[string]string{}, done: make(chan struct{})}
	g.http = httptest.NewUnstartedServer(g)
	g.http.Config.ErrorLog = log.New(io.Discard, "", 0) // tests refuse handshakes on purpose
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
		close(g.done)
		g.http.CloseClientConnections()
		g.http.Close()
	})
	return g
}

func httpBackend(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatalf("find git: %v", err)
	}
	path := filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("find git http-backend: %v", err)
	}
	return path
}

// Serve makes the bare repository in dir reachable and returns its URL. The
// path is that below the server, for example "ops/dashboards.git".
func (g *GitServer) Serve(path, dir string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.repos[path] = dir
	return g.URL + "/" + path
}

// Requests returns what was asked since the start or the last Reset. A request
// is there before its client has the first byte of an answer.
func (g *GitServer) Requests() []*GitRequest {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.requests)
}

// Counts sums up Requests.
func (g *GitServer) Counts() GitCounts {
	var c GitCounts
	for _, r := range g.Requests() {
		switch r.Service {
		case "info/refs":
			c.InfoRefs++
		case "git-upload-pack":
			c.UploadPack++
		default:
			c.Other++
		}
		c.Sent += r.Sent()
	}
	return c
}

// Reset forgets the requests so far and returns their sums.
func (g *GitServer) Reset() GitCounts {
	c := g.Counts()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.requests = nil
	return c
}

// ServeHTTP logs the request, applies the fault that is set, checks the
// credentials, and hands over to git http-backend.
func (g *GitServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, dir, service := g.find(r.URL.Path)
	entry := &GitRequest{At: time.Now(), Method: r.Method, Repo: path, Service: service,
		Agent: r.UserAgent(), Protocol: r.Header.Get("Git-Protocol")}
	user, ok := g.allowed(r)
	entry.User = user
	g.mu.Lock()
	g.requests = append(g.requests, entry)
	fault := g.takeFault(service)
	g.mu.Unlock()

	out := &meter{ResponseWriter: w, entry: entry}
	if fault != nil && !fault.pack() {
		fault.answer(out, r, g.done)
		return
	}
	if !ok {
		out.Header().Set("WWW-Authenticate", `Basic realm="limpet test"`)
		http.Error(out, "who are you?", http.StatusUnauthorized)
		return
	}
	if dir == "" {
		http.NotFound(out, r)
		return
	}
	out.fault, out.hang, out.gone = fault, g.done, r.Context().Done()
	h := &cgi.Handler{
		Path: g.backend, Root: "/" + path, Dir: dir, Stderr: io.Discard, Logger: log.New(io.Discard, "", 0),
		Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=" + user,
			"GIT_CONFIG_NOSYSTEM=1", "HOME=" + dir},
	}
	// CGI knows bodies of a given length only; git sends large ones in chunks.
	if r.ContentLength < 0 {
		if err := spool(r); err != nil {
			http.Error(out, err.Error(), http.StatusBadRequest)
			return
		}
		defer r.Body.Close()
	}
	h.ServeHTTP(out, r)
}

// find splits a URL path into repository and service. dir is "" when there is
// no such repository.
func (g *GitServer) find(urlPath string) (path, dir, service string) {
	rest := strings.TrimPrefix(urlPath, "/")
	g.mu.Lock()
	defer g.mu.Unlock()
	for path, dir := range g.repos {
		if service, ok := strings.CutPrefix(rest, path+"/"); ok {
			return path, dir, service
		}
	}
	for _, service := range []string{"info/refs", "git-upload-pack", "git-receive-pack"} {
		if path, ok := strings.CutSuffix(rest, "/"+service); ok {
			return path, "", service
		}
	}
	return "", "", rest
}

// allowed checks credentials and tells who sent them, right or wrong.
func (g *GitServer) allowed(r *http.Request) (user string, ok bool) {
	if token, has := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); has {
		return "bearer", g.o.Bearer != "" && same(token, g.o.Bearer)
	}
	user, password, has := r.BasicAuth()
	if !has {
		return "", g.o.Password == "" && g.o.Bearer == ""
	}
	return user, g.o.Password == "" && g.o.Bearer == "" || g.o.Password != "" && user == g.o.User && same(password, g.o.Password)
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
