// Package apiserver is the embedded API: a small Kubernetes-style server for the
// kinds of api.Kinds, kept in the state file.
//
// Its reference is the real server for custom resources
// (apiextensions-apiserver), which runs under the same contract suite. Clients
// see the same behaviour: status codes and reasons, conflicts, generations,
// managed fields, watches and their ends. There are three differences:
//
//   - kinds have no schema below spec and status; sync/api/admission validates
//     the fields of our own kinds;
//   - all versions of a kind have the same fields: another version changes
//     apiVersion and nothing else;
//   - there is no garbage collection, so foreground deletion deletes at once.
package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"time"

	"limpet/state"
	"limpet/sync/api"
)

// defaultWindow is how many events of one resource are kept for watches that
// begin in the past. Source: ten seconds of the fastest burst seen in tests.
const defaultWindow = 1024

// Options configure a Server. The zero value is a server without authentication.
type Options struct {
	// Logger receives faults of the server itself; nil = slog.Default().
	Logger *slog.Logger
	// Window is how many events of one resource are kept for watches that begin
	// in the past; 0 = defaultWindow. Their bytes are bounded too.
	Window int
	// Auth authenticates requests; nil = no authentication.
	Auth *Gate
	// Version is the version of limpet in /version.
	Version string
	// Finalizers adds Grafana's finalizers to a new Repository that has none. It
	// requires a controller that processes them: otherwise no Repository could be
	// deleted.
	Finalizers bool
	// MaxRepositories limits the Repositories of a namespace; 0 = no limit.
	// Existing ones stay.
	MaxRepositories int64
}

// Server is the embedded API. It is an http.Handler without a listener and
// without TLS, safe for concurrent use.
type Server struct {
	store           *state.Store
	log             *slog.Logger
	auth            *Gate
	version         string
	finalizers      bool
	maxRepositories int64 // Repositories of a namespace; 0 = no limit
	mux             *http.ServeMux
	feeds           map[string]*feed  // by resourceName; fixed after New
	tallies         map[string]*tally // likewise

	life context.Context // ends with Close; open watches end with it
	end  context.CancelFunc

	progress   progress
	forgetting reminder
	fields     fieldManagers
	seal       sealer
	between    sync.Mutex // held from the check of rules between objects until the object is stored; see serializeWrites
}

// New makes a server on an open store. It takes over store.OnObjects, so that a
// store has one server at most. The store must stay open until after Close.
func New(store *state.Store, o Options) (*Server, error) {
	s := &Server{
		store:           store,
		log:             o.Logger,
		auth:            o.Auth,
		version:         o.Version,
		finalizers:      o.Finalizers,
		maxRepositories: o.MaxRepositories,
		feeds:           map[string]*feed{},
		tallies:         map[string]*tally{},
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	if o.Window <= 0 {
		o.Window = defaultWindow
	}
	s.life, s.end = context.WithCancel(context.Background())
	revision, err := store.Revision(s.life)
	if err != nil {
		s.end()
		return nil, fmt.Errorf("read revision of the state file: %w", err)
	}
	for _, k := range api.Kinds {
		s.feeds[resourceName(k)] = newFeed(o.Window, revision)
		s.tallies[resourceName(k)] = &tally{}
	}
	s.progress.reach(revision)
	s.mux = s.routes()
	store.OnObjects(s.publish)
	return s, nil
}

// Close ends all open watches and refuses new ones. Requests in flight complete.
// It is idempotent and does not close the store.
func (s *Server) Close() error {
	s.end()
	s.forgetting.stop()
	return nil
}

// routes returns the handler of all paths that are not objects.
func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for _, path := range []string{"/healthz", "/livez", "/readyz", "/healthz/{check...}", "/livez/{check...}", "/readyz/{check...}"} {
		mux.HandleFunc("GET "+path, s.serveHealth)
	}
	mux.HandleFunc("GET /version", s.serveVersion)
	mux.HandleFunc("GET /version/{$}", s.serveVersion)
	s.discoveryRoutes(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) { s.answerError(w, req, pathNotFound()) })
	return mux
}

// ServeHTTP implements http.Handler. Watches block until the request's context
// ends, their timeout passes, or the server closes.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if s.auth != nil {
		if err := s.auth.authenticate(req); err != nil {
			s.answerError(w, req, err)
			return
		}
	}
	s.serve(w, req)
}

// serve handles an authenticated request.
func (s *Server) serve(w http.ResponseWriter, req *http.Request) {
	if info, verb, ok := route(req); ok {
		s.serveObjects(w, req, info, verb)
		return
	}
	s.mux.ServeHTTP(w, req)
}

func (s *Server) serveHealth(w http.ResponseWriter, req *http.Request) {
	if s.life.Err() != nil {
		http.Error(w, "shutting down", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok"))
}

// serveVersion sends the version of the API machinery that this server follows:
// clients of Kubernetes compare the minor version with their own.
func (s *Server) serveVersion(w http.ResponseWriter, req *http.Request) {
	s.answerJSON(w, req, http.StatusOK, map[string]string{
		"major": "1", "minor": "37",
		"gitVersion": "v1.37.0+limpet-" + cmp.Or(s.version, "devel"), "gitCommit": "", "gitTreeState": "", "buildDate": "",
		"goVersion": runtime.Version(), "compiler": runtime.Compiler, "platform": runtime.GOOS + "/" + runtime.GOARCH,
	})
}

// progress is the highest revision whose events are in the feeds.
type progress struct {
	mu      sync.Mutex
	reached uint64        // guarded by mu
	moved   chan struct{} // guarded by mu; closed when reached grows, made by waiters
}

func (p *progress) reach(revision uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if revision <= p.reached {
		return
	}
	p.reached = revision
	if p.moved != nil {
		close(p.moved)
		p.moved = nil
	}
}

func (p *progress) at() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reached
}

// wait blocks until the revision is reached, ctx ends, or (with a positive
// limit) the limit has passed. It reports whether the revision is reached.
func (p *progress) wait(ctx context.Context, revision uint64, limit time.Duration) bool {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	for {
		p.mu.Lock()
		if p.reached >= revision {
			p.mu.Unlock()
			return true
		}
		if p.moved == nil {
			p.moved = make(chan struct{})
		}
		moved := p.moved
		p.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return false
		}
	}
}

// seen returns the revision of the newest change of any object.
func (s *Server) seen() uint64 { return s.progress.at() }
