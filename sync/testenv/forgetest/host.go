// Package forgetest stands in for the Git hosts that cannot run in a test: GitHub and GitHub
// Enterprise, GitLab, Bitbucket Cloud, Gitea and Forgejo. It is a fake: it speaks the shapes of
// their documentation and of recorded answers, keeps what it is told in memory, and knows no more
// of a repository than its webhooks, commit statuses, pull requests with their comments and a few
// facts. It is strict where a real host is: about who asks, about rights, and about the proofs of a
// GitHub App.
package forgetest

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Options of a Host.
type Options struct {
	// TLS serves https with a certificate of its own, see Host.CAFile.
	TLS bool
	// Speaks are the APIs that are there: "github", "gitlab", "bitbucket",
	// "gitea". None means all of them.
	Speaks []string
	// Skew is how far the clock of the host is ahead.
	Skew time.Duration
	// TokenLife is that of minted tokens; 0 = one hour, as GitHub's.
	TokenLife time.Duration
}

// Host is a fake host. It is closed at the end of the test. Safe for concurrent
// use.
type Host struct {
	URL    string // without a slash at the end
	CA     []byte // PEM, nil without TLS
	CAFile string // the same as a file, "" without TLS

	o    Options
	http *httptest.Server

	mu       sync.Mutex   // guards what follows
	git      http.Handler // nil when none is behind
	repos    map[string]*Repository
	tokens   map[string]Rights
	apps     map[string]*App
	minted   map[string]grant
	next     int64
	requests []string
	fault    func(*http.Request) *Answer
}

// Repository is what a host knows of one.
type Repository struct {
	ID            int64 // made up when 0
	DefaultBranch string
	Archived      bool
	// Protected are branches that may not be written to, by what keeps them:
	// "reviews" or "locked".
	Protected map[string]string
	hooks     []*Hook
	statuses  []Status
	pulls     map[int64]*Pull
}

// Hook is a webhook as the host keeps it.
type Hook struct {
	ID          string
	URL         string
	Events      []string
	ContentType string
	Secret      string
	InsecureTLS bool
	Inactive    bool
}

// Rights are what a token may do.
type Rights struct {
	Hooks bool // manage webhooks
	Admin bool // read the protection of branches
	// Scope is "" for a token that may ask who it is. Otherwise asking that is
	// refused for want of a scope.
	Scope string
	User  string // with which it must come in basic authentication, "" = bearer or token

	NoStatuses, NoComments bool // may not write them
}

// Answer is one of a fault.
type Answer struct {
	Status int
	Header map[string]string
	Body   string
}

// New starts a host without repositories.
func New(t testing.TB, o Options) *Host {
	t.Helper()
	h := &Host{o: o, repos: map[string]*Repository{}, tokens: map[string]Rights{}, apps: map[string]*App{}, minted: map[string]grant{}}
	h.http = httptest.NewUnstartedServer(http.HandlerFunc(h.serve))
	h.http.Config.ErrorLog = log.New(io.Discard, "", 0) // tests refuse handshakes on purpose
	if o.TLS {
		h.http.StartTLS()
		h.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.http.Certificate().Raw})
		h.CAFile = filepath.Join(t.TempDir(), "forge-ca.crt")
		if err := os.WriteFile(h.CAFile, h.CA, 0o600); err != nil {
			t.Fatal(err)
		}
	} else {
		h.http.Start()
	}
	h.URL = h.http.URL
	t.Cleanup(func() {
		h.http.CloseClientConnections()
		h.http.Close()
	})
	return h
}

// Add makes a repository, by owner/name.
func (h *Host) Add(path string, r Repository) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.ID == 0 {
		r.ID = h.number()
	}
	h.repos[path] = &r
}

// Token has the host know a token; Revoke has it forget one, minted or not.
func (h *Host) Token(value string, r Rights) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tokens[value] = r
}

// Revoke has the host forget a token.
func (h *Host) Revoke(value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.tokens, value)
	delete(h.minted, value)
}

// AddHook makes a webhook by another hand.
func (h *Host) AddHook(path string, hook Hook) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if hook.ID == "" {
		hook.ID = fmt.Sprint(h.number())
	}
	r := h.repos[path]
	r.hooks = append(r.hooks, &hook)
	return hook.ID
}

// Hooks are the webhooks of a repository.
func (h *Host) Hooks(path string) []Hook {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []Hook
	if r := h.repos[path]; r != nil {
		for _, hook := range r.hooks {
			out = append(out, *hook)
		}
	}
	return out
}

// Fault has f answer requests before the host does; nil from f, and a nil f,
// leave them to the host.
func (h *Host) Fault(f func(*http.Request) *Answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault = f
}

