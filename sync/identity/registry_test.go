package identity

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

var one = auth.TokenKey{Owner: "secret default/keys", Secret: "fp", Scope: "x"}

// provider makes numbered tokens of one hour, or fails.
type provider struct {
	mu   sync.Mutex // guards what follows
	n    int
	err  error
	slow time.Duration
}

func (p *provider) mint(context.Context) (auth.Token, error) {
	p.mu.Lock()
	p.n++
	n, err, slow := p.n, p.err, p.slow
	p.mu.Unlock()
	time.Sleep(slow)
	return auth.Token{Value: fmt.Sprint("token ", n), Life: time.Hour}, err
}

func (p *provider) is(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

func (p *provider) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

// TestOutage: a token that is good serves on to its end while its provider is
// out; then failures are told at once, and the provider is asked less and less.
func TestOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, p := &registry{tokens: auth.NewTokens(DefaultTokens)}, &provider{}
		begin := time.Now()
		ask := func() (auth.Token, error) { return d.token(t.Context(), one, p.mint) }
		if token, err := ask(); err != nil || token.Value != "token 1" {
			t.Fatal(token.Value, err)
		}
		out := &netx.Error{Kind: netx.Unavailable, Op: "get a token", Identity: "managed identity", Endpoint: "GET http://metadata", Err: errors.New("no answer")}
		p.is(out)
		for time.Since(begin) < 59*time.Minute {
			if token, err := ask(); err != nil || token.Value != "token 1" {
				t.Fatalf("after %v: %q %v", time.Since(begin), token.Value, err)
			}
			time.Sleep(time.Second)
		}
		// From 48 min on it is asked for a new one, at most every 30 s.
		if n := p.count() - 1; n < 15 || n > 23 {
			t.Errorf("%d attempts in the last 11 minutes", n)
		}
		time.Sleep(2 * time.Minute)
		var asked []time.Duration
		ended := time.Now()
		for time.Since(ended) < 3*time.Minute {
			before := p.count()
			_, err := ask()
			if netx.KindOf(err) != netx.Unavailable || err.Error() != out.Error() {
				t.Fatalf("after the end: %v", err)
			}
			if p.count() > before {
				asked = append(asked, time.Since(ended))
			} else if e, _ := errors.AsType[*netx.Error](err); e.RetryAfter <= 0 || e.RetryAfter > longestWait {
				t.Fatalf("it says to come again after %v", e.RetryAfter)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if len(asked) < 5 || len(asked) > 7 {
			t.Errorf("asked after %v, want every 30 s", asked)
		}
		if c := d.tokens.Counts(); int(c.Failed) != p.count()-1 {
			t.Errorf("%d failures are counted of %d attempts", c.Failed, p.count()-1)
		}
		p.is(nil)
		time.Sleep(longestWait)
		if token, err := ask(); err != nil || token.Value == "token 1" {
			t.Errorf("when it is back: %q %v", token.Value, err)
		}
	})
}

// TestRests: the rests after failures of which none was before.
func TestRests(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		want []time.Duration
	}{
		"away":    {&netx.Error{Kind: netx.Unavailable, Err: errors.New("x")}, []time.Duration{0, 1, 3, 7, 15, 31, 61, 91}},
		"refused": {&netx.Error{Kind: netx.Unauthorized, Err: errors.New("x")}, []time.Duration{0, 30, 60, 90}},
		"busy":    {&netx.Error{Kind: netx.RateLimited, Err: errors.New("x"), RetryAfter: 45 * time.Second}, []time.Duration{0, 45, 90}},
		"invalid": {&netx.Error{Kind: netx.Invalid, Err: errors.New("x")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, p := &registry{tokens: auth.NewTokens(0)}, &provider{err: test.err}
				begin, got := time.Now(), []time.Duration(nil)
				for time.Since(begin) < 100*time.Second {
					before := p.count()
					if _, err := d.token(t.Context(), one, p.mint); err == nil {
						t.Fatal("no error")
					}
					if p.count() > before {
						got = append(got, time.Since(begin)/time.Second)
					}
					time.Sleep(500 * time.Millisecond)
				}
				if test.want == nil {
					if len(got) != 200 {
						t.Errorf("a refusal of this side rests: %d", len(got))
					}
				} else if fmt.Sprint(got) != fmt.Sprint(test.want) {
					t.Errorf("asked at %v, want %v", got, test.want)
				}
				// Another identity does not rest with it.
				other := one
				other.Secret = "rotated"
				if before := p.count(); d.backingOff(other) != nil || p.count() != before {
					t.Error("a rotated secret rests")
				}
			})
		})
	}
}

// TestRestsBeginAnew: what has failed before a success does not lengthen a rest.
func TestRestsBeginAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, away := &registry{}, &netx.Error{Kind: netx.Unavailable, Err: errors.New("x")}
		for range 10 {
			d.record(one, away)
		}
		d.record(one, nil)
		d.record(one, away)
		if time.Sleep(firstWait); d.backingOff(one) != nil {
			t.Error("it rests for longer than the first time")
		}
	})
}

// TestOneFlight: many who ask at once are one call, and the cache is bounded.
func TestOneFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, p := &registry{tokens: auth.NewTokens(DefaultTokens)}, &provider{slow: 5 * time.Second}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if token, err := d.token(t.Context(), one, p.mint); err != nil || token.Value != "token 1" {
					t.Error(token.Value, err)
				}
			})
		}
		all.Wait()
		if p.count() != 1 {
			t.Errorf("%d calls", p.count())
		}
		for i := range 500 {
			key := one
			key.Scope = fmt.Sprint(i)
			if _, err := d.token(t.Context(), key, func(context.Context) (auth.Token, error) { return auth.Token{Value: "x", Life: time.Hour}, nil }); err != nil {
				t.Fatal(err)
			}
			d.record(auth.TokenKey{Scope: fmt.Sprint(i)}, &netx.Error{Kind: netx.Unavailable, Err: errors.New("x")})
		}
		time.Sleep(time.Minute)
		if c := d.tokens.Counts(); c.Held != DefaultTokens || c.Hits != 49 || c.Minted != 501 || c.Oldest < time.Minute || c.Oldest > time.Hour {
			t.Errorf("the counts are %+v", c)
		}
		if len(d.backoffs) > maxBackoffs {
			t.Errorf("%d rests are remembered", len(d.backoffs))
		}
	})
}
