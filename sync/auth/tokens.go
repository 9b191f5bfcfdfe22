package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"limpet/sync/netx"
)

const (
	// DefaultTokens is how many tokens are cached: one for each of a thousand
	// repositories, and as many again while their secrets are rotated.
	DefaultTokens = 2048
	// refreshAt is the part of its lifetime after which a token is replaced.
	refreshAt = 0.8
	// lastUse is how long before its end a token is not returned any more: a
	// fetch must be able to begin with it. At most a tenth of its lifetime.
	lastUse = 30 * time.Second
	// refreshPause is the time between two attempts to replace a token that is still good.
	refreshPause = 30 * time.Second
	// firstWait and longestWait bound the backoff after failures: the first wait, which
	// doubles, and the longest, which follows each refusal. A host may ask for more.
	firstWait   = time.Second
	longestWait = 30 * time.Second
)

// Token is a secret with a lifetime. It never prints its value.
type Token struct {
	Value   string
	User    string        // that goes with it over basic, where that is not the same for all; no secret
	Minted  time.Time     // by the local clock
	Expires time.Time     // by the clock of the host that made it; zero = it does not
	Life    time.Duration // from the moment it was asked for; 0 = without end
}

// String shows the lifetime, no secret.
func (t Token) String() string { return fmt.Sprintf("token(%d bytes, %v)", len(t.Value), t.Life) }

// Format is String for every verb.
func (t Token) Format(f fmt.State, _ rune) { io.WriteString(f, t.String()) }

// MarshalJSON writes String.
func (t Token) MarshalJSON() ([]byte, error) { return json.Marshal(t.String()) }

// TokenKey identifies a token. A rotated secret has a new key, so that tokens of the old one are
// not used any more.
type TokenKey struct {
	Owner  string // UID of the object that holds the secret
	Secret string // fingerprint of the secret
	Scope  string // what the token is good for, such as one repository
}

// TokenCounts are the counters of Tokens.
type TokenCounts struct {
	Held     int    // cached now
	Hits     uint64 // answered from memory
	Minted   uint64
	Failed   uint64 // attempts to mint
	Refused  uint64 // dropped because a host refused them
	Overflow uint64 // dropped to make room

	Oldest time.Duration // age of the oldest that is cached
}

// Tokens caches tokens until shortly before their end. Concurrent callers for the same token share
// one attempt to make it, which goes on when they are cancelled; after 80 % of its lifetime one of
// them replaces it while the others get the old one, and so do all when that fails. Safe for
// concurrent use.
type Tokens struct {
	most    int
	backOff bool

	mu      sync.Mutex // guards what follows; never held over a call
	entries map[TokenKey]*tokenEntry
	counts  TokenCounts
}

// tokenEntry is a token, or the attempt to make the first one, or its failure.
type tokenEntry struct {
	token   Token // no Value: none yet
	asked   time.Time
	attempt *tokenAttempt // nil when none is under way
	// After a failure: why, not asked again before, and the wait until then.
	err   error
	until time.Time
	wait  time.Duration
}

// tokenAttempt is one attempt to make a token. done is closed after the result is set.
type tokenAttempt struct {
	done  chan struct{}
	token Token
	err   error
}

// NewTokens caches at most so many tokens; 0 means DefaultTokens.
func NewTokens(most int) *Tokens {
	if most <= 0 {
		most = DefaultTokens
	}
	return &Tokens{most: most, entries: map[TokenKey]*tokenEntry{}}
}

// BackOff makes t return a failure again, without an attempt, for a while that doubles with each
// failure. It returns t.
func (t *Tokens) BackOff() *Tokens {
	t.backOff = true
	return t
}

// Token returns the token of the key, and calls mint when there is none that is good for
// a while. mint has to end by itself: its context is not cancelled.
func (t *Tokens) Token(ctx context.Context, key TokenKey, mint func(context.Context) (Token, error)) (Token, error) {
	t.mu.Lock()
	e, now := t.entry(key), time.Now()
	good, stale := e.state(now)
	switch waiting := now.Before(e.until); {
	case good && (!stale || e.attempt != nil || waiting):
		defer t.mu.Unlock()
		t.counts.Hits++
		return e.token, nil
	case !good && waiting && t.backOff:
		defer t.mu.Unlock()
		if failed, ok := errors.AsType[*netx.Error](e.err); ok {
			again := *failed
			again.RetryAfter = e.until.Sub(now)
			return Token{}, &again
		}
		return Token{}, e.err
	}
	attempt := e.attempt
	if attempt == nil {
		attempt = &tokenAttempt{done: make(chan struct{})}
		if !good {
			e.token = Token{}
		}
		if ctx.Err() == nil { // nothing is asked after the end
			e.attempt = attempt
			go t.run(context.WithoutCancel(ctx), key, attempt, mint)
		}
	}
	t.mu.Unlock()
	select {
	case <-attempt.done:
		return attempt.token, attempt.err
	case <-ctx.Done():
	}
	kind := netx.Cancelled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		kind = netx.Unavailable
	}
	return Token{}, &netx.Error{Kind: kind, Op: "get a token", Err: context.Cause(ctx)}
}

