package transport

import (
	"log/slog"
	"net/http"
	"sync"
	"time"

	"limpet/sync/netx"
)

// Options of newClient.
type Options struct {
	Dir        string        // for temporary files
	AllowLocal []string      // directories under which a URL may be a local path; none by default
	PerHost    int           // requests at one host at a time; 0 = 2
	Stall      time.Duration // longest silence of a server within a request; 0 = 2 minutes
	Refs       time.Duration // longest list of refs, with the connection before it; 0 = 5 minutes
	Whole      time.Duration // longest time of one call, from its first turn at a host
	Guard      netx.Guard    // checks each address that is dialled
	Logger     *slog.Logger
}

// Client asks Git servers. It is safe for concurrent use.
type Client struct {
	options Options
	asked   netx.CertificateRequests

	mu             sync.Mutex               // guards all below; never held while something waits
	hosts          map[string]chan struct{} // tokens: requests that run at a host
	throttledUntil map[string]time.Time     // of identities at hosts: throttled until then
	clients        map[string]*http.Client  // by auth.Credentials.Line
}

// New makes a client; zero options take their defaults.
func New(o Options) *Client {
	if o.PerHost <= 0 {
		o.PerHost = 2
	}
	if o.Refs <= 0 {
		o.Refs = listTime
	}
	if o.Stall <= 0 {
		o.Stall = 2 * time.Minute
	}
	return &Client{options: o, hosts: map[string]chan struct{}{}, throttledUntil: map[string]time.Time{}, clients: map[string]*http.Client{}}
}

// CloseIdle closes idle connections.
func (t *Client) CloseIdle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.clients {
		c.CloseIdleConnections()
	}
}
