// Package forge speaks the REST of Git hosts and nothing else: GitHub, GitHub
// Enterprise, GitLab, Bitbucket Cloud, and Gitea with Forgejo. It registers
// webhooks, reads facts of a repository, mints tokens of GitHub Apps and tests
// the identity of a Connection.
//
// The laws of this room: every call is bounded in time and in bytes; a secret
// travels in headers and bodies only, never in a URL, and to no host but the one
// it belongs to; no error and no log line holds one; nothing is asked after the
// context has ended, nor of a host that has said when it may be asked again.
//
// There is no client library under it. What is needed of four hosts is a dozen
// calls; the libraries have no bounds of their own.
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

// Kind is what a host speaks.
type Kind string

// The kinds of hosts. Forgejo speaks Gitea's API.
const (
	GitHub           Kind = "github"
	GitHubEnterprise Kind = "githubEnterprise"
	GitLab           Kind = "gitlab"
	Bitbucket        Kind = "bitbucket" // Cloud
	Gitea            Kind = "gitea"
)

// ErrNone is wrapped when a repository is at no host whose REST is known. Such a
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
	// maxRecent bounds each of the small memories: TLS clients, probes.
	maxRecent = 64
	// maxGates is one for each of a thousand repositories with tokens of their own.
	maxGates = 1024
)

// Options of Hosts; the zero value is good.
type Options struct {
	// AllowInsecure lets credentials travel over plain http.
	AllowInsecure bool
	// Guard judges each address that is dialled.
	Guard netx.Guard
	// APIs are base URLs by host of the clone URL, for hosts whose API is not
	// where it is expected: a proxy in front of api.github.com.
	APIs map[string]string
	// UserAgent is sent with every request; "" is "limpet".
	UserAgent string
}

// Hosts are all hosts that an agent speaks with: their connections, and what was
// learned about them. Safe for concurrent use.
type Hosts struct {
	o     Options
	asked netx.CertificateRequests

	mu      sync.Mutex                    // guards what follows; never held over a call
	clients recent[string, *http.Client]  // by auth.Credentials.TransportKey
	gates   recent[string, gate]          // those that are closed
	skews   recent[string, time.Duration] // clock of an API less the local one
	probes  recent[string, *probe]
	grants  recent[string, map[string]string] // permissions of an installation that has fewer than all
}

// New makes Hosts. Close releases their connections.
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

// client gives the http client for the TLS side of some credentials.
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

// Remote is one repository at its host, asked with some credentials. Its methods
// block until the host has answered, at most 20 s for each call that they make.
type Remote struct {
	place Place
	host  host
}

// Kind is what the host speaks.
func (r *Remote) Kind() Kind { return r.place.Kind }

// Name is the full name of the repository: owner/name, or group/subgroup/name.
func (r *Remote) Name() string { return r.place.Path }

// Events are those that a webhook of this host wants, in its own words.
func (r *Remote) Events() []string { return r.host.events() }

// Remote finds the host of a repository. The error wraps ErrNone when there is
// none that is known; a plain Git URL may need one request to find out, once for
// each host. creds may be nil.
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

// host is what each kind of host does in its own way. Lists are asked page by
// page, beginning with 1; more says that there is another one.
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

// recent is a small memory that forgets what was put in first. The zero value is
// ready. Not safe for concurrent use.
type recent[K comparable, V any] struct {
	most   int // 0 = mostKept
	values map[K]V
	order  []K
}

func (r *recent[K, V]) get(key K) (V, bool) {
	v, ok := r.values[key]
	return v, ok
}

// put remembers a value, and returns the one that made room for it.
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
