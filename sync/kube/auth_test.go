package kube

import (
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// secured is an API that accepts one token in one header.
type secured struct {
	mu     sync.Mutex // guards all below
	header string
	accept string // "" = none
	calls  int
	bodies []string
}

func (s *secured) set(accept string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accept = accept
}

func (s *secured) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.bodies = append(s.bodies, string(body))
	if s.accept == "" || r.Header.Get(s.header) != "Bearer "+s.accept {
		status(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
	}
}

func post(t *testing.T, rt http.RoundTripper, to string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, to, strings.NewReader("payload"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// A 401 leads to one refresh and one repetition, with the body; a server that
// goes on with 401 leads to one exchange in 30 s.
func TestUnauthorizedRefreshesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, s := &issuer{}, &secured{header: "X-Access-Token"}
		x := exchanging(t, i, newStaticToken("subject"))
		rt := &authTransport{next: &wire{handler: s}, source: always(x), host: "api.test", header: "X-Access-Token"}
		first, err := x.token(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.set(first)
		if code := post(t, rt, "http://api.test/apis"); code != http.StatusOK || s.calls != 1 {
			t.Fatalf("status %d after %d calls", code, s.calls)
		}
		// The server now accepts the second token only.
		s.set(tokenWith(2, time.Now().Add(time.Hour)))
		if code := post(t, rt, "http://api.test/apis"); code != http.StatusOK || s.calls != 3 {
			t.Fatalf("status %d after %d calls", code, s.calls)
		}
		for _, body := range s.bodies {
			if body != "payload" {
				t.Errorf("body %q", body)
			}
		}
		// Its keys are changed again, ten times.
		for n := 3; n < 13; n++ {
			pass(exchangePause)
			s.set(tokenWith(n, time.Now().Add(time.Hour)))
			if code := post(t, rt, "http://api.test/apis"); code != http.StatusOK {
				t.Fatalf("change %d: status %d", n, code)
			}
		}
		// The server accepts nothing.
		s.set("")
		before := len(i.requests())
		for range 10 * 60 {
			if code := post(t, rt, "http://api.test/apis"); code != http.StatusUnauthorized {
				t.Fatalf("status %d", code)
			}
			pass(time.Second)
		}
		if n := len(i.requests()) - before; n > 21 {
			t.Errorf("%d exchanges in 10 minutes of 401", n)
		}
		// Another host never sees the token.
		other := &secured{header: "X-Access-Token", accept: "anything"}
		rt.next = &wire{handler: other}
		if code := post(t, rt, "http://elsewhere.test/"); code != http.StatusUnauthorized || other.calls != 1 {
			t.Errorf("status %d after %d calls", code, other.calls)
		}
	})
}

func TestTokenFileIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write("first-token\n")
	f := newFileToken(path, slog.New(slog.DiscardHandler))
	want := func(want string) {
		t.Helper()
		if got, err := f.token(t.Context()); err != nil || got != want {
			t.Errorf("token %q, %v; want %q", got, err, want)
		}
	}
	want("first-token")
	write("other-token")
	want("other-token")
	write("")
	want("other-token")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	want("other-token")
	write("third-token")
	want("third-token")

	s := &secured{header: "Authorization", accept: "fourth-token"}
	rt := &authTransport{next: &wire{handler: s}, source: always(f), host: "api.test", header: "Authorization"}
	if code := post(t, rt, "http://api.test/"); code != http.StatusUnauthorized || s.calls != 1 {
		t.Errorf("status %d after %d calls, want 401 after 1", code, s.calls)
	}
	write("fourth-token")
	if code := post(t, rt, "http://api.test/"); code != http.StatusOK {
		t.Errorf("status %d", code)
	}
	if _, err := newFileToken(path+".none", nil).token(t.Context()); err == nil || !strings.Contains(err.Error(), "--token-file") {
		t.Errorf("missing file: %v", err)
	}
}

// always is a source for every path.
func always(s tokenSource) func(string) tokenSource { return func(string) tokenSource { return s } }
