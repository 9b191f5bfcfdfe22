package webhook

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"

	"limpet/sync/apiserver"
)

// Config is where webhooks are received. Without a certificate it needs a TLS proxy in front.
type Config struct {
	Listen            string // address; "" = nowhere
	URL               string // https address at which hosts reach it, for those that are asked for webhooks; "" = not known
	CertFile, KeyFile string
	Trusted           []netip.Prefix // proxies whose X-Forwarded-For counts
}

// Check returns what is wrong with the configuration.
func (c Config) Check() error {
	if (c.CertFile == "") != (c.KeyFile == "") {
		return errors.New("a certificate and its key go together: one of --webhook-cert-file and --webhook-key-file is missing")
	}
	if c.URL == "" {
		return nil
	}
	if c.Listen == "" {
		return errors.New("--webhook-url is where hosts reach --webhook-listen, which is missing")
	}
	if u, err := url.Parse(c.URL); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return errors.New("--webhook-url must be an address that begins with https:// and has no user and no query")
	}
	return nil
}

// Run receives webhooks until ctx ends. Repositories are pulled at their interval anyway,
// so an address in use is logged and retried.
func Run(ctx context.Context, c Config, cluster *Cluster, o Options) error {
	o.Store, o.Trusted = cluster, c.Trusted
	receiver, err := New(ctx, o)
	if err != nil {
		return err
	}
	listener := apiserver.Listener{Address: c.Listen, CertFile: c.CertFile, KeyFile: c.KeyFile, Protocols: []string{"http/1.1"},
		Limit: func(ln net.Listener) net.Listener { return Gate(ln, c.Trusted) }}
	ln := listener.Wait(ctx, o.Logger, "webhooks", "--webhook-listen")
	if ln == nil {
		return nil
	}
	o.Logger.Info("webhooks", "address", ln.Addr().String(), "tls", c.CertFile != "", "path", Pattern)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return receiver.Serve(ctx, ln) })
	g.Go(func() error { cluster.RetryPulls(ctx); return nil })
	return g.Wait()
}

const (
	idleTimeout    = 30 * time.Second // of a connection without a request
	maxHeaderBytes = 16 << 10         // ample for what the hosts and a proxy send
	maxConnections = 512
	maxPerClient   = 64 // of these from one address that is no trusted proxy
)

// Serve answers webhooks from ln until ctx ends, and closes ln. Running requests get 10 s to finish. It returns nil
// after such a stop, else why the listener failed. ln should be a Gate, below TLS if there is any.
func (r *Receiver) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler:        r,
		ReadTimeout:    requestTimeout,
		WriteTimeout:   requestTimeout + 10*time.Second, // the body may have taken all of the time
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       slog.NewLogLogger(r.o.Logger.Handler(), slog.LevelDebug),
		Protocols:      new(http.Protocols),
	}
	srv.Protocols.SetHTTP1(true) // one request at a time on a connection
	return apiserver.Serve(ctx, ln, srv)
}

// Gate keeps the number of open connections of a listener down. Beyond 512 a connection waits for another to end;
// beyond 64 of one address, unless it is that of a trusted proxy, it is closed.
func Gate(ln net.Listener, trusted []netip.Prefix) net.Listener {
	return &gate{Listener: netutil.LimitListener(ln, maxConnections), trusted: trusted, open: map[netip.Addr]int{}}
}

type gate struct {
	net.Listener
	trusted []netip.Prefix

	mu   sync.Mutex // guards open
	open map[netip.Addr]int
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
		addr := peer.Addr().Unmap()
		if g.enter(clientNetwork(addr), isTrusted(addr, g.trusted)) {
			return &limitedConn{Conn: conn, gate: g, addr: clientNetwork(addr)}, nil
		}
		_ = conn.Close() // the peer is gone
	}
}

func (g *gate) enter(addr netip.Addr, trusted bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !trusted && g.open[addr] >= maxPerClient {
		return false
	}
	g.open[addr]++
	return true
}

func (g *gate) leave(addr netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open[addr]--; g.open[addr] == 0 {
		delete(g.open, addr)
	}
}

// limitedConn is a connection that notifies the gate when it closes.
type limitedConn struct {
	net.Conn
	gate *gate
	addr netip.Addr
	once sync.Once
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.once.Do(func() { c.gate.leave(c.addr) })
	return c.Conn.Close()
}