// Behind has a Git server answer what is no API.
func (h *Host) Behind(git http.Handler) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.git = git
}

// Requests are those since the last call, as "METHOD /escaped/path?query".
func (h *Host) Requests() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.requests
	h.requests = nil
	return out
}

// number gives the next id. h.mu is held.
func (h *Host) number() int64 {
	h.next++
	return 1000 + h.next
}

func (h *Host) now() time.Time { return time.Now().Add(h.o.Skew) }

// call is one request at an API, below its base path.
type call struct {
	h      *Host
	w      http.ResponseWriter
	r      *http.Request
	method string
	parts  []string // of the escaped path
	token  string
	user   string // of basic authentication
}

// api is a base path and who answers below it.
type api struct {
	name, base string
	serve      func(*call)
}

var apis = []api{
	{"github", "/api/v3/", serveGitHub},
	{"gitlab", "/api/v4/", serveGitLab},
	{"bitbucket", "/2.0/", serveBitbucket},
	{"gitea", "/api/v1/", serveGitea},
}

func (h *Host) serve(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	api := h.api(path)
	h.mu.Lock()
	git, fault := h.git, h.fault
	if api != nil || git == nil {
		h.requests = append(h.requests, r.Method+" "+r.URL.RequestURI())
	}
	h.mu.Unlock()
	if api == nil && git != nil {
		git.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Date", h.now().UTC().Format(http.TimeFormat))
	if fault != nil {
		if a := fault(r); a != nil {
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			for k, v := range a.Header {
				w.Header().Set(k, v)
			}
			w.WriteHeader(a.Status)
			io.WriteString(w, a.Body)
			return
		}
	}
	if api == nil {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, "<html>not here</html>")
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, below, _ := strings.Cut(path, api.base)
	c := &call{h: h, w: w, r: r, method: r.Method, parts: strings.Split(below, "/")}
	c.identify()
	api.serve(c)
}

// api is the one that a path is below; it may be below a path itself.
func (h *Host) api(path string) *api {
	for i := range apis {
		if strings.Contains(path, apis[i].base) && (len(h.o.Speaks) == 0 || slices.Contains(h.o.Speaks, apis[i].name)) {
			return &apis[i]
		}
	}
	return nil
}

// identify reads who asks.
func (c *call) identify() {
	var password string
	if c.user, password, _ = c.r.BasicAuth(); c.user != "" {
		c.token = password
		return
	}
	scheme, value, _ := strings.Cut(c.r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "bearer") || strings.EqualFold(scheme, "token") {
		c.token = value
	}
}

// rights are those of the caller at a repository, nil when it is unknown.
func (c *call) rights(path string) *Rights {
	if r, ok := c.h.tokens[c.token]; ok && r.User == c.user {
		return &r
	}
	if g, ok := c.h.minted[c.token]; ok && c.user == "" && c.h.now().Before(g.until) && (path == "" || g.covers(path)) {
		return &Rights{Hooks: g.permissions["repository_hooks"] == "write", Admin: g.permissions["administration"] != ""}
	}
	return nil
}

// answer writes JSON.
func (c *call) answer(status int, body any) {
	c.w.Header().Set("Content-Type", "application/json; charset=utf-8")
	c.w.WriteHeader(status)
	if body != nil {
		json.NewEncoder(c.w).Encode(body)
	}
}

// read decodes the body of a request.
func read[T any](c *call) (out T) {
	if err := json.NewDecoder(c.r.Body).Decode(&out); err != nil {
		panic(http.ErrAbortHandler) // limpet sends JSON or has a fault
	}
	return out
}

// page cuts a list as a host does, and says whether there is more.
func page[T any](c *call, all []T, size string) (part []T, more bool) {
	n, per := 1, 30
	fmt.Sscan(c.r.URL.Query().Get("page"), &n)
	fmt.Sscan(c.r.URL.Query().Get(size), &per)
	per = min(max(per, 1), 50) // Gitea's most, smaller than what is asked for
	from := min((max(n, 1)-1)*per, len(all))
	to := min(from+per, len(all))
	return all[from:to], to < len(all)
}

// link writes the header of a list that goes on.
func (c *call) link(more bool) {
	if more {
		c.w.Header().Set("Link", fmt.Sprintf(`<%s%s?page=next>; rel="next", <%s>; rel="last"`, c.h.URL, c.r.URL.Path, c.h.URL))
	}
}

// find gives a hook and its place, nil when there is none.
func (r *Repository) find(id string) (*Hook, int) {
	for i, hook := range r.hooks {
		if hook.ID == id {
			return hook, i
		}
	}
	return nil, 0
}

// keys are the names of a set in order.
func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
