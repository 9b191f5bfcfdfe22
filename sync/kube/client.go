// Package kube is limpet's one door to client-go: it speaks to one
// Kubernetes-style API server, Grafana's, a cluster's or the embedded one.
//
// A Client authenticates, bounds calls, measures the clock of the server, watches
// (Informer) and knows whether the server answers. It never retries by itself: callers
// decide with Retry. It never limits the rate: limits depend on the purpose of a call.
package kube

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"

	"limpet/sync/netx"
	"limpet/sync/text"
)

// leaseAgent ends the User-Agent of a lease client, so that the log of a server
// and what stands before it can tell renewals from other requests.
const leaseAgent = " (lease)"

// Client speaks to one API server. It is safe for concurrent use.
type Client struct {
	*availability
	shared  *shared
	http    *http.Client
	rest    rest.Interface
	dynamic dynamic.Interface
	pools   []*pool
	lease   *Client // the same server over its own connections; nil in a lease client
}

// shared is what a Client and its lease client have in common.
type shared struct {
	target       *target
	log          *slog.Logger
	clock        Clock
	availability availability
	requests     requests
	discovery    discovery
	source       func(path string) tokenSource // nil = no token of ours
	static       *staticToken                  // nil = the token is in a file, or there is none
	exchange     *exchangers                   // nil = none
	stop         context.CancelFunc
	pools        []*pool // of the exchange
}

