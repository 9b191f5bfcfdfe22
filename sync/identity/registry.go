package identity

import (
	"sync"
	"time"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

// learnedSkew is the difference from which on the clock of a provider is used in place
// of the local one. An answer gives it to the second.
const learnedSkew = 30 * time.Second

// registry is what each provider works with: its tokens, its calls, its clock. After a
// failure a provider is not asked for a while; meanwhile a token that is good is used on,
// and without one the failure is returned again.
type registry struct {
	o          Options
	tokens     *auth.Tokens
	transports transports

	mu       sync.Mutex    // guards what follows; never held over a call
	skew     time.Duration // clock of the provider less the local one
	clockSet bool
}

// forget returns the function that drops a token which was refused.
func (g *registry) forget(key auth.TokenKey, token auth.Token) func() {
	return func() { g.tokens.Refused(key, token.Value) }
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
