package ocirepository

import (
	"context"
	"net/http"
	"net/netip"
	"sync"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry"
	registryauth "oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/retry"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

const (
	// sharedFor is how long the answer to a HEAD holds for other sources of the same repository and
	// login; a reconcile that was requested asks again.
	sharedFor  = 5 * time.Second
	unusedFor  = 10 * time.Minute // after which connections and tokens of a repository are dropped
	maxRetries = 2                // of a request that a registry cannot answer now
	maxWait    = 10 * time.Second // before one of them
	mostPages  = 1000             // of a list of tags
	// answerWithin leaves time for the registry where a mirror is silent.
	answerWithin = 25 * time.Second
)

// registries are the connections to repositories, by their address and login: tokens and answers
// are shared by the sources that have both in common, and by no others.
type registries struct {
	o      Options
	mu     sync.Mutex // guards open
	opened map[string]*repository
}

// repository is a repository of a registry for one login.
type repository struct {
	*remote
	close func()    // ends connections that are idle
	used  time.Time // guarded by registries.mu

	mu      sync.Mutex // guards answers
	answers map[string]*answer
}

// answer is the answer to one reference.
type answer struct {
	mu    sync.Mutex // is held while a request runs, so that others wait for its answer
	at    time.Time
	found ocispec.Descriptor
}

func newRegistries(o Options) *registries {
	return &registries{o: o, opened: map[string]*repository{}}
}

// open returns the repository for a login.
func (r *registries) open(at registry.Reference, l login, plain bool) (*repository, error) {
	key := at.Registry + "/" + at.Repository + " " + l.fingerprint()
	if plain {
		key += " http"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for key, old := range r.opened {
		if now.Sub(old.used) > unusedFor {
			old.close()
			delete(r.opened, key)
		}
	}
	if found := r.opened[key]; found != nil {
		found.used = now
		return found, nil
	}
	own, err := r.transport(l.transport)
	if err != nil {
		return nil, err
	}
	other, err := r.transport(l.transport.ForOtherHost())
	if err != nil {
		return nil, err
	}
	transport := netx.Redirected{Own: own, Other: other}
	client := &registryauth.Client{
		Client: &http.Client{Transport: &retry.Transport{Base: transport, Policy: func() retry.Policy {
			return &retry.GenericPolicy{Retryable: retry.DefaultPredicate, Backoff: retry.DefaultBackoff,
				MinWait: 200 * time.Millisecond, MaxWait: maxWait, MaxRetry: maxRetries}
		}}},
		Cache:      registryauth.NewCache(),
		Credential: registryauth.StaticCredential(at.Host(), l.credential),
	}
	if onThisHost(at) { // a token service is there, too
		client.BlockedRealmPrefixes = []netip.Prefix{}
	}
	client.SetUserAgent(r.o.UserAgent)
	closeIdle := func() { own.CloseIdleConnections(); other.CloseIdleConnections() }
	made := &repository{close: closeIdle, used: now, answers: map[string]*answer{}, remote: &remote{client, at, plain, l.forget}}
	r.opened[key] = made
	return made, nil
}

// transport returns connections of a login.
func (r *registries) transport(c *auth.Credentials) (*http.Transport, error) {
	config, err := c.TLS()
	if err != nil {
		return nil, err
	}
	made := r.o.Guard.Transport(config, c.GetProxy())
	made.IdleConnTimeout = unusedFor
	made.ResponseHeaderTimeout = answerWithin
	return made, nil
}

// shared is a repository whose recent answers count, unless fresh ones are demanded.
type shared struct {
	*repository
	fresh bool
}

// Resolve asks what a reference stands for, by one HEAD.
func (s shared) Resolve(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	s.mu.Lock()
	a := s.answers[reference]
	if a == nil {
		a = &answer{}
		s.answers[reference] = a
	}
	s.mu.Unlock()
	began := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at.After(began) || !s.fresh && time.Since(a.at) < sharedFor {
		return a.found, nil
	}
	found, err := s.remote.Resolve(ctx, reference)
	if a.at, a.found = began, found; err != nil {
		a.at = time.Time{}
	}
	return found, err
}
