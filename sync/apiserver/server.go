// Package apiserver is the embedded API: a small Kubernetes-style server for the
// kinds of api.Kinds, kept in the state file.
//
// Its reference is the real server for custom resources (apiextensions-apiserver), which runs under
// the same contract suite. Clients see the same behaviour: status codes and reasons, conflicts,
// generations, managed fields, watches and their ends. The differences:
//
//   - schemas are for kubectl explain alone; sync/api/admission validates the
//     fields of our own kinds;
//   - nothing is converted: another version changes apiVersion and nothing else,
//     and status.conversion names the version of a dashboard's spec;
//   - the fields of a dashboard that limpet itself creates have no owner until another manager
//     applies some;
//   - the transaction that removes an owner removes its dependents, so foreground deletion deletes at once; dashboards,
//     folders, records, Events and Leases are not collected, nor is what names an owner that never was there;
//   - pages of lists do not count the objects that remain, and discovery has the
//     plain form only.
package apiserver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/apiserver/token"
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
	// Finalizers adds Grafana's finalizers to a new Repository that has none. It requires a controller
	// that processes them: otherwise no Repository could be deleted.
	Finalizers bool
	// SealedSecrets serves each sealed value of a Repository or Connection as the core Secret that its
	// secure.<field>.name names, for agents in other processes. Without it only SecretOf opens them.
	SealedSecrets bool
	// Actions are those that a new Job may have, because an agent serves them; nil = all of Grafana's.
	Actions []string
	// MaxRepositories limits the Repositories of a namespace; 0 = no limit. Existing ones stay.
	MaxRepositories int64
}

// Server is the embedded API. It is an http.Handler without a listener and without TLS, safe for
// concurrent use.
type Server struct {
	store   *state.Store
	options Options
	log     *slog.Logger
	mux     *http.ServeMux
	feed    *feed
	plans   chan struct{} // holds a token for each write that is being planned

	bodyTimeout time.Duration // the constant, but in tests

	life context.Context // ends with Close; open watches end with it
	end  context.CancelFunc

	local *local

	seal    sealer
	expired atomic.Int64 // when Events were looked through, in Unix nanoseconds
	rules   sync.Mutex   // held from the check of rules between objects until the object is stored; see serializeWrites
}

// New makes a server on an open store. It takes over store.OnObjects, so that a
// store has one server at most. The store must stay open until after Close.
func New(store *state.Store, o Options) (*Server, error) {
	s := &Server{store: store, options: o, bodyTimeout: bodyTimeout, log: cmp.Or(o.Logger, slog.Default())}
	s.life, s.end = context.WithCancel(context.Background())
	info, err := store.Info(s.life)
	if err != nil {
		s.end()
		return nil, fmt.Errorf("read revision of the state file: %w", err)
	}
	s.plans = make(chan struct{}, runtime.GOMAXPROCS(0))
	s.feed = newFeed(max(o.Window, 0), info.Revision)
	s.mux, s.local = s.routes(), &local{server: s}
	store.OnObjects(s.feed.publish)
	return s, nil
}

// Close ends all open watches and refuses new ones. Requests in flight complete.
// It is idempotent and does not close the store.
func (s *Server) Close() error {
	s.end()
	s.local.close()
	return nil
}

// ServeHTTP implements http.Handler. Watches block until the request's context
// ends, their timeout passes, or the server closes.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var until time.Time
	if s.options.Auth != nil {
		var err error
		if until, err = s.options.Auth.authenticate(req); err != nil {
			s.answerError(w, req, err)
			return
		}
	}
	s.serve(w, req, until)
}

// serve handles an authenticated request, whose token is valid until a time; zero = for good.
func (s *Server) serve(w http.ResponseWriter, req *http.Request, until time.Time) {
	if req.ContentLength != 0 { // readBody takes the deadline back
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.bodyTimeout))
	}
	t, verb, ok := route(req)
	if !ok {
		s.mux.ServeHTTP(w, req)
		return
	}
	c := &call{server: s, target: t, verb: verb, w: w, req: req, until: until}
	if err := c.serve(); err != nil {
		s.answerError(w, req, err)
	}
}

