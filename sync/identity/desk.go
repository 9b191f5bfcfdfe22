package identity

import (
	"context"
	"errors"
	"sync"
	"time"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

// Rests of a provider that has failed: the first, doubled each time, and the
// longest, which one that refuses has from the beginning. A provider may ask for
// more, up to an hour.
const (
	firstRest   = time.Second
	longestRest = 30 * time.Second
)

// mostRests bounds how many identities are known to fail.
const mostRests = 256

// desk is what each provider works with: its tokens, its failures, its calls.
type desk struct {
	o      Options
	tokens *auth.Tokens
	lines  lines

	mu    sync.Mutex // guards what follows; never held over a call
	rests map[auth.TokenKey]rest
	skew  time.Duration // clock of the provider less the local one
	told  bool          // the provider has told its clock
}

// rest is how long an identity is not asked for, and why.
type rest struct {
	until time.Time
	wait  time.Duration
	err   error
}

// token gives the token of a key, from memory or made. After a failure nobody
// asks for a while; meanwhile a token that is good serves on, and where there is
// none the failure is told again.
func (d *desk) token(ctx context.Context, key auth.TokenKey, mint func(context.Context) (auth.Token, error)) (auth.Token, error) {
	return d.tokens.Token(ctx, key, func(ctx context.Context) (auth.Token, error) {
		if err := d.resting(key); err != nil {
			return auth.Token{}, err
		}
		token, err := mint(ctx)
		d.note(key, err)
		return token, err
	})
}

// resting is the last failure, while it is too early to ask again.
func (d *desk) resting(key auth.TokenKey) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, ok := d.rests[key]
	left := time.Until(r.until)
	if !ok || left <= 0 {
		return nil
	}
	e, typed := errors.AsType[*netx.Error](r.err)
	if !typed {
		return told{r.err}
	}
	again := *e
	again.RetryAfter = left
	return told{&again}
}

// told is a failure that is told once more.
type told struct{ error }

func (t told) Unwrap() []error { return []error{t.error, auth.ErrNotAsked} }

// note remembers how an attempt has ended.
func (d *desk) note(key auth.TokenKey, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	kind := asked(err)
	switch {
	case err == nil:
		delete(d.rests, key)
		return
	case kind == "":
		return // nobody was
	}
	wait := min(max(firstRest, 2*d.rests[key].wait), longestRest)
	if kind != netx.Unavailable {
		wait = longestRest
	}
	if e, ok := errors.AsType[*netx.Error](err); ok {
		wait = max(wait, e.RetryAfter)
	}
	if d.rests == nil {
		d.rests = map[auth.TokenKey]rest{}
	}
	if _, known := d.rests[key]; !known && len(d.rests) >= mostRests {
		d.forgetOldest()
	}
	d.rests[key] = rest{until: time.Now().Add(wait), wait: wait, err: err}
}

// asked is the kind of the first failure in an error that somebody was asked for, ""
// when nobody was.
func asked(err error) netx.ErrorKind {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, each := range several.Unwrap() {
			if kind := asked(each); kind != "" {
				return kind
			}
		}
		return ""
	}
	e, ok := errors.AsType[*netx.Error](err)
	if !ok {
		return netx.KindOf(err)
	}
	if _, ok := e.Err.(interface{ Unwrap() []error }); ok {
		return asked(e.Err)
	}
	if e.Kind == netx.Cancelled || e.Kind == netx.Invalid {
		return ""
	}
	return e.Kind
}

// forgetOldest drops the rest that ends first. d.mu is held.
func (d *desk) forgetOldest() {
	var first auth.TokenKey
	var until time.Time
	for key, r := range d.rests {
		if until.IsZero() || r.until.Before(until) {
			first, until = key, r.until
		}
	}
	delete(d.rests, first)
}

// refused gives Credentials the function that drops their token.
func (d *desk) refused(key auth.TokenKey, token auth.Token) func() {
	return func() { d.tokens.Refused(key, token.Value) }
}
