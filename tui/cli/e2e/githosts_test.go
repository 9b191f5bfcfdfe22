package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"limpet/state"
	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// Git hosts and links that misbehave on request.

// hangingHost is a Git host that answers nothing until answer is called, and 404 then.
func hangingHost(t *testing.T) (url string, answer func()) {
	t.Helper()
	hang, done := context.WithCancel(t.Context())
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-hang.Done():
		case <-r.Context().Done():
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(host.Close)
	return host.URL, done
}

// gate is a Git host that holds all requests until it is opened: a job that pulls from it
// runs for as long as the test wants.
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

// open forwards all requests, waiting and new.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.opened)
}

// shut holds new requests again.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened = make(chan struct{})
}

// recordingProxy stands before a Git host and records the credentials of the requests. It
// can answer in place of the host.
type recordingProxy struct {
	*httptest.Server
	status atomic.Int64        // to answer with; 0 = the host does
	half   atomic.Bool         // of packs one half is sent
	asked  chan struct{}       // has one for each pack of which half is sent
	mu     sync.Mutex          // guards seen
	seen   map[string]struct{} // user:password
}

func newRecordingProxy(t *testing.T, host http.Handler) *recordingProxy {
	f := &recordingProxy{asked: make(chan struct{}, 16), seen: map[string]struct{}{}}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		f.mu.Lock()
		f.seen[user+":"+password] = struct{}{}
		f.mu.Unlock()
		switch status := int(f.status.Load()); {
		case status != 0:
			http.Error(w, "", status)
		case f.half.Load() && r.Method == http.MethodPost:
			whole := httptest.NewRecorder()
			host.ServeHTTP(whole, r)
			w.Header().Set("Content-Type", whole.Header().Get("Content-Type"))
			w.Write(whole.Body.Bytes()[:whole.Body.Len()/2])
			http.NewResponseController(w).Flush()
			f.asked <- struct{}{}
			<-r.Context().Done()
		default:
			host.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(f.Close)
	return f
}

// take returns the recorded credentials and forgets them.
func (f *recordingProxy) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for s := range f.seen {
		out = append(out, s)
	}
	f.seen = map[string]struct{}{}
	slices.Sort(out)
	return out
}

// relay is a network device before a server: it can drop the state of open connections
// while new ones work, which toxiproxy cannot, and counts connections while it is closed.
type relay struct {
	URL string

	target string
	ln     net.Listener
	all    sync.WaitGroup

	mu          sync.Mutex // guards the fields below
	open        map[net.Conn]net.Conn
	frozen      map[net.Conn]bool
	closed      bool
	connections int
}

// newRelay opens a relay to a URL until the end of the test.
func newRelay(t *testing.T, target string) *relay {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	d := &relay{target: u.Host, open: map[net.Conn]net.Conn{}, frozen: map[net.Conn]bool{}}
	if d.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	u.Host = d.ln.Addr().String()
	d.URL = u.String()
	d.all.Go(d.serve)
	t.Cleanup(func() {
		d.ln.Close()
		d.close()
		d.all.Wait()
	})
	return d
}

func (d *relay) serve() {
	for {
		in, err := d.ln.Accept()
		if err != nil {
			return
		}
		d.mu.Lock()
		d.connections++
		shut := d.closed
		d.mu.Unlock()
		if shut {
			in.Close()
			continue
		}
		out, err := net.Dial("tcp", d.target)
		if err != nil {
			in.Close()
			continue
		}
		d.mu.Lock()
		shut = d.closed // it may have been closed meanwhile
		if !shut {
			d.open[in] = out
		}
		d.mu.Unlock()
		if shut {
			in.Close()
			out.Close()
			continue
		}
		d.all.Go(func() { d.copy(in, in, out) })
		d.all.Go(func() { d.copy(in, out, in) })
	}
}

// copy copies one direction of the connection key.
func (d *relay) copy(key, from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		d.mu.Lock()
		frozen := d.frozen[key]
		d.mu.Unlock()
		if frozen { // what comes is lost, and no peer learns of the end
			_, _ = io.Copy(io.Discard, from)
			return
		}
		if err == nil {
			_, err = to.Write(buf[:n])
		}
		if err != nil {
			from.Close()
			to.Close()
			return
		}
	}
}

// freeze drops the state of the open connections: nothing comes through them and neither
// side hears of it. New ones work.
func (d *relay) freeze() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for in := range d.open {
		d.frozen[in] = true
	}
}

// close refuses new connections and cuts the open ones.
func (d *relay) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cut()
}

