// Package forge is the client of the REST APIs of Git hosts: GitHub, GitHub
// Enterprise, GitLab, Bitbucket Cloud, and Gitea with Forgejo. It registers webhooks,
// reads facts of a repository, mints tokens of GitHub Apps and tests the identity of
// a Connection.
//
// Its rules: every call is bounded in time and in bytes; a secret travels in headers
// and bodies only, never in a URL, and only to its own host; no error and no log line
// holds one; no request is sent after the context has ended, nor before the time that
// a host has stated in Retry-After.
//
// It uses no client library: it needs a dozen calls of four hosts, and the libraries
// do not bound theirs.
package forge

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

// Kind is the API of a host.
type Kind string

// The kinds of hosts. Forgejo speaks Gitea's API.
const (
	GitHub           Kind = "github"
	GitHubEnterprise Kind = "githubEnterprise"
	GitLab           Kind = "gitlab"
	Bitbucket        Kind = "bitbucket" // Cloud
	Gitea            Kind = "gitea"
)

// ErrNone is wrapped when the host of a repository has no known REST API. Such a
// repository is polled.
var ErrNone = errors.New("no forge")

// Times and sizes of a call.
const (
	idleConnection = 30 * time.Second
	// callTimeout bounds one call with its redirects: a third of the default
	// expiry of a lease.
	callTimeout = 20 * time.Second
	// maxAnswer is more than a hundred hooks of any host need. Unit: bytes.
	maxAnswer = 4 << 20
	// maxRecent bounds each of the small caches: TLS clients, probes.
	maxRecent = 64
	// maxGates is one for each of a thousand repositories with tokens of their own.
	maxGates = 1024
)

// Options of Hosts; the zero value is good.
type Options struct {
	// AllowInsecure lets credentials travel over plain http.
	AllowInsecure bool
	// Guard checks each address that is dialled.
	Guard netx.Guard
	// APIs are base URLs by host of the clone URL, for hosts whose API is not
	// where it is expected: a proxy in front of api.github.com.
	APIs map[string]string
	// UserAgent is sent with every request; "" is "limpet".
	UserAgent string
}

// Hosts holds the connections to all hosts of an agent, and what is known of them.
// Safe for concurrent use.
type Hosts struct {
	o     Options
	asked netx.CertificateRequests

	mu      sync.Mutex                    // guards all below; never held over a call
	clients recent[string, *http.Client]  // by auth.Credentials.TransportKey
	gates   recent[string, gate]          // those that are closed
	skews   recent[string, time.Duration] // clock of an API less the local one
	probes  recent[string, *probe]
	grants  recent[string, map[string]string] // permissions of an installation that has fewer than all
}

// New returns Hosts. Close releases their connections.
func New(o Options) *Hosts {
	if o.UserAgent == "" {
		o.UserAgent = "limpet"
	}
	return &Hosts{o: o, gates: recent[string, gate]{most: maxGates}}
}

// Close releases idle connections. It may be called twice.
func (h *Hosts) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, client := range h.clients.values {
		client.CloseIdleConnections()
	}
}

// client returns the HTTP client for the TLS settings of some credentials.
func (h *Hosts) client(c *auth.Credentials) (*http.Client, error) {
	key := c.TransportKey()
	h.mu.Lock()
	defer h.mu.Unlock()
	if client, ok := h.clients.get(key); ok {
		return client, nil
	}
	config, err := c.TLS()
	if err != nil {
		return nil, err
	}
	transport := h.o.Guard.Transport(config, c.GetProxy())
	transport.ForceAttemptHTTP2, transport.MaxIdleConns, transport.MaxIdleConnsPerHost, transport.IdleConnTimeout = true, 16, 4, idleConnection
	client := &http.Client{
		// Redirects are followed by call.do, which knows where they may lead.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     transport,
	}
	if old, dropped := h.clients.put(key, client); dropped {
		old.CloseIdleConnections()
	}
	return client, nil
}

// Remote is one repository at its host, with some credentials. Its methods block
// until the host has answered, at most 20 s for each call.
type Remote struct {
	place Place
	host  host
}

// Kind returns the API of the host.
func (r *Remote) Kind() Kind { return r.place.Kind }

// Name returns the full name of the repository: owner/name, or group/subgroup/name.
func (r *Remote) Name() string { return r.place.Path }

// Events returns the events of a webhook of this host, by its own names.
func (r *Remote) Events() []string { return r.host.events() }

// Remote detects the host of a repository. The error wraps ErrNone when it is
// unknown; a plain Git URL may need one probe for each host. creds may be nil.
func (h *Hosts) Remote(ctx context.Context, t Target, creds *auth.Credentials) (*Remote, error) {
	place, err := h.locate(ctx, t, creds)
	if err != nil {
		return nil, err
	}
	c, err := h.caller(place.API, creds)
	if err != nil {
		return nil, err
	}
	r := &Remote{place: place}
	switch place.Kind {
	case GitHub, GitHubEnterprise:
		c.sign = bearer(creds)
		c.header = githubHeader
		r.host = newGitHub(c, place)
	case GitLab:
		c.sign = bearer(creds)
		r.host = newGitLab(c, place)
	case Bitbucket:
		c.sign = bearer(creds)
		if t.Email != "" { // the API token of a person, not of a repository
			c.sign = basic(t.Email, creds)
		}
		r.host = newBitbucket(c, place)
	case Gitea:
		c.sign = giteaToken(creds)
		r.host = newGitea(c, place)
	}
	return r, nil
}

// host implements the API of one kind of host. Lists are read page by page from 1;
// more reports whether another page follows.
type host interface {
	events() []string
	hooks(ctx context.Context, page int) (found []Hook, more bool, err error)
	hook(ctx context.Context, id string) (Hook, error)
	create(ctx context.Context, h Hook) (Hook, error)
	edit(ctx context.Context, h Hook) (Hook, error)
	remove(ctx context.Context, id string) error
	facts(ctx context.Context) (Facts, error)
	protection(ctx context.Context, branch string) (Protection, error)
}

// recent is a small cache that drops the oldest entry. The zero value is ready. Not
// safe for concurrent use.
type recent[K comparable, V any] struct {
	most   int // 0 = mostKept
	values map[K]V
	order  []K
}

func (r *recent[K, V]) get(key K) (V, bool) {
	v, ok := r.values[key]
	return v, ok
}

// put adds a value and returns a dropped one.
func (r *recent[K, V]) put(key K, value V) (old V, dropped bool) {
	if r.values == nil {
		r.values = map[K]V{}
	}
	if _, ok := r.values[key]; !ok {
		if len(r.order) >= cmp.Or(r.most, maxRecent) {
			old, dropped = r.values[r.order[0]], true
			delete(r.values, r.order[0])
			r.order = r.order[1:]
		}
		r.order = append(r.order, key)
	}
	r.values[key] = value
	return old, dropped
}

func (r *recent[K, V]) drop(key K) {
	if _, ok := r.values[key]; !ok {
		return
	}
	delete(r.values, key)
	for i, k := range r.order {
		if k == key {
			r.order = append(r.order[:i:i], r.order[i+1:]...)
			return
		}
	}
}
