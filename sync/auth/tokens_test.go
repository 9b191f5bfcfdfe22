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

// TestTokensAbandoned: when the caller who makes a token goes away, another one
// of those who wait makes it.
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
				if token, err := tokens.Token(t.Context(), hour, m.mint); err != nil || token.Value != canary+"2" {
					t.Errorf("%v %v", token, err)
				}
			})
		}
		synctest.Wait()
		leave()
		wg.Wait()
		if m.count() != 2 {
			t.Errorf("%d attempts, want 2", m.count())
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
		if _, err := tokens.Token(t.Context(), hour, m.mint); err != nil { // keep it in use
			t.Fatal(err)
		}
	}
	c := tokens.Counts()
	if c.Held != 3 || len(tokens.entries) != 3 || c.Overflow != 8 || c.Minted != 12 {
		t.Errorf("%+v: want 3 held, 8 dropped, and the one in use never minted again", c)
	}
}

func TestTokenNeverPrintsItself(t *testing.T) {
	t.Parallel()
	token := Token{Value: canary, Life: time.Hour}
	secret := &ConnectionSecret{PrivateKey: []byte(canary), Token: canary, ClientSecret: canary, ClientKey: []byte(canary), Source: "here"}
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