// reopen accepts connections again.
func (d *relay) reopen() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = false
}

func (d *relay) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for in, out := range d.open {
		in.Close()
		out.Close()
	}
	clear(d.open)
	clear(d.frozen)
}

// attempts returns how many connections were tried since the last call.
func (d *relay) attempts() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.connections
	d.connections = 0
	return n
}

// TestFallback: a site whose host is away is pulled from its fallback URL, also after a power cut
// that leaves half of a pack. The fallback is not asked while the host answers or refuses, one that
// is behind is not believed, and each host sees only its own credentials.
func TestFallback(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	const first, second = "canary-41-first", "canary-42-second"
	repo := testenv.Repo(t, 2, 30)
	copied := filepath.Join(t.TempDir(), "copy.git")
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	run("clone", "-q", "--mirror", repo.Dir, copied)
	one, two := testenv.Git(t, testenv.GitOptions{User: "git", Password: first}),
		testenv.Git(t, testenv.GitOptions{User: "bob", Password: second})
	one.Serve("boards.git", repo.Dir)
	two.Serve("copy.git", copied)
	own, other := newRecordingProxy(t, one), newRecordingProxy(t, two)
	h := newHome(t)
	h.file(t, "credentials/default.site/token", first)
	h.file(t, ".config/limpet/config.yaml", fmt.Sprintf("git-credentials:\n- url: %s\n  values: {username: bob}\n  files: {password: %s}\n",
		other.URL, h.file(t, "second", second)))
	start := func() *daemon {
		return h.daemon(t, "--allow-insecure-git", "--credentials-dir", filepath.Join(h.dir, "credentials"))
	}
	d := start()
	if r := h.must(t, 1, "repo", "create", "site", "--url", own.URL+"/boards.git", "--mirror", "http://ann:"+second+
		"@x/y"); strings.Contains(r.err, second) {
		t.Errorf("the password is in %s", r.err)
	}
	h.must(t, 0, "repo", "create", "site", "--url", own.URL+"/boards.git", "--branch", testenv.Branch, "--path", testenv.Directory,
		"--mirror", other.URL+"/copy.git", "--interval", "10s")
	pulled := func(commit string) {
		t.Helper()
		until(t, "the pull of "+commit, func() bool {
			return slices.ContainsFunc(h.history(t), func(r state.Record) bool { return r.RefTo == commit && r.State == "success" })
		})
		boardsMatch(t, h, "default", "site", repo)
	}
	asked := func(f *recordingProxy, want ...string) {
		t.Helper()
		if got := f.take(); !slices.Equal(got, want) {
			t.Errorf("asked with %q, want %q", got, want)
		}
	}
	edit := func() string {
		var paths []string
		for _, b := range repo.Dashboards() {
			paths = append(paths, b.Path)
		}
		commit := repo.Edit(t, paths...)
		run("-C", copied, "fetch", "-q")
		return commit
	}
	pulled(repo.Head(t))
	asked(other)
	h.must(t, 0, "repo", "test", "site")

	own.status.Store(http.StatusBadGateway)
	pulled(edit())
	asked(other, "bob:"+second)

	halves := func() []string {
		found, err := filepath.Glob(filepath.Join(filepath.Dir(h.state()), "mirrors", "*", "objects", "pack", "tmp_*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	other.half.Store(true)
	next := edit()
	<-other.asked
	until(t, "half of the pack is on disk", func() bool { return len(halves()) > 0 })
	d.kill()
	other.half.Store(false)
	d = start()
	pulled(next)
	if left := halves(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}

	// A fallback that is behind is not believed.
	run("-C", copied, "update-ref", "refs/heads/"+testenv.Branch, testenv.Branch+"~1")
	other.take()
	until(t, "the fallback is asked again", func() bool { return len(other.take()) > 0 })
	h.run(t, "repo", "pull", "site", "--wait")
	boardsMatch(t, h, "default", "site", repo)

	// A host that refuses is not asked about elsewhere.
	d.kill()
	own.status.Store(http.StatusUnauthorized)
	own.take()
	other.take()
	d = start()
	until(t, "it is refused", func() bool {
		return strings.Contains(h.must(t, 0, "repo", "show", "site", "-o", "json").out, "AuthenticationFailed")
	})
	asked(other)
	asked(own, "git:"+first)
	if code := d.stop(t); code != 0 || strings.Contains(d.log.String(), "canary") {
		t.Errorf("exit %d, or a secret is in the log: %s", code, d.log)
	}
}
