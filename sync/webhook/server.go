package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"

	"limpet/sync/api"
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

// Serve answers webhooks from ln until ctx ends, and closes ln. Running requests get 10 s to
// finish. It returns nil after such a stop, else why the listener failed. ln should be a Gate,
// below TLS if there is any.
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

// Gate keeps the number of open connections of a listener down. Beyond 512 a connection waits for
// another to end; beyond 64 of one address, unless it is that of a trusted proxy, it is closed.
func Gate(ln net.Listener, trusted []netip.Prefix) net.Listener {
	return &gate{Listener: netutil.LimitListener(ln, maxConnections), trusted: trusted, open: map[netip.Addr]int{}}
}

type gate struct {
	net.Listener
	trusted []netip.Prefix

	mu   sync.Mutex // guards open
	open map[netip.Addr]int
}

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

func (c *limitedConn) Close() error {
	c.once.Do(func() { c.gate.leave(c.addr) })
	return c.Conn.Close()
}

// Outcomes of requests, for counters.
const (
	Queued      = "queued"
	Ignored     = "ignored"  // authentic, and nothing to do
	Replayed    = "replayed" // served before
	Exists      = "exists"   // there is such a job already
	Mismatched  = "mismatched"
	Unsupported = "unsupported"
	Refused     = "refused" // the Repository takes none, or no POST
	Invalid     = "invalid" // authentic, but not what the host documents
	Forged      = "forged"
	TooLarge    = "too_large"
	Broken      = "broken" // the body ended early or took too long
	Limited     = "limited"
	Unavailable = "unavailable" // the API, or too many large bodies at once
	NotFound    = "not_found"
)

// Outcomes lists all outcomes.
var Outcomes = []string{
	Queued, Ignored, Replayed, Exists, Mismatched, Unsupported, Refused, Invalid, Forged, TooLarge, Broken, Limited, Unavailable, NotFound,
}

type answer struct {
	outcome  string
	code     int
	body     any
	after    time.Duration // Retry-After; 0 = none
	verified *Repository   // whose hook has shown that it works
}

// respond makes Grafana's WebhookResponse. Its message has an odd name there.
func respond(outcome string, code int, message string) answer {
	return answer{outcome: outcome, code: code, body: map[string]any{
		"kind": "WebhookResponse", "apiVersion": api.ProvisioningGroup + "/v0alpha1", "code": code, "added": message}}
}

func refuse(outcome string, code int, reason metav1.StatusReason, format string, args ...any) answer {
	return answer{outcome: outcome, code: code, body: metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: fmt.Sprintf(format, args...)}}
}

func unavailable(why string) answer {
	a := refuse(Unavailable, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "%s", why)
	a.after = retryAfter
	return a
}

func reasonOf(code int) metav1.StatusReason {
	switch code {
	case http.StatusConflict:
		return metav1.StatusReasonConflict
	case http.StatusFailedDependency:
		return "FailedDependency"
	}
	return metav1.StatusReasonBadRequest
}

// answer counts and sends. Too many failures of a client have another answer; an authentic delivery
// never is one, so that forged ones, which a proxy may send from the same address, do not keep it
// out.
func (r *Receiver) answer(w http.ResponseWriter, req *http.Request, a answer) {
	switch a.outcome {
	case Forged, TooLarge, Broken, NotFound:
		if !r.clients.allow(clientOf(req, r.o.Trusted), time.Now()) {
			a = refuse(Limited, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
				"too many failed requests: at most %d per second", requestRate)
			a.after = time.Second
		}
	}
	r.o.Count(a.outcome)
	switch a.outcome {
	case Forged, Limited, TooLarge, Broken, NotFound: // the others have a line of their own
		r.refusals.Do(func() {
			r.o.Logger.Warn("webhook request refused; others within a minute are only counted", "outcome", a.outcome)
		})
	}
	data, err := json.Marshal(a.body)
	if err != nil {
		http.Error(w, "the answer cannot be encoded", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(data)))
	switch {
	case a.code == http.StatusMethodNotAllowed:
		h.Set("Allow", http.MethodPost)
	case a.after > 0:
		h.Set("Retry-After", strconv.Itoa(int(a.after/time.Second)))
	}
	w.WriteHeader(a.code)
	_, _ = w.Write(data) // the peer is gone
}

// Source of both: Grafana's endpoint.
const (
	requestRate  = 10 // failures per second and client
	requestBurst = 20
	maxClients   = 10_000 // the least recently seen is dropped, which delays no request
)

// clients are the limits of the clients by their address.
type clients struct{ *lru.Cache }

func newClients() clients { return clients{lru.New(maxClients)} }

// allow counts one failure and reports whether it is within the limit.
func (c clients) allow(addr netip.Addr, now time.Time) bool {
	limiter, ok := c.Get(addr)
	if !ok {
		limiter = rate.NewLimiter(requestRate, requestBurst)
		c.Add(addr, limiter)
	}
	return limiter.(*rate.Limiter).AllowN(now, 1)
}

// clientOf returns the address that a request is counted under. A header counts only as far as
// trusted proxies have written it: the client is the last untrusted address in X-Forwarded-For.
func clientOf(req *http.Request, trusted []netip.Prefix) netip.Addr {
	peer, _ := netip.ParseAddrPort(req.RemoteAddr)
	at := peer.Addr().Unmap()
	hops := strings.Split(strings.Join(req.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && isTrusted(at, trusted); i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		at = hop.Unmap()
	}
	return clientNetwork(at)
}

func isTrusted(addr netip.Addr, trusted []netip.Prefix) bool {
	return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// clientNetwork returns the address, or for IPv6 its /64: a client controls all of its addresses.
func clientNetwork(addr netip.Addr) netip.Addr {
	if !addr.Is6() {
		return addr
	}
	p, err := addr.WithZone("").Prefix(64)
	if err != nil {
		return addr
	}
	return p.Addr()
}
