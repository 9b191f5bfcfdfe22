package gittest

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Server serves a directory of repositories by git http-backend.
type Server struct {
	*httptest.Server
	Root     string
	Requests atomic.Int64
	sent     atomic.Int64

	Backend http.HandlerFunc // git's

	mu   sync.Mutex // guards hook
	Hook http.HandlerFunc
}

// Counting counts what a handler sends.
type Counting struct {
	http.ResponseWriter
	n *atomic.Int64
}

// Unwrap is for http.ResponseController.
func (c Counting) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c Counting) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// NewServer starts a Server until the end of the test.
func NewServer(t testing.TB) *Server {
	t.Helper()
	s := &Server{Root: t.TempDir()}
	s.Server = httptest.NewServer(s.Handler(t))
	t.Cleanup(s.Close)
	return s
}

// Handler serves the repositories below s.Root.
func (s *Server) Handler(t testing.TB) http.Handler {
	backend := &cgi.Handler{Path: Must[string](t)(Backend()), Stderr: io.Discard, Logger: log.New(io.Discard, "", 0),
		Env: append(Quick, "GIT_PROJECT_ROOT="+s.Root, "GIT_HTTP_EXPORT_ALL=1", "HOME="+s.Root, "GIT_CONFIG_NOSYSTEM=1")}
	s.Backend = func(w http.ResponseWriter, r *http.Request) {
		ServeGit(backend, s.Root+path.Dir(strings.TrimSuffix(r.URL.Path, "/refs")), w, r)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Requests.Add(1)
		w = Counting{w, &s.sent}
		s.mu.Lock()
		hook := s.Hook
		s.mu.Unlock()
		if hook != nil {
			seen := &Touched{ResponseWriter: w}
			if hook(seen, r); seen.Used {
				return
			}
		}
		s.Backend(w, r)
	})
}

// lists are what git upload-pack of version 2 says that it can do, by the configuration on which that
// depends.
var lists sync.Map

// ServeGit answers as git http-backend does. What that would only hand to git upload-pack goes
// there at once, where the repository in dir is whole.
func ServeGit(backend *cgi.Handler, dir string, w http.ResponseWriter, r *http.Request) {
	const media = "application/x-git-upload-pack-"
	config, err := os.ReadFile(filepath.Join(dir, "config"))
	_, err2 := os.Stat(filepath.Join(dir, "HEAD"))
	version := r.Header.Get("Git-Protocol")
	list := r.Method == http.MethodGet && strings.HasSuffix(r.URL.String(), "/info/refs?service=git-upload-pack")
	asks := r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/git-upload-pack") && r.ContentLength > 0 &&
		r.Header.Get("Content-Type") == media+"request" && r.Header.Get("Content-Encoding") == ""
	if !list && !asks || version != "" && version != "version=2" || err != nil || err2 != nil {
		backend.ServeHTTP(w, r)
		return
	}
	cmd := exec.CommandContext(r.Context(), "git", "upload-pack", "--stateless-rpc", ".")
	cmd.Dir, cmd.Env = dir, append([]string{"PATH=" + os.Getenv("PATH"), "GIT_PROTOCOL=" + version}, backend.Env...)
	h := w.Header()
	h.Set("Expires", "Fri, 01 Jan 1980 00:00:00 GMT")
	h.Set("Pragma", "no-cache")
	h.Set("Cache-Control", "no-cache, max-age=0, must-revalidate")
	if asks {
		h.Set("Content-Type", media+"result")
		cmd.Stdin, cmd.Stdout = r.Body, w
		cmd.Run()
		return
	}
	h.Set("Content-Type", media+"advertisement")
	said, known := lists.Load(string(config))
	if version == "" || !known {
		cmd.Args[2] = "--http-backend-info-refs"
		said, err = cmd.Output()
		if version != "" && err == nil { // else the client has left, or the repository is damaged
			lists.Store(string(config), said)
		}
	}
	if version == "" {
		io.WriteString(w, "001e# service=git-upload-pack\n0000")
	}
	w.Write(said.([]byte))
}

// Touched reports whether a hook has answered.
type Touched struct {
	http.ResponseWriter
	Used bool
}

func (t *Touched) WriteHeader(c int)           { t.Used = true; t.ResponseWriter.WriteHeader(c) }
func (t *Touched) Write(p []byte) (int, error) { t.Used = true; return t.ResponseWriter.Write(p) }
func (t *Touched) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// Sent counts the bytes of all answers, without their headers.
func (s *Server) Sent() int64 { return s.sent.Load() }

// During answers requests with h first; what h does not answer goes to git.
func (s *Server) During(h http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Hook = h
}

// Fails has a server answer with a status; 0 = as it should.
func (s *Server) Fails(status int) {
	if status == 0 {
		s.During(nil)
		return
	}
	s.During(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", status) })
}

// Recorded serves what git answered to the first request, changed by f.
func (s *Server) Recorded(f *func([]byte) []byte) http.HandlerFunc {
	var first *httptest.ResponseRecorder
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			return
		}
		if first == nil {
			first = httptest.NewRecorder()
			hook := s.Hook
			s.During(nil)
			s.Config.Handler.ServeHTTP(first, r)
			s.During(hook)
		}
		w.Header().Set("Content-Type", first.Header().Get("Content-Type"))
		w.Write((*f)(bytes.Clone(first.Body.Bytes())))
	}
}
