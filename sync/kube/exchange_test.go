package kube

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"limpet/sync/text"
)

// issuer is a token exchange that speaks the wire format recorded in Grafana's
// authlib and remembers its requests.
type issuer struct {
	mu    sync.Mutex // guards all below
	asked []time.Time
	last  *http.Request
	body  string
	// reply decides the answer to request n, counted from 1; nil = a token of an hour.
	reply func(n int, w http.ResponseWriter)
	delay time.Duration
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	i.mu.Lock()
	i.asked = append(i.asked, time.Now())
	n, reply, delay := len(i.asked), i.reply, i.delay
	i.last, i.body = r, string(body)
	i.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
			return
		}
	}
	if reply != nil {
		reply(n, w)
		return
	}
	grant(w, tokenWith(n, time.Now().Add(time.Hour)))
}

func (i *issuer) requests() []time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]time.Time(nil), i.asked...)
}

func (i *issuer) set(reply func(n int, w http.ResponseWriter)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.reply = reply
}

func grant(w http.ResponseWriter, token string) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"data": map[string]any{"token": token}, "status": "success", "error": ""})
}

func refuse(code int) func(int, http.ResponseWriter) {
	return func(_ int, w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"data":null,"status":"error","error":"status %d from the issuer"}`, code)
	}
}

// jwt makes an unsigned token that is told apart by n.
func tokenWith(n int, expiry time.Time) string {
	encode := base64.RawURLEncoding.EncodeToString
	return strings.Join([]string{encode([]byte(`{"alg":"none"}`)),
		encode(fmt.Appendf(nil, `{"exp":%d,"n":%d}`, expiry.Unix(), n)), encode([]byte("signature"))}, ".")
}

func number(token string) int {
	payload, _ := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	var claims struct{ N int }
	_ = json.Unmarshal(payload, &claims)
	return claims.N
}

// exchanging makes an exchanger over a wire to the issuer.
func exchanging(t *testing.T, i *issuer, subject tokenSource) *exchanger {
	u, err := url.Parse("http://issuer.test:6481/sign/access-token")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	x := newExchanger(ctx, u, []string{"provisioning.grafana.app", "folder.grafana.app"}, subject, &wire{handler: i})
	t.Cleanup(func() {
		cancel()
		x.running.Wait()
	})
	return x
}

func TestExchangeWireFormat(t *testing.T) {
	i := &issuer{}
	x := exchanging(t, i, newStaticToken("ProvisioningAdminToken"))
	if _, err := x.token(t.Context()); err != nil {
		t.Fatal(err)
	}
	if i.last.Method != http.MethodPost || i.last.URL.Path != "/sign/access-token" {
		t.Errorf("asked %s %s", i.last.Method, i.last.URL.Path)
	}
	for header, want := range map[string]string{
		"Authorization": "Bearer ProvisioningAdminToken",
		"Content-Type":  "application/json",
		"Accept":        "application/json",
		"User-Agent":    "authlib-client",
		"X-Org-ID":      "0",
		"X-Realms":      `[{"type": "system", "identifier": "system"}]`,
	} {
		if got := i.last.Header.Get(header); got != want {
			t.Errorf("%s: %q, want %q", header, got, want)
		}
	}
	if want := `{"namespace":"*","audiences":["folder.grafana.app","provisioning.grafana.app"]}`; i.body != want {
		t.Errorf("body %s, want %s", i.body, want)
	}
}

// A token is used until 15 s before its expiry, on the clock of the issuer.
func TestExchangeCachesToken(t *testing.T) {
	for name, clock := range map[string]time.Duration{"same clock": 0, "host an hour ahead": -time.Hour,
		"host 30 years behind": 30 * 365 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := &issuer{}
				i.set(func(n int, w http.ResponseWriter) {
					now := time.Now().Add(clock)
					w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
					grant(w, tokenWith(n, now.Add(10*time.Minute)))
				})
				x := exchanging(t, i, newStaticToken("subject"))
				for _, step := range []struct {
					after time.Duration
					want  int
				}{{0, 1}, {9 * time.Minute, 1}, {44 * time.Second, 1}, {2 * time.Second, 2}, {5 * time.Minute, 2}} {
					pass(step.after)
					token, err := x.token(t.Context())
					if err != nil || number(token) != step.want {
						t.Fatalf("after %v: token %d, %v; want %d", step.after, number(token), err, step.want)
					}
				}
			})
		})
	}
}

func TestExchangeIsSharedByCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{delay: time.Second}
		x := exchanging(t, i, newStaticToken("subject"))
		gone, leave := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { // the first caller leaves; the others must not suffer
			if _, err := x.token(gone); !errors.Is(err, context.Canceled) {
				t.Errorf("the caller that left got %v", err)
			}
		})
		synctest.Wait()
		for range 50 {
			group.Go(func() {
				if token, err := x.token(t.Context()); err != nil || number(token) != 1 {
					t.Errorf("token %q, %v", token, err)
				}
			})
		}
		synctest.Wait()
		leave()
		group.Wait()
		if n := len(i.requests()); n != 1 {
			t.Errorf("%d requests, want 1", n)
		}
	})
}

// What cannot be read as a JSON web token is used, but for one call only.
func TestExchangeUnreadableToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{}
		i.set(func(n int, w http.ResponseWriter) { grant(w, fmt.Sprintf("opaque-token-%d", n)) })
		x := exchanging(t, i, newStaticToken("subject"))
		for n := 1; n <= 3; n++ {
			token, err := x.token(t.Context())
			if want := fmt.Sprintf("opaque-token-%d", n); err != nil || token != want {
				t.Errorf("token %q, %v; want %q", token, err, want)
			}
			if text := text.Redact("saw " + token); strings.Contains(text, "opaque") {
				t.Errorf("not redacted: %s", text)
			}
		}
	})
}

func TestExchangeRefusals(t *testing.T) {
	for name, reply := range map[string]func(int, http.ResponseWriter){
		"500":        refuse(500),
		"429":        refuse(429),
		"401":        refuse(401),
		"400":        refuse(400),
		"no token":   func(_ int, w http.ResponseWriter) { grant(w, "") },
		"line break": func(_ int, w http.ResponseWriter) { grant(w, "a\nb: c") },
		"a web page": func(_ int, w http.ResponseWriter) { _, _ = io.WriteString(w, "<html>sign in</html>") },
		"a redirect": func(_ int, w http.ResponseWriter) {
			w.Header().Set("Location", "http://evil.test/")
			w.WriteHeader(302)
		},
		"empty reply": func(int, http.ResponseWriter) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := &issuer{reply: reply}
				_, err := exchanging(t, i, newStaticToken("subject-token")).token(t.Context())
				var failure *ExchangeError
				if !errors.As(err, &failure) || !strings.Contains(err.Error(), "http://issuer.test:6481/sign/access-token") ||
					strings.Contains(err.Error(), "subject-token") || len(i.requests()) != 1 {
					t.Errorf("error %v after %d requests", err, len(i.requests()))
				}
			})
		})
	}
}

// While the exchange fails it is asked once in 30 s in the end, whatever the callers do.
func TestExchangeIsNotHammered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{reply: refuse(500)}
		x := exchanging(t, i, newStaticToken("subject"))
		for range 30 * 60 * 4 { // half an hour, four calls a second
			if _, err := x.token(t.Context()); err == nil {
				t.Fatal("a token from a broken exchange")
			}
			pass(250 * time.Millisecond)
		}
		all := i.requests()
		if n := len(all); n < 55 || n > 66 {
			t.Errorf("%d requests in 30 minutes", n)
		}
		for n := 6; n < len(all); n++ {
			if gap := all[n].Sub(all[n-1]); gap < exchangePause {
				t.Errorf("requests %d and %d are %v apart", n, n+1, gap)
			}
		}
		_, err := x.token(t.Context())
		if after, ok := RetryAfter(err); !ok || after <= 0 || after > exchangePause*11/10 {
			t.Errorf("retry after %v, %v", after, ok)
		}
		if !strings.Contains(err.Error(), "next try in") || !Retryable(err) {
			t.Errorf("error %v", err)
		}
		i.set(nil)
		pass(exchangePause * 11 / 10)
		if _, err := x.token(t.Context()); err != nil {
			t.Errorf("still %v after the return", err)
		}
	})
}

// TestExchangeThatStartsLater: one that nothing answers for is asked again soon,
// then less and less, and after it has come and gone again likewise.
func TestExchangeThatStartsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := exchanging(t, &issuer{}, newStaticToken("subject"))
		s := x.client.Transport.(*wire)
		for range 2 {
			s.mu.Lock()
			s.tried, s.cut = nil, syscall.ECONNREFUSED
			s.mu.Unlock()
			for began := time.Now(); time.Since(began) < 10*time.Minute; pass(50 * time.Millisecond) {
				if _, err := x.token(t.Context()); err == nil {
					t.Fatal("a token from nobody")
				}
			}
			s.mu.Lock()
			asked := s.tried
			s.cut = nil
			s.mu.Unlock()
			if n := len(asked); n < 22 || n > 26 {
				t.Fatalf("%d requests in 10 minutes", n)
			}
			for n, least := range []time.Duration{1, 2, 4, 8, 16, 30, 30, 30} {
				least *= time.Second
				if gap := asked[n+1].Sub(asked[n]); gap < least || gap > least*11/10+100*time.Millisecond {
					t.Errorf("requests %d and %d are %v apart, want about %v", n+1, n+2, gap, least)
				}
			}
			pass(exchangePause * 11 / 10)
			if _, err := x.token(t.Context()); err != nil {
				t.Errorf("still %v after the return", err)
			}
			pass(2 * time.Hour) // the token has expired
		}
	})
}

func TestExchangeHonoursRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{reply: func(_ int, w http.ResponseWriter) {
			w.Header().Set("Retry-After", "100")
			w.WriteHeader(http.StatusTooManyRequests)
		}}
		x := exchanging(t, i, newStaticToken("subject"))
		for range 95 {
			_, _ = x.token(t.Context())
			pass(time.Second)
		}
		if n := len(i.requests()); n != 1 {
			t.Errorf("%d requests, want 1", n)
		}
	})
}

func TestExchangeStopsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{delay: time.Hour}
		ctx, cancel := context.WithCancel(t.Context())
		x := exchanging(t, i, newStaticToken("subject"))
		x.life = ctx
		got := make(chan error, 1)
		go func() { _, err := x.token(t.Context()); got <- err }()
		synctest.Wait()
		cancel()
		if err := <-got; err == nil {
			t.Error("no error after the end")
		}
		x.running.Wait()
	})
}

func FuzzExpiryOf(f *testing.F) {
	f.Add(tokenWith(1, time.Unix(1700000000, 0)))
	f.Add(tokenWith(1, time.Unix(32503680000, 0))) // the year 3000 is farther than a Duration goes
	f.Add("a.b.c")
	f.Add("e30.eyJleHAiOjFlMzB9.x")
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		if at, ok := expiryOf(token); ok && (at.Unix() < 0 || at.Unix() > 1e11) {
			t.Errorf("expiry %v", at)
		}
		if ttl := lifetime(token, ""); ttl < 0 || time.Minute+ttl < ttl {
			t.Errorf("lifetime %d", ttl)
		}
	})
}

// TestAudiences: the token for the objects of a group names that group, and all of them name that
// of provisioning.
func TestAudiences(t *testing.T) {
	t.Parallel()
	u, err := url.Parse("https://exchange.test/sign")
	if err != nil {
		t.Fatal(err)
	}
	x := newExchangers(t.Context(), u, newStaticToken("t"), http.DefaultTransport)
	for path, want := range map[string]string{
		"/apis": "provisioning.grafana.app",
		"/apis/provisioning.grafana.app/v0alpha1/repositories":         "provisioning.grafana.app",
		"/apis/dashboard.grafana.app/v1/namespaces/default/dashboards": "dashboard.grafana.app provisioning.grafana.app",
		"/apis/folder.grafana.app/v1":                                  "folder.grafana.app provisioning.grafana.app",
		"/grafana/apis/playlist.grafana.app/v1/playlists":              "playlist.grafana.app provisioning.grafana.app",
		"/apis/source.toolkit.fluxcd.io/v1/gitrepositories":            "provisioning.grafana.app",
		"/api/v1/namespaces/default/secrets":                           "provisioning.grafana.app",
	} {
		if got := strings.Join(x.forPath(path).(*exchanger).audiences, " "); got != want {
			t.Errorf("%s: %s", path, got)
		}
	}
}
