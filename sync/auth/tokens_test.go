package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"limpet/sync/netx"
)

var hour = TokenKey{Owner: "uid", Secret: "fp", Scope: "team/site"}

// minter makes numbered tokens of one hour and counts how often it is asked.
type minter struct {
	mu    sync.Mutex // guards what follows
	asked int
	fail  error
	slow  time.Duration
}

func (m *minter) mint(ctx context.Context) (Token, error) {
	m.mu.Lock()
	m.asked++
	n, fail, slow := m.asked, m.fail, m.slow
	m.mu.Unlock()
	if slow > 0 {
		timer := time.NewTimer(slow)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return Token{}, ctx.Err()
		case <-timer.C:
		}
	}
	if fail != nil {
		return Token{}, fail
	}
	return Token{Value: fmt.Sprintf("%s%d", canary, n), Life: time.Hour}, nil
}

func (m *minter) set(fail error, slow time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail, m.slow = fail, slow
}

func (m *minter) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

func TestTokensLifetime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, tokens := &minter{}, NewTokens(0)
		want := func(number int, what string) {
			t.Helper()
			token, err := tokens.Token(t.Context(), hour, m.mint)
			if err != nil || token.Value != fmt.Sprintf("%s%d", canary, number) {
				t.Fatalf("%s: token %q, %v; want number %d", what, token.Value, err, number)
			}
		}
		start := time.Now()
		at := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }
		want(1, "the first")
		at(47 * time.Minute)
		want(1, "before 80 %")
		at(48 * time.Minute)
		want(2, "at 80 %")
		// From here on the host is down. The second token was made at 48 min.
		m.set(errors.New("down"), 0)
		at(48*time.Minute + 50*time.Minute)
		want(2, "refused ahead of time")
		before := m.count()
		want(2, "again at once")
		if m.count() != before {
			t.Fatal("a failed replacement is repeated without a pause")
		}
		at(48*time.Minute + 50*time.Minute + refreshPause)
		want(2, "after the pause")
		if m.count() != before+1 {
			t.Fatalf("%d attempts after the pause, want 1", m.count()-before)
		}
		at(48*time.Minute + time.Hour - lastUse)
		if token, err := tokens.Token(t.Context(), hour, m.mint); err == nil || token.Value != "" {
			t.Fatalf("a token at its end is handed out: %v", token)
		}
		m.set(nil, 0)
		want(m.count()+1, "the host is back")
	})
}

func TestTokensSingleFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, tokens := &minter{}, NewTokens(0)
		m.set(nil, time.Minute)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if token, err := tokens.Token(t.Context(), hour, m.mint); err != nil || token.Value != canary+"1" {
					t.Errorf("%v %v", token, err)
				}
			})
		}
		synctest.Wait()
		other := hour
		other.Scope = "team/other"
		started := time.Now()
		m.set(nil, 0)
		if _, err := tokens.Token(t.Context(), other, m.mint); err != nil || time.Since(started) != 0 {
			t.Errorf("another key waited %v: %v", time.Since(started), err)
		}
		wg.Wait()
		if c := tokens.Counts(); c.Minted != 2 || c.Held != 2 {
			t.Errorf("%+v, want 2 minted for 51 callers of 2 keys", c)
		}

		// All who wait are told the one failure.
		m.set(errors.New("down"), time.Minute)
		other.Scope = "team/third"
		before := m.count()
		for range 20 {
			wg.Go(func() {
				if _, err := tokens.Token(t.Context(), other, m.mint); err == nil {
					t.Error("a token from nowhere")
				}
			})
		}
		wg.Wait()
		if m.count() != before+1 {
			t.Errorf("20 callers made %d attempts", m.count()-before)
		}
		if n := len(tokens.entries); n != 2 {
			t.Errorf("%d entries are kept, a failure is one of them", n)
		}
	})
}