// Connect checks the configuration and every file that it names, and returns a Client. It sends
// nothing: the server need not be up. Close the Client when it is no longer needed.
func Connect(ctx context.Context, c Config) (*Client, error) {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.UserAgent == "" {
		c.UserAgent = "limpet"
	}
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	t, err := c.resolve()
	if err != nil {
		return nil, err
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &shared{target: t, log: c.Logger, stop: stop}
	text.RegisterSecret([]byte(t.token))
	if err := s.authenticate(life, c); err != nil {
		stop()
		return nil, err
	}
	client, err := s.client(c)
	if err != nil {
		stop()
		return nil, err
	}
	c.UserAgent += leaseAgent
	if client.lease, err = s.client(c); err != nil {
		client.Close()
		return nil, err
	}
	s.warn(c)
	return client, nil
}

func (s *shared) authenticate(life context.Context, c Config) error {
	t := s.target
	var token tokenSource
	switch {
	case t.tokenFile != "":
		token = newFileToken(t.tokenFile, c.Logger)
	case t.token != "":
		s.static = newStaticToken(t.token)
		token = s.static
	default:
		return nil
	}
	if t.exchange == nil {
		s.source = func(string) tokenSource { return token }
		return nil
	}
	p, err := newPool(t.filesFor(t.exchange), netx.FromEnvironment, c.Logger)
	if err != nil {
		return err
	}
	s.pools = append(s.pools, p)
	s.exchange = newExchangers(life, t.exchange, token, p)
	s.source = s.exchange.forPath
	return nil
}

// client makes a Client with connections of its own.
func (s *shared) client(c Config) (*Client, error) {
	client := &Client{availability: &s.availability, shared: s}
	base, err := client.connections(c)
	if err != nil {
		return nil, err
	}
	var rt http.RoundTripper = &wireTransport{next: base, clock: &s.clock, requests: &s.requests, agent: c.UserAgent}
	if s.source != nil {
		header := "Authorization"
		if s.exchange != nil {
			header = "X-Access-Token"
		}
		rt = &authTransport{next: rt, source: s.source, host: s.target.base.Host, header: header}
	}
	rt = &callTransport{next: rt, timeout: c.Timeout, availability: &s.availability}
	client.http = &http.Client{Transport: rt, CheckRedirect: sameHostOnly}

	cfg := dynamic.ConfigFor(&rest.Config{Host: s.target.base.String(), QPS: -1, UserAgent: c.UserAgent})
	cfg.APIPath = "/"
	cfg.NegotiatedSerializer = decodesOnce{cfg.NegotiatedSerializer}
	restClient, err := rest.UnversionedRESTClientForConfigAndClient(cfg, client.http)
	if err != nil {
		return nil, fmt.Errorf("make a REST client: %w", err)
	}
	client.rest = withoutRetries{restClient}
	client.dynamic = dynamic.New(client.rest)
	return client, nil
}

// connections makes the pools, and around them what a kubeconfig asks for:
// basic authentication, exec plugins, impersonation.
func (c *Client) connections(cfg Config) (http.RoundTripper, error) {
	var conf *transport.Config
	files, proxy := c.shared.target.filesFor(c.shared.target.base), netx.FromEnvironment
	if kube := c.shared.target.rest; kube != nil {
		var err error
		if conf, err = kube.TransportConfig(); err != nil {
			return nil, flagErrorf("--kubeconfig", "%w", err)
		}
		if conf.Proxy != nil {
			proxy = conf.Proxy
		}
		if conf.TLS.GetCertHolder != nil {
			files.certificate = conf.TLS.GetCertHolder.GetCert
		}
	}
	base := cfg.Transport
	if base == nil {
		split := splitTransport{}
		for _, side := range []*http.RoundTripper{&split.calls, &split.watches} {
			p, err := newPool(files, proxy, cfg.Logger)
			if err != nil {
				return nil, err
			}
			c.pools = append(c.pools, p)
			*side = p
		}
		base = split
	}
	if conf == nil {
		return base, nil
	}
	conf.UserAgent = ""
	wrapped, err := transport.HTTPWrappersForConfig(conf, base)
	if err != nil {
		return nil, flagErrorf("--kubeconfig", "%w", err)
	}
	return wrapped, nil
}

// warn logs once what makes the connection unsafe.
func (s *shared) warn(c Config) {
	t := s.target
	if c.Transport != nil {
		return
	}
	for _, u := range []*url.URL{t.base, t.exchange} {
		switch {
		case u == nil:
		case u.Scheme == "https" && t.filesFor(u).insecure:
			warnOnce(s.log, "the certificate of the server is not checked (--tls-insecure)", u.Host)
			return
		case u.Scheme == "http" && s.source != nil && !loopback(u.Hostname()):
			warnOnce(s.log, "the token travels without TLS", u.Host)
			return
		}
	}
}

// warnedOnce holds what warnOnce has said. It belongs to the process because an
// agent has several Clients for one server.
var warnedOnce sync.Map

func warnOnce(log *slog.Logger, text, host string) {
	if _, known := warnedOnce.LoadOrStore(text+host, true); !known {
		log.Warn(text, "server", host)
	}
}

// Resource returns client-go's dynamic client for one resource. Its calls have
// the deadline of Config.Timeout and are made once.
func (c *Client) Resource(gvr schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return c.dynamic.Resource(gvr)
}

// Lease returns a Client for the same server over connections of its own, so that the renewal of a
// lease never waits behind other traffic. Clock and health are shared. Closing it closes nothing.
func (c *Client) Lease() *Client {
	return cmp.Or(c.lease, c)
}

// Clock returns the clock of the server, as measured by its answers.
func (c *Client) Clock() *Clock { return &c.shared.clock }

// Now returns the time of the server, the local time while that is unknown.
func (c *Client) Now() time.Time {
	if now, _, ok := c.Clock().Now(); ok {
		return now
	}
	return time.Now()
}

// url is the base URL of the server, without a trailing slash.
func (c *Client) url() string { return c.shared.target.base.String() }

// Close ends what the Client runs and drops its idle connections. Informers end with the context of
// their Run.
func (c *Client) Close() {
	if c.lease == nil {
		return
	}
	c.shared.stop()
	if c.shared.exchange != nil {
		c.shared.exchange.wait()
	}
	for _, pools := range [][]*pool{c.pools, c.lease.pools, c.shared.pools} {
		for _, p := range pools {
			if t := p.current.Load(); t != nil {
				t.CloseIdleConnections()
			}
		}
	}
}

// withoutRetries switches client-go's own repetitions off. They know no deadline over
// all attempts and no bound for Retry-After.
type withoutRetries struct{ rest.Interface }

func (o withoutRetries) Verb(verb string) *rest.Request { return o.Interface.Verb(verb).MaxRetries(0) }
func (o withoutRetries) Post() *rest.Request            { return o.Interface.Post().MaxRetries(0) }
func (o withoutRetries) Put() *rest.Request             { return o.Interface.Put().MaxRetries(0) }
func (o withoutRetries) Get() *rest.Request             { return o.Interface.Get().MaxRetries(0) }
func (o withoutRetries) Delete() *rest.Request          { return o.Interface.Delete().MaxRetries(0) }
func (o withoutRetries) Patch(pt types.PatchType) *rest.Request {
	return o.Interface.Patch(pt).MaxRetries(0)
}

// Endpoint returns the base URL of the server and a transport that adds this client's credentials
// to requests for it, for a proxy in the same process. The URL is a copy.
func (c *Client) Endpoint() (*url.URL, http.RoundTripper) {
	base := *c.shared.target.base
	return &base, c.http.Transport
}

// Insecure reports whether the certificate of the server is not verified.
func (c *Client) Insecure() bool {
	t := c.shared.target
	return t.base.Scheme == "https" && t.filesFor(t.base).insecure
}

// client-go logs through klog, which writes to stderr by default: in the middle of a
// dashboard, and without redaction. What went wrong is in errors and LastError as well.
func init() { klog.SetSlogLogger(slog.New(slog.DiscardHandler)) }

// RequestKind is what requests are counted by, as client-go counts its own.
type RequestKind struct{ Code, Method, Host string }

// requests counts what was sent.
type requests struct {
	mu     sync.Mutex // guards counts
	counts map[RequestKind]int64
}

func (r *requests) add(req *http.Request, resp *http.Response) {
	kind := RequestKind{Code: "<error>", Method: req.Method, Host: req.URL.Host}
	if resp != nil {
		kind.Code = strconv.Itoa(resp.StatusCode)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[RequestKind]int64{}
	}
	r.counts[kind]++
}

// Requests returns how many requests were sent by what became of them, those of lease clients
// included.
func (c *Client) Requests() map[RequestKind]int64 {
	r := &c.shared.requests
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counts)
}