// routes returns the handler of all paths that are not objects.
func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for _, check := range []string{"healthz", "livez", "readyz"} {
		mux.HandleFunc("GET /"+check, s.serveHealth)
		mux.HandleFunc("GET /"+check+"/{check...}", s.serveHealth)
	}
	mux.HandleFunc("GET /version", s.serveVersion)
	mux.HandleFunc("GET /version/{$}", s.serveVersion)
	s.discoveryRoutes(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) { s.answerError(w, req, errPath) })
	return mux
}

func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
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
		"gitVersion": "v1.37.0+limpet-" + cmp.Or(s.options.Version, "devel"), "gitCommit": "", "gitTreeState": "", "buildDate": "",
		"goVersion": runtime.Version(), "compiler": runtime.Compiler, "platform": runtime.GOOS + "/" + runtime.GOARCH,
	})
}

// Transport returns a transport to this server without a socket. It does not
// authenticate: code in this process can open the state file anyway.
func (s *Server) Transport() http.RoundTripper { return s.local }

// Gate authenticates requests to a served API. It accepts access tokens of its Signer, in
// X-Access-Token (as Grafana's controllers send them) or in Authorization, and static tokens.
// Probes need no token. It is safe for concurrent use.
type Gate struct {
	signer *token.Signer
	static [][sha256.Size]byte
	now    func() time.Time
}

// NewGate returns a Gate. A nil signer means static tokens only; empty static tokens are ignored.
func NewGate(signer *token.Signer, static ...string) *Gate {
	g := &Gate{signer: signer, now: time.Now}
	for _, token := range static {
		if token != "" {
			g.static = append(g.static, sha256.Sum256([]byte(token)))
		}
	}
	return g
}

// openPaths need no token: load balancers and service managers probe them.
var openPaths = []string{"/healthz", "/livez", "/readyz"}

// authenticate returns the end of a valid token, the zero time for none, else the Status error 401
// (no token, or an invalid one) or 403 (a valid one for another namespace).
func (g *Gate) authenticate(req *http.Request) (until time.Time, err error) {
	if slices.Contains(openPaths, req.URL.Path) {
		return until, nil
	}
	given := cmp.Or(token.Bearer(req.Header.Get("X-Access-Token")), token.Bearer(req.Header.Get("Authorization")))
	switch {
	case given == "":
		return until, apierrors.NewUnauthorized("no token: send Authorization: Bearer TOKEN or X-Access-Token: Bearer TOKEN")
	case g.isStatic(given):
		return until, nil
	case g.signer == nil:
		return until, apierrors.NewUnauthorized("the token is wrong")
	}
	claims, err := g.signer.Verify(given, g.now())
	if err != nil {
		return until, apierrors.NewUnauthorized("token refused: " + err.Error())
	}
	// A path that is not an object is discovery, or unknown.
	t, _, addressed := route(req)
	if !audienceCovers(claims.Audience, t.kind) {
		return until, apierrors.NewUnauthorized("token refused: its audience does not cover " +
			cmp.Or(t.kind.Group, t.kind.Plural, "this server") + "; name it in the audiences of the token exchange")
	}
	if addressed && claims.Namespace != "*" && claims.Namespace != t.namespace {
		return until, apierrors.NewForbidden(t.resource(), t.name, errors.New("the token is for another namespace"))
	}
	return claims.ExpiresAt.Time, nil // which Verify requires
}

// isStatic reports whether a token is a static one, in constant time.
func (g *Gate) isStatic(token string) bool {
	sum := sha256.Sum256([]byte(token))
	found := 0
	for _, known := range g.static {
		found |= subtle.ConstantTimeCompare(sum[:], known[:])
	}
	return found == 1
}

// grafanaGroups require their own name in the audience, as on a real server.
var grafanaGroups = []string{api.ProvisioningGroup, api.DashboardGroup, api.FolderGroup}

// audienceCovers reports whether a token may be used for a kind. Secrets have the credentials of
// Repositories, so they belong to the provisioning group. Discovery and the groups that are not
// Grafana's accept a token for any served group.
func audienceCovers(audience []string, kind api.Kind) bool {
	group := kind.Group
	if isSecret(kind) {
		group = api.ProvisioningGroup
	}
	if slices.Contains(grafanaGroups, group) {
		return slices.Contains(audience, group)
	}
	return slices.ContainsFunc(audience, func(a string) bool {
		return slices.ContainsFunc(api.Kinds, func(k api.Kind) bool { return k.Group != "" && k.Group == a })
	})
}
