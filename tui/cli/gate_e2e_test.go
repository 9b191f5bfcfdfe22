package cli_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"

	"limpet/sync/testenv"
)

// gate is a Git host that lets nobody through until it is opened: a job that
// pulls from it works for as long as the test wants, and then ends.
type gate struct {
	URL  string // of the repository
	Repo *testenv.Repository

	mu     sync.Mutex    // guards opened
	opened chan struct{} // closed while the gate is open
}

// newGate serves a repository with so many dashboards.
func newGate(t *testing.T, dashboards int) *gate {
	t.Helper()
	host := testenv.Git(t, testenv.GitOptions{})
	g := &gate{Repo: testenv.Repo(t, 2, dashboards), opened: make(chan struct{})}
	inner := host.Serve("gate.git", g.Repo.Dir)
	target, err := url.Parse(host.URL)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		opened := g.opened
		g.mu.Unlock()
		select {
		case <-opened:
			forward.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { front.CloseClientConnections(); front.Close() })
	g.URL = front.URL + inner[len(host.URL):]
	return g
}

// open lets all through who wait and who come.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.opened)
}

// shut stops those who come from now on.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened = make(chan struct{})
}
