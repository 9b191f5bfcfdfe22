package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const adminToken = "ProvisioningAdminToken"

func newTestExchange(t testing.TB) *Exchange {
	t.Helper()
	e, err := NewExchange(newTestSigner(t), ExchangeOptions{Token: adminToken})
	if err != nil {
		t.Fatal(err)
	}
	e.now = func() time.Time { return testNow }
	return e
}

// exchange sends the request of the walk-through, changed by with.
func exchange(e http.Handler, body string, with func(*http.Request)) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPost, "http://localhost:6481/sign/access-token", strings.NewReader(body))
	req.Header.Set("X-Realms", `[{"type":"system","identifier":"system"}]`)
	req.Header.Set("X-Org-ID", "0")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+adminToken)
	if with != nil {
		with(req)
	}
	rec := httptest.NewRecorder()
	e.ServeHTTP(rec, req)
	return rec
}

const walkThrough = `{"namespace":"*","audiences":["provisioning.grafana.app"]}`

func readExchange(t testing.TB, rec *httptest.ResponseRecorder) exchangeAnswer {
	t.Helper()
	var answer exchangeAnswer
	if err := json.Unmarshal(rec.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%v: %s", err, rec.Body)
	}
	return answer
}

func TestExchange(t *testing.T) {
	t.Parallel()
	e := newTestExchange(t)
	rec := exchange(e, walkThrough, nil)
	answer := readExchange(t, rec)
	if rec.Code != http.StatusOK || answer.Status != "success" || answer.Data == nil {
		t.Fatalf("%d %s", rec.Code, rec.Body)
	}
	if got := rec.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type = %q", got)
	}
	claims, err := e.signer.verify(answer.Data.Token, testNow)
	if err != nil {
		t.Fatal(err)
	}
	if claims.Expires-claims.IssuedAt != 600 || claims.Namespace != "*" || claims.Audience[0] != "provisioning.grafana.app" || claims.ID == "" {
		t.Errorf("claims = %+v", claims)
	}
}

func TestExchangeLifetime(t *testing.T) {
	t.Parallel()
	e := newTestExchange(t)
	for seconds, want := range map[int]int64{1: 1, 60: 60, 3600: 3600, 86400: 3600} {
		rec := exchange(e, fmt.Sprintf(`{"namespace":"default","audiences":["a"],"expiresIn":%d}`, seconds), nil)
		claims, err := e.signer.verify(readExchange(t, rec).Data.Token, testNow)
		if err != nil || claims.Expires-claims.IssuedAt != want {
			t.Errorf("expiresIn %d: %+v %v, want %d s", seconds, claims, err, want)
		}
	}
}

func TestExchangeForSubject(t *testing.T) {
	t.Parallel()
	e := newTestExchange(t)
	c := testClaims()
	c.Subject = "user:42"
	body := fmt.Sprintf(`{"namespace":"default","audiences":["a"],"subjectToken":%q}`, mustSign(t, e.signer, c))
	claims, err := e.signer.verify(readExchange(t, exchange(e, body, nil)).Data.Token, testNow)
	if err != nil || claims.Subject != "user:42" || claims.Actor == nil || claims.Actor.Subject != "access-policy:limpet" {
		t.Errorf("claims = %+v, %v", claims, err)
	}
}

func TestExchangeRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, body string
		with       func(*http.Request)
		code       int
	}{
		{"wrong token", walkThrough, func(r *http.Request) { r.Header.Set("Authorization", "Bearer wrong") }, 401},
		{"longer token", walkThrough, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+adminToken+"x") }, 401},
		{"no token", walkThrough, func(r *http.Request) { r.Header.Del("Authorization") }, 401},
		{"empty token", walkThrough, func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") }, 401},
		{"basic", walkThrough, func(r *http.Request) { r.SetBasicAuth("admin", adminToken) }, 401},
		{"GET", walkThrough, func(r *http.Request) { r.Method = http.MethodGet }, 405},
		{"other path", walkThrough, func(r *http.Request) { r.URL.Path = "/sign/id-token" }, 404},
		{"no body", "", nil, 400},
		{"not JSON", "namespace=*", nil, 400},
		{"no namespace", `{"audiences":["a"]}`, nil, 400},
		{"no audience", `{"namespace":"*","audiences":[]}`, nil, 400},
		{"too many audiences", `{"namespace":"*","audiences":["a"` + strings.Repeat(`,"a"`, maxAudiences) + `]}`, nil, 400},
		{"audience as text", `{"namespace":"*","audiences":"a"}`, nil, 400},
		{"no lifetime", `{"namespace":"*","audiences":["a"],"expiresIn":0}`, nil, 400},
		{"negative lifetime", `{"namespace":"*","audiences":["a"],"expiresIn":-5}`, nil, 400},
		{"foreign subject", `{"namespace":"*","audiences":["a"],"subjectToken":"x.y.z"}`, nil, 400},
		{"bad realms", walkThrough, func(r *http.Request) { r.Header.Set("X-Realms", "system") }, 400},
		{"bad org", walkThrough, func(r *http.Request) { r.Header.Set("X-Org-ID", "main") }, 400},
		{"too large", `{"namespace":"` + strings.Repeat("x", maxExchangeBody) + `"}`, nil, 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rec := exchange(newTestExchange(t), c.body, c.with)
			answer := readExchange(t, rec)
			if rec.Code != c.code || answer.Status != "error" || answer.Error == "" || answer.Data != nil {
				t.Errorf("%d %s, want %d with an error", rec.Code, rec.Body, c.code)
			}
			if strings.Contains(rec.Body.String(), adminToken) {
				t.Errorf("the answer repeats the token: %s", rec.Body)
			}
		})
	}
}

func TestExchangeLimits(t *testing.T) {
	t.Parallel()
	e := newTestExchange(t)
	from := func(addr, token string) int {
		return exchange(e, walkThrough, func(r *http.Request) {
			r.RemoteAddr = addr
			r.Header.Set("Authorization", "Bearer "+token)
		}).Code
	}
	wrong := 0
	for from("192.0.2.1:1", "guess") == http.StatusUnauthorized {
		if wrong++; wrong > exchangeBurst {
			t.Fatal("guessing is not limited")
		}
	}
	if wrong != exchangeBurst/wrongTokenCost {
		t.Errorf("%d guesses in a row, want %d", wrong, exchangeBurst/wrongTokenCost)
	}
	if code := from("192.0.2.1:2", adminToken); code != http.StatusTooManyRequests {
		t.Errorf("the client may go on after guessing: %d", code)
	}
	if code := from("192.0.2.2:1", adminToken); code != http.StatusOK {
		t.Errorf("another client suffers: %d", code)
	}
	e.now = func() time.Time { return testNow.Add(2 * time.Second) }
	if code := from("192.0.2.1:3", adminToken); code != http.StatusOK {
		t.Errorf("the client is shut out for good: %d", code)
	}
	for i := range 2 * maxClients {
		from(fmt.Sprintf("client-%d:1", i), adminToken)
	}
	if len(e.clients) > maxClients {
		t.Errorf("%d clients are remembered, want %d at most", len(e.clients), maxClients)
	}
}

func TestNewExchangeRefuses(t *testing.T) {
	t.Parallel()
	signer := newTestSigner(t)
	for name, make := range map[string]func() (*Exchange, error){
		"no signer": func() (*Exchange, error) { return NewExchange(nil, ExchangeOptions{Token: "x"}) },
		"no token":  func() (*Exchange, error) { return NewExchange(signer, ExchangeOptions{}) },
	} {
		if _, err := make(); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
