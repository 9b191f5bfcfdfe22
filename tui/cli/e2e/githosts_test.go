package e2e

import (
	"context"
	"io"
	"limpet/sync/testenv"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
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
		if frozen { // what comes is lost, and nobody hears of the end
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