// TestTokensRefreshWithoutWaiting: while one caller replaces a token that is
// good still, the others do not wait for it.
func TestTokensRefreshWithoutWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, tokens := &minter{}, NewTokens(0)
		if _, err := tokens.Token(t.Context(), hour, m.mint); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Minute)
		m.set(nil, time.Minute)
		var wg sync.WaitGroup
		wg.Go(func() {
			if token, _ := tokens.Token(t.Context(), hour, m.mint); token.Value != canary+"2" {
				t.Errorf("who replaces it gets %q", token.Value)
			}
		})
		synctest.Wait()
		before := time.Now()
		token, err := tokens.Token(t.Context(), hour, m.mint)
		if err != nil || token.Value != canary+"1" || time.Since(before) != 0 {
			t.Errorf("%v after %v: %v", token, time.Since(before), err)
		}
		wg.Wait()
	})
}

// TestTokensAbandoned: an attempt goes on for the others when its caller is cancelled.
func TestTokensAbandoned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, tokens := &minter{}, NewTokens(0)
		m.set(nil, time.Minute)
		gone, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := tokens.Token(gone, hour, m.mint); !errors.Is(err, context.Canceled) {
				t.Errorf("who went away gets %v", err)
			}
		})
		synctest.Wait()
		for range 3 {
			wg.Go(func() {
				if token, err := tokens.Token(t.Context(), hour, m.mint); err != nil || token.Value != canary+"1" {
					t.Errorf("%v %v", token, err)
				}
			})
		}
		synctest.Wait()
		leave()
		wg.Wait()
		if m.count() != 1 {
			t.Errorf("%d attempts, want 1", m.count())
		}

		// Who waits may go away as well.
		waiting, stop := context.WithCancel(t.Context())
		other := TokenKey{Owner: "x"}
		wg.Go(func() { tokens.Token(t.Context(), other, m.mint) })
		synctest.Wait()
		wg.Go(func() {
			if _, err := tokens.Token(waiting, other, m.mint); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		})
		synctest.Wait()
		stop()
		wg.Wait()
	})
}

func TestTokensRefusedAndBounded(t *testing.T) {
	t.Parallel()
	m, tokens := &minter{}, NewTokens(3)
	first, err := tokens.Token(t.Context(), hour, m.mint)
	if err != nil {
		t.Fatal(err)
	}
	tokens.Refused(hour, "some other value")
	if again, _ := tokens.Token(t.Context(), hour, m.mint); again.Value != first.Value {
		t.Error("an older token was refused, and the newer one dropped")
	}
	tokens.Refused(hour, first.Value)
	if again, _ := tokens.Token(t.Context(), hour, m.mint); again.Value == first.Value {
		t.Error("a refused token is handed out again")
	}
	for n := range 10 {
		if _, err := tokens.Token(t.Context(), TokenKey{Scope: fmt.Sprint(n)}, m.mint); err != nil {
			t.Fatal(err)
		}
	}
	if c := tokens.Counts(); c.Held != 3 || len(tokens.entries) != 3 || c.Overflow != 8 || c.Minted != 12 {
		t.Errorf("%+v: want 3 held and 8 dropped", c)
	}
}

func TestTokenNeverPrintsItself(t *testing.T) {
	t.Parallel()
	token := Token{Value: canary, Life: time.Hour}
	secret := &Credentials{PrivateKey: []byte(canary), Password: canary, ClientKey: []byte(canary), Source: "here"}
	out := ""
	for _, v := range []any{token, &token, secret, *secret, struct{ T Token }{token}} {
		js, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out += string(js)
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			out += fmt.Sprintf(verb, v)
		}
	}
	if strings.Contains(out, canary) || strings.Contains(out, fmt.Sprintf("%x", canary)) || strings.Contains(out, "115 51 99") {
		t.Fatalf("a secret was printed:\n%s", out)
	}
}