func (t *Tokens) run(ctx context.Context, key TokenKey, a *tokenAttempt, mint func(context.Context) (Token, error)) {
	asked := time.Now()
	a.err = errors.New("no token was made")
	defer func() {
		if r := recover(); r != nil {
			a.err = fmt.Errorf("make a token: panic: %v", r)
		}
		t.finish(key, a, asked)
		close(a.done)
	}()
	a.token, a.err = mint(ctx)
	if a.err == nil && a.token.Value == "" {
		a.err = errors.New("an empty token was made")
	}
}

// finish records the result of an attempt. When it has failed, a token that is still good is its
// result.
func (t *Tokens) finish(key TokenKey, a *tokenAttempt, asked time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, now := t.entries[key], time.Now() // an entry with an attempt is never dropped
	e.attempt = nil
	if a.err == nil {
		t.counts.Minted++
		*e = tokenEntry{token: a.token, asked: asked}
		return
	}
	t.counts.Failed++
	wait := time.Duration(0)
	if t.backOff {
		wait = waitAfter(a.err, e.wait)
	}
	e.wait, e.err = wait, a.err
	if good, _ := e.state(now); good {
		a.token, a.err, wait = e.token, nil, max(wait, refreshPause)
	} else if wait == 0 {
		delete(t.entries, key)
	}
	e.until = now.Add(wait)
}

// waitAfter returns how long nothing is asked after a failure; last is the wait before it.
func waitAfter(err error, last time.Duration) time.Duration {
	kind := netx.KindOf(err)
	if kind == netx.Cancelled || kind == netx.Invalid { // nothing was asked
		return 0
	}
	wait := min(max(firstWait, 2*last), longestWait)
	if kind != netx.Unavailable {
		wait = longestWait
	}
	if e, ok := errors.AsType[*netx.Error](err); ok {
		wait = max(wait, e.RetryAfter)
	}
	return wait
}

// Refused drops the token of a key, if it is still this one: a host has refused it.
func (t *Tokens) Refused(key TokenKey, value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[key]; e != nil && e.token.Value != "" && e.token.Value == value {
		t.counts.Refused++
		t.drop(key, e)
	}
}

// Forget drops all tokens of an owner, whose secret is not used any more. An attempt that is under
// way goes on.
func (t *Tokens) Forget(owner string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, e := range t.entries {
		if key.Owner == owner {
			t.drop(key, e)
		}
	}
}

// drop forgets a token. t.mu is held.
func (t *Tokens) drop(key TokenKey, e *tokenEntry) {
	if e.token = (Token{}); e.attempt == nil {
		delete(t.entries, key)
	}
}

// Counts returns the counters.
func (t *Tokens) Counts() TokenCounts {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.counts
	now := time.Now()
	for _, e := range t.entries {
		if e.token.Value != "" {
			c.Held++
			c.Oldest = max(c.Oldest, now.Sub(e.asked))
		}
	}
	return c
}

// state reports whether the token may be returned, and whether it should be replaced. Its age is
// the larger of those by the monotonic and the wall clock: the one stands still while a host
// sleeps, the other may be set.
func (e *tokenEntry) state(now time.Time) (good, stale bool) {
	switch {
	case e.token.Value == "":
		return false, false
	case e.token.Life <= 0:
		return true, false
	}
	age := max(now.Sub(e.asked), now.Round(0).Sub(e.asked.Round(0)))
	life := e.token.Life
	return age < life-min(lastUse, life/10), age >= time.Duration(refreshAt*float64(life))
}

// entry returns the entry of a key. A new one takes the place of any without an attempt when there
// are too many. t.mu is held.
func (t *Tokens) entry(key TokenKey) *tokenEntry {
	if e := t.entries[key]; e != nil {
		return e
	}
	if len(t.entries) >= t.most {
		for other, e := range t.entries {
			if e.attempt == nil {
				delete(t.entries, other)
				t.counts.Overflow++
				break
			}
		}
	}
	e := &tokenEntry{}
	t.entries[key] = e
	return e
}
