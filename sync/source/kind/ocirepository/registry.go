package ocirepository

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry"
	registryauth "oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/retry"

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
	mostKnown  = 100              // answers of a repository: a site may get a new tag every minute
	// answerWithin leaves time for the registry where a mirror is silent.
	answerWithin = 25 * time.Second
)

// registries are the connections to repositories, by their address and login: tokens and answers
// are shared by the sources that have both in common, and by no others.
type registries struct {
	http    *netx.Client // its connections
	mirrors Mirrors
	mu      sync.Mutex // guards opened
	opened  map[string]*repository
}

// repository is a repository of a registry for one login. The login is that of oras; its client of
// the whole API would weigh more than all else of this kind.
type repository struct {
	client *registryauth.Client
	at     registry.Reference
	plain  bool
	forget func() // drops a login that was refused

	used    time.Time // guarded by registries.mu
	answers answers
}

// answers are those of a repository to HEADs.
type answers struct {
	mu    sync.Mutex // guards known
	known map[string]*answer
}

// answer is the answer to one reference.
type answer struct {
	mu    sync.Mutex // is held while a request runs, so that others wait for its answer
	at    time.Time
	found ocispec.Descriptor
}

// get returns the recent answer for a reference, or asks anew.
func (a *answers) get(
	reference string, fresh bool, ask func() (ocispec.Descriptor, error),
) (found ocispec.Descriptor, err error) {
	a.mu.Lock()
	one := a.known[reference]
	if one == nil {
		if len(a.known) == mostKnown {
			clear(a.known)
		}
		one = &answer{}
		a.known[reference] = one
	}
	a.mu.Unlock()
	began := time.Now()
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.at.After(began) || !fresh && time.Since(one.at) < sharedFor {
		return one.found, nil
	}
	if found, err = ask(); err != nil {
		one.at = time.Time{}
		return found, err
	}
	one.at, one.found = began, found
	return found, nil
}

func newRegistries(o Options) *registries {
	client := &netx.Client{Guard: o.Guard, UserAgent: o.UserAgent, Idle: unusedFor, Silence: answerWithin}
	return &registries{http: client, mirrors: o.Mirrors, opened: map[string]*repository{}}
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
			delete(r.opened, key)
		}
	}
	if found := r.opened[key]; found != nil {
		found.used = now
		return found, nil
	}
	transport, err := r.http.Following(l.transport, l.transport.ForOtherHost())
	if err != nil {
		return nil, err
	}
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
	client.SetUserAgent(r.http.UserAgent)
	made := &repository{client: client, at: at, plain: plain, forget: l.forget, used: now, answers: answers{known: map[string]*answer{}}}
	r.opened[key] = made
	return made, nil
}
