package gittest

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
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
	s.Backend = backend.ServeHTTP
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
		backend.ServeHTTP(w, r)
	})
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
