package identity

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

// Backoff of an identity whose provider has failed: the first wait, doubled each time,
// and the longest, which follows each refusal. A provider may ask for more, up to an hour.
const (
	firstWait   = time.Second
	longestWait = 30 * time.Second
)

// maxBackoffs bounds how many failing identities are remembered.
const maxBackoffs = 256

// learnedSkew is the difference from which on the clock of a provider is used in place
// of the local one. An answer gives it to the second.
const learnedSkew = 30 * time.Second

// registry is what each provider works with: its tokens, its failures, its clock.
type registry struct {
	o          Options
	tokens     *auth.Tokens
	transports transports

	mu       sync.Mutex // guards what follows; never held over a call
	backoffs map[auth.TokenKey]backoff
	skew     time.Duration // clock of the provider less the local one
	clockSet bool
}

// backoff is how long an identity is not used, and why.
type backoff struct {
	until time.Time
	wait  time.Duration
	err   error
}

// token returns the token of a key, cached or minted. After a failure nothing is asked
// for a while; meanwhile a token that is good is used on, and without one the failure is
// returned again.
func (g *registry) token(ctx context.Context, key auth.TokenKey, mint func(context.Context) (auth.Token, error)) (auth.Token, error) {
	return g.tokens.Token(ctx, key, func(ctx context.Context) (auth.Token, error) {
		if err := g.backingOff(key); err != nil {
			return auth.Token{}, err
		}
		token, err := mint(ctx)
		g.record(key, err)
		return token, err
	})
}

// forget returns the function that drops a token which was refused.
func (g *registry) forget(key auth.TokenKey, token auth.Token) func() {
	return func() { g.tokens.Refused(key, token.Value) }
}

// backingOff returns the last failure while it is too early to ask again.
func (g *registry) backingOff(key auth.TokenKey) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.backoffs[key]
	left := time.Until(b.until)
	if left <= 0 {
		return nil
	}
	err := b.err
	if e, typed := errors.AsType[*netx.Error](err); typed {
		again := *e
		again.RetryAfter = left
		err = &again
	}
	return repeated{err}
}

// repeated is a failure that is returned once more.
type repeated struct{ error }

func (r repeated) Unwrap() []error { return []error{r.error, auth.ErrNotAsked} }

// record remembers the result of an attempt.
func (g *registry) record(key auth.TokenKey, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	kind := answeredKind(err)
	switch kind {
	case "":
		delete(g.backoffs, key)
		return
	case netx.Cancelled, netx.Invalid: // nothing was asked
		return
	}
	wait := min(max(firstWait, 2*g.backoffs[key].wait), longestWait)
	if kind != netx.Unavailable {
		wait = longestWait
	}
	if e, ok := errors.AsType[*netx.Error](err); ok {
		wait = max(wait, e.RetryAfter)
	}
	if g.backoffs == nil {
		g.backoffs = map[auth.TokenKey]backoff{}
	}
	if _, known := g.backoffs[key]; !known && len(g.backoffs) >= maxBackoffs {
		delete(g.backoffs, slices.MinFunc(slices.Collect(maps.Keys(g.backoffs)), func(a, b auth.TokenKey) int {
			return g.backoffs[a].until.Compare(g.backoffs[b].until)
		}))
	}
	g.backoffs[key] = backoff{until: time.Now().Add(wait), wait: wait, err: err}
}

// answeredKind returns the kind of an error; of several sources that have failed that of
// the first which was asked.
func answeredKind(err error) netx.ErrorKind {
	var several interface{ Unwrap() []error }
	if !errors.As(err, &several) {
		return netx.KindOf(err)
	}
	for _, each := range several.Unwrap() {
		if kind := answeredKind(each); kind != netx.Invalid && kind != netx.Cancelled {
			return kind
		}
	}
	return netx.Invalid
}

// Signatures carry a time, which the other side compares with its own within minutes.
// The clock of a small board may be years off; that of the other side is in the header
// of each of its answers, refusals too.

// setClock notes the time at a provider.
func (g *registry) setClock(at time.Time) {
	skew := time.Until(at)
	if skew.Abs() <= learnedSkew {
		skew = 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.skew, g.clockSet = skew, true
}

// now returns the time by the clock of the provider; while that is unknown, by
// Options.Now.
func (g *registry) now() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.clockSet {
		return g.o.Now()
	}
	return time.Now().Add(g.skew)
}

// retryInTime mints a token with a proof that is signed at a time, and once more when it
// is refused and the answer shows that the time was wrong.
func (g *registry) retryInTime(mint func(now time.Time) (auth.Token, error)) (auth.Token, error) {
	for tried := false; ; tried = true {
		now, began := g.now(), time.Now()
		token, err := mint(now)
		kind := netx.KindOf(err)
		refused := kind == netx.Unauthorized || kind == netx.Forbidden || kind == netx.Refused
		if !refused || tried || g.now().Add(-time.Since(began)).Sub(now).Abs() <= learnedSkew {
			return token, err
		}
	}
}