// TestForget: the tokens of one owner are made anew, those of others are not, and an
// attempt that is under way comes to its end.
func TestForget(t *testing.T) {
	t.Parallel()
	tokens := NewTokens(0)
	minted := map[TokenKey]int{}
	get := func(key TokenKey) {
		t.Helper()
		_, err := tokens.Token(t.Context(), key, func(context.Context) (Token, error) { minted[key]++; return Token{Value: "x"}, nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	a, b, other := TokenKey{Owner: "1", Scope: "a"}, TokenKey{Owner: "1", Scope: "b"}, TokenKey{Owner: "2", Scope: "a"}
	for range 2 {
		get(a)
		get(b)
		get(other)
	}
	tokens.Forget("1")
	get(a)
	get(b)
	get(other)
	if minted[a] != 2 || minted[b] != 2 || minted[other] != 1 {
		t.Errorf("minted %v", minted)
	}
	late := TokenKey{Owner: "3"}
	token, err := tokens.Token(t.Context(), late, func(context.Context) (Token, error) {
		tokens.Forget("3")
		return Token{Value: "late"},
			nil
	})
	if err != nil || token.Value != "late" {
		t.Errorf("token under way: %v, %v", token, err)
	}
}

// TestTokensOutage: a token is used to its end while its provider is down; then failures
// are returned at once, and the provider is asked less and less.
func TestTokensOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tokens, m := NewTokens(0).BackOff(), &minter{}
		begin := time.Now()
		ask := func() (Token, error) { return tokens.Token(t.Context(), hour, m.mint) }
		if token, err := ask(); err != nil || token.Value != canary+"1" {
			t.Fatal(token.Value, err)
		}
		out := &netx.Error{Kind: netx.Unavailable, Op: "get a token", Identity: "managed identity", Endpoint: "GET http://metadata",
			Err: errors.New("no answer")}
		m.set(out, 0)
		for time.Since(begin) < 59*time.Minute {
			if token, err := ask(); err != nil || token.Value != canary+"1" {
				t.Fatalf("after %v: %q %v", time.Since(begin), token.Value, err)
			}
			time.Sleep(time.Second)
		}
		// From 48 min on it is asked for a new one, at most every 30 s.
		if n := m.count() - 1; n < 15 || n > 23 {
			t.Errorf("%d attempts in the last 11 minutes", n)
		}
		time.Sleep(2 * time.Minute)
		var asked []time.Duration
		ended := time.Now()
		for time.Since(ended) < 3*time.Minute {
			before := m.count()
			_, err := ask()
			if netx.KindOf(err) != netx.Unavailable || err.Error() != out.Error() {
				t.Fatalf("after the end: %v", err)
			}
			if m.count() > before {
				asked = append(asked, time.Since(ended))
			} else if e, _ := errors.AsType[*netx.Error](err); e.RetryAfter <= 0 || e.RetryAfter > longestWait {
				t.Fatalf("it says to come again after %v", e.RetryAfter)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if len(asked) < 5 || len(asked) > 7 {
			t.Errorf("asked after %v, want every 30 s", asked)
		}
		if c := tokens.Counts(); int(c.Failed) != m.count()-1 {
			t.Errorf("%d failures are counted of %d attempts", c.Failed, m.count()-1)
		}
		m.set(nil, 0)
		time.Sleep(longestWait)
		if token, err := ask(); err != nil || token.Value == canary+"1" {
			t.Errorf("when it is back: %q %v", token.Value, err)
		}
	})
}

// TestTokensBackOff: the waits after the first failures.
func TestTokensBackOff(t *testing.T) {
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
				tokens, m := NewTokens(0).BackOff(), &minter{fail: test.err}
				begin, got := time.Now(), []time.Duration(nil)
				for time.Since(begin) < 100*time.Second {
					before := m.count()
					if _, err := tokens.Token(t.Context(), hour, m.mint); err == nil {
						t.Fatal("no error")
					}
					if m.count() > before {
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
				other := hour
				other.Secret = "rotated"
				before := m.count()
				if tokens.Token(t.Context(), other, m.mint); m.count() != before+1 {
					t.Error("a rotated secret has to wait")
				}
			})
		})
	}
}
