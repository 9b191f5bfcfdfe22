package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"limpet/sync/git/giterr"
	"limpet/sync/git/pack"
	"limpet/sync/netx"
)

// Options say whom a Client asks, and for how long.
type Options struct {
	AllowLocal []string      // directories under which a URL may be a local path; none by default
	AllowDirs  []string      // directories under which a URL may be a directory of plain files; none by default
	Limits     pack.Limits   // defaults for remotes; zero fields take pack.DefaultLimits
	PerHost    int           // requests at one host at a time; 0 = 2
	Pause      time.Duration // first pause of a server that did not answer, where there are fallbacks; 0 = 15 s
	Stall      time.Duration // longest silence of a server within a request; 0 = 2 minutes
	Refs       time.Duration // longest list of refs, with the connection before it; 0 = 5 minutes
	Whole      time.Duration // longest time of one call at all servers together, from its first turn at each; 0 = DefaultWhole
	Guard      netx.Guard    // checks each address that is dialled
	Logger     *slog.Logger  // nil = discard
}

// DefaultWhole ends a call before a job of the default length ends, so that the error says what
// took so long.
const DefaultWhole = 15 * time.Minute

// Client asks Git servers. It is safe for concurrent use.
type Client struct {
	dir     string  // for temporary files
	Options Options // with defaults
	asked   netx.CertificateRequests

	mu             sync.Mutex               // guards all below; never held while something waits
	hosts          map[string]chan struct{} // tokens: requests that run at a host
	throttledUntil map[string]time.Time     // of identities at hosts: throttled until then
	clients        map[string]*http.Client  // by auth.Credentials.Line
	long           map[string]longServer    // by Call.Identity
	shares         map[string]*share        // of repositories with limits
	dirs           map[string]dirMemory     // by path
	bundles        map[string]bundleMemory  // by path of the directory
}

// RequestLimits bound the requests for one repository; 0 = no bound. They make those of a host
// stricter.
type RequestLimits struct{ MaxConcurrent, PerSecond, Burst int }

// share is what the calls for one repository have in common.
type share struct {
	tokens chan struct{} // nil = no bound
	rate   *rate.Limiter
}

// maxShares bounds the shares: limits change now and then.
const maxShares = 1024

// share returns what the call has in common with others for its repository, nil where that has no
// limits.
func (c *Call) share() *share {
	l := c.Target.Requests
	if l.MaxConcurrent <= 0 && l.PerSecond <= 0 {
		return nil
	}
	key := fmt.Sprint(c.Addr.Key(), l)
	c.client.mu.Lock()
	defer c.client.mu.Unlock()
	s := c.client.shares[key]
	if s == nil {
		s = &share{rate: rate.NewLimiter(rate.Inf, 0)}
		if l.MaxConcurrent > 0 {
			s.tokens = make(chan struct{}, l.MaxConcurrent)
		}
		if l.PerSecond > 0 {
			s.rate = rate.NewLimiter(rate.Limit(l.PerSecond), max(l.Burst, 1))
		}
		if len(c.client.shares) >= maxShares {
			clear(c.client.shares)
		}
		c.client.shares[key] = s
	}
	return s
}

// pace waits until the repository of the call may send another request.
func (c *Call) pace() error {
	c.requests.Add(1)
	if s := c.share(); s != nil {
		return s.rate.Wait(c.Ctx)
	}
	return nil
}

// New makes a client that has its temporary files in dir; zero options take their defaults.
func New(dir string, o Options) *Client {
	o.Limits = o.Limits.Or(pack.DefaultLimits)
	o.PerHost = cmp.Or(o.PerHost, 2)
	o.Pause = cmp.Or(o.Pause, 15*time.Second)
	o.Stall = cmp.Or(o.Stall, 2*time.Minute)
	o.Refs = cmp.Or(o.Refs, listTime)
	o.Whole = cmp.Or(max(o.Whole, 0), DefaultWhole)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Client{
		Options:        o,
		dir:            dir,
		hosts:          map[string]chan struct{}{},
		throttledUntil: map[string]time.Time{},
		clients:        map[string]*http.Client{},
		long:           map[string]longServer{},
		shares:         map[string]*share{},
		dirs:           map[string]dirMemory{},
		bundles:        map[string]bundleMemory{},
	}
}

// CloseIdle closes idle connections.
func (t *Client) CloseIdle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.clients {
		c.CloseIdleConnections()
	}
}

// longestGate bounds for how long a host may have itself left alone. A person who
// looks into it should not have to wait for a day.
const longestGate = time.Hour

// identity is for whom a host counts requests.
func (c *Call) identity() string { return c.Addr.HostPort() + " " + c.Target.Creds.Fingerprint() }

// throttle has nobody ask the host with these credentials for a while: it has said so, and each
// repository there would get the same answer. An answer that names no time changes nothing.
func (c *Call) throttle(wait time.Duration) {
	if wait <= 0 {
		return
	}
	c.client.mu.Lock()
	defer c.client.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(c.client.throttledUntil, func(_ string, until time.Time) bool { return until.Before(now) })
	c.client.throttledUntil[c.identity()] = now.Add(min(wait, longestGate))
}

// Visit waits until fewer than Options.PerHost requests run at the call's host, unless
// that is not to be asked now. The returned function ends the visit when all was read:
// what a slow disk then does with a pack is no silence of the server.
func (c *Call) Visit() (leave func(), err error) {
	c.client.mu.Lock()
	wait := time.Until(c.client.throttledUntil[c.identity()])
	c.client.mu.Unlock()
	if wait > 0 {
		return nil, &giterr.Error{Kind: giterr.Throttled, Err: errors.New("too many requests (429)"),
			Hint: "it is asked again when its Retry-After has passed", RetryAfter: wait}
	}
	s := c.share()
	if s == nil || s.tokens == nil {
		return c.visit(c.Addr.HostPort())
	}
	select {
	case s.tokens <- struct{}{}:
	case <-c.Ctx.Done():
		return nil, context.Cause(c.Ctx)
	}
	end, err := c.visit(c.Addr.HostPort())
	if err != nil {
		<-s.tokens
		return nil, err
	}
	return func() {
		end()
		<-s.tokens
	}, nil
}

// visit is Visit at any host.
func (c *Call) visit(host string) (leave func(), err error) {
	c.client.mu.Lock()
	tokens, ok := c.client.hosts[host]
	if !ok {
		tokens = make(chan struct{}, c.client.Options.PerHost)
		c.client.hosts[host] = tokens
	}
	c.client.mu.Unlock()
	select {
	case tokens <- struct{}{}:
		c.startClock()
		return func() {
			c.stopWatchdog()
			<-tokens
		}, nil
	case <-c.Ctx.Done():
		return nil, context.Cause(c.Ctx)
	}
}
