package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"
)

// Bounds of the tokens that are kept.
const (
	// DefaultTokens is how many tokens are kept: one for each of a thousand
	// repositories, and as many again while their secrets are rotated. A token
	// with its key has less than 1 KiB.
	DefaultTokens = 2048
	// refreshAt is the part of its life after which a token is replaced.
	refreshAt = 0.8
	// lastUse is how long before its end a token is not handed out any more: a
	// fetch must be able to begin with it. At most a tenth of its life.
	lastUse = 30 * time.Second
	// refreshPause is the time between two attempts to replace a token that is
	// still good.
	refreshPause = 30 * time.Second
)

// Token is a secret that somebody made for a while. It never prints its value.
type Token struct {
	Value   string
	User    string        // that goes with it over basic, where that is not the same for all; no secret
	Minted  time.Time     // by the local clock
	Expires time.Time     // by the clock of the host that made it; zero = it does not
	Life    time.Duration // counted from the moment it was asked for; 0 = without end
}

// String says how long the token lives, not what it is.
func (t Token) String() string { return fmt.Sprintf("token(%d bytes, %v)", len(t.Value), t.Life) }

// Format is String for every verb.
func (t Token) Format(f fmt.State, _ rune) { io.WriteString(f, t.String()) }

// LogValue is String, for slog.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalJSON writes String.
func (t Token) MarshalJSON() ([]byte, error) { return json.Marshal(t.String()) }

// TokenKey says for what a token was made. A rotated secret has a new key, so
// that no token outlives the secret that it was made with for longer than the
// host lets it.
type TokenKey struct {
	Owner  string // UID of the object that holds the secret
	Secret string // fingerprint of the secret
	Scope  string // what the token is good for, such as one repository
}

// TokenCounts sum up what was asked of Tokens.
type TokenCounts struct {
	Held     int    // kept now
	Hits     uint64 // answered from memory
	Minted   uint64
	Failed   uint64 // attempts to mint
	Refused  uint64 // dropped because a host did not take them
	Overflow uint64 // dropped to make room

	Oldest time.Duration // age of the oldest that is kept
}

// Tokens keeps tokens in memory until shortly before their end. Those who ask
// for the same token at once share one attempt to make it; from 80 % of its life
// on, one of them replaces it while the others are served with the old one, and
// so are all when that fails. Nothing is held locked while a token is made. Safe
// for concurrent use.
type Tokens struct {
	most int

	mu      sync.Mutex // guards what follows; never held over a call
	entries map[TokenKey]*kept
	counts  TokenCounts
	clock   uint64 // counts uses
}

// kept is a token, or the attempt to make the first one.
type kept struct {
	token  Token // no Value: none yet
	asked  time.Time
	pause  time.Time // not replaced ahead of time before this
	used   uint64    // Tokens.clock at the last use
	flight *flight   // nil when nobody makes a token
}

// flight is one attempt. Who began it closes done after err is set.
type flight struct {
	done chan struct{}
	err  error
}

// NewTokens keeps at most so many tokens; 0 means DefaultTokens.
func NewTokens(most int) *Tokens {
	if most <= 0 {
		most = DefaultTokens
	}
	return &Tokens{most: most, entries: map[TokenKey]*kept{}}
}

// Token returns the token for the key, and calls mint when there is none that
// is good for a while. mint runs in the goroutine of one caller, with its
// context; when that context ends, another caller begins anew. An error of mint
// is told to all who wait for it and is not kept.
func (t *Tokens) Token(ctx context.Context, key TokenKey, mint func(context.Context) (Token, error)) (Token, error) {
	for {
		token, mine, other := t.look(key, time.Now())
		switch {
		case mine != nil:
			return t.make(ctx, key, mine, mint)
		case other == nil:
			return token, nil
		}
		select {
		case <-ctx.Done():
			return Token{}, context.Cause(ctx)
		case <-other.done:
		}
		// The end of somebody else's context is no answer for this caller.
		if other.err != nil && !errors.Is(other.err, errAbandoned) {
			return Token{}, other.err
		}
	}
}

// ErrNotAsked is wrapped by an error of mint that was known without an attempt.
var ErrNotAsked = errors.New("not asked again so soon")

// failed counts an attempt. t.mu is held.
func (t *Tokens) failed(err error) {
	if !errors.Is(err, ErrNotAsked) {
		t.counts.Failed++
	}
}

// errAbandoned marks an attempt whose caller went away.
var errAbandoned = errors.New("nobody waits for the token any more")

// look gives the token that is kept, if it may be used; or a flight that the
// caller has to make (mine), or to wait for (other).
func (t *Tokens) look(key TokenKey, now time.Time) (token Token, mine, other *flight) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[key]
	if e == nil {
		t.makeRoom()
		e = &kept{}
		t.entries[key] = e
	}
	t.clock++
	e.used = t.clock
	good, stale := e.state(now)
	switch {
	case good && (!stale || e.flight != nil || now.Before(e.pause)):
		t.counts.Hits++
		return e.token, nil, nil
	case e.flight != nil:
		return Token{}, nil, e.flight
	}
	e.flight = &flight{done: make(chan struct{})}
	if !good {
		e.token = Token{}
	}
	return Token{}, e.flight, nil
}

// make runs an attempt. When it fails, the token that is kept serves on if it
// is good.
func (t *Tokens) make(ctx context.Context, key TokenKey, f *flight, mint func(context.Context) (Token, error)) (token Token, err error) {
	asked := time.Now()
	err = errAbandoned // should mint not return
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		e := t.entries[key] // an entry in flight is never dropped
		e.flight = nil
		f.err = err
		if err != nil && ctx.Err() != nil {
			f.err = errAbandoned
		}
		close(f.done)
		switch {
		case err == nil:
			t.counts.Minted++
			e.token, e.asked, e.pause = token, asked, time.Time{}
			return
		case e.token.Value == "":
			t.failed(err)
			delete(t.entries, key)
			return
		}
		t.failed(err)
		now := time.Now()
		e.pause = now.Add(refreshPause)
		if good, _ := e.state(now); good && ctx.Err() == nil {
			token, err = e.token, nil
		}
	}()
	token, err = mint(ctx)
	if err == nil && token.Value == "" {
		err = errors.New("an empty token was made")
	}
	return token, err
}

// Refused drops the token of a key, if it is still this one: a host did not take
// it.
func (t *Tokens) Refused(key TokenKey, value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[key]
	if e == nil || e.token.Value == "" || e.token.Value != value {
		return
	}
	t.counts.Refused++
	if e.token = (Token{}); e.flight == nil {
		delete(t.entries, key)
	}
}

// Forget drops all tokens of an owner, whose secret is not used any more. An attempt that
// is under way goes on.
func (t *Tokens) Forget(owner string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, e := range t.entries {
		if key.Owner != owner {
			continue
		}
		if e.token = (Token{}); e.flight == nil {
			delete(t.entries, key)
		}
	}
}

// Counts tells what was asked so far.
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

// state says whether the token may be handed out, and whether it should be
// replaced. Its age is the larger of what the monotonic and the wall clock say:
// the one stands still while a host sleeps, the other may be set.
func (e *kept) state(now time.Time) (good, stale bool) {
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

// makeRoom drops the entry that was used least recently when there are too many.
// t.mu is held.
func (t *Tokens) makeRoom() {
	if len(t.entries) < t.most {
		return
	}
	var oldest TokenKey
	var found *kept
	for key, e := range t.entries {
		if e.flight == nil && (found == nil || e.used < found.used) {
			oldest, found = key, e
		}
	}
	if found != nil {
		delete(t.entries, oldest)
		t.counts.Overflow++
	}
}
