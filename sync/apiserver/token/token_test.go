package token

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const adminToken = "ProvisioningadminToken"

func newTestExchange(t testing.TB) *Exchange {
	t.Helper()
	e, err := NewExchange(newTestSigner(t), adminToken, slog.New(slog.DiscardHandler))
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
	claims, err := e.signer.Verify(answer.Data["token"], testNow)
	if err != nil {
		t.Fatal(err)
	}
	if claims.ExpiresAt.Sub(claims.IssuedAt.Time) != 10*time.Minute || claims.Namespace != "*" ||
		claims.Audience[0] != "provisioning.grafana.app" || claims.ID == "" {
		t.Errorf("claims = %+v", claims)
	}
}

func TestExchangeLifetime(t *testing.T) {
	t.Parallel()
	e := newTestExchange(t)
	for seconds, want := range map[int]int64{1: 1, 60: 60, 3600: 3600, 86400: 3600} {
		rec := exchange(e, fmt.Sprintf(`{"namespace":"default","audiences":["a"],"expiresIn":%d}`, seconds), nil)
		claims, err := e.signer.Verify(readExchange(t, rec).Data["token"], testNow)
		if err != nil || claims.ExpiresAt.Sub(claims.IssuedAt.Time) != time.Duration(want)*time.Second {
			t.Errorf("expiresIn %d: %+v %v, want %d s", seconds, claims, err, want)
		}
	}
}

func TestExchangeRefuses(t *testing.T) {
	t.Parallel()
	if _, err := NewExchange(newTestSigner(t), "", slog.Default()); err == nil {
		t.Error("an empty token may be exchanged")
	}
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

func newTestSigner(t testing.TB) *Signer {
	t.Helper()
	s, err := NewSigner(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// testNow is the moment of all tokens in tests, in whole seconds.
var testNow = time.Unix(1_795_000_000, 0)

func testClaims() Claims {
	return Claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer:    tokenIssuer,
			Subject:   "access-policy:limpet",
			Audience:  []string{"provisioning.grafana.app"},
			IssuedAt:  jwt.NewNumericDate(testNow),
			ExpiresAt: jwt.NewNumericDate(testNow.Add(time.Minute)),
		},
		Namespace: "*",
	}
}

func mustSign(t testing.TB, s *Signer, c Claims) string {
	t.Helper()
	token, err := s.sign(c)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestSignerKeepsItsKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := NewSigner(dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, signKeyName)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("key file: %v %v, want mode 0600", info, err)
	}
	token := mustSign(t, first, testClaims())
	second, err := NewSigner(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.Verify(token, testNow); err != nil {
		t.Errorf("a token does not survive a restart: %v", err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := NewSigner(dir); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that others may read gives %v", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "garbage", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := NewSigner(dir); err == nil {
			t.Errorf("the key file %q is accepted", text)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, ".limpet-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("temporary files left: %v %v", left, err)
	}
}

func TestTokenShape(t *testing.T) {
	t.Parallel()
	token := mustSign(t, newTestSigner(t), testClaims())
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("token has %d parts", len(parts))
	}
	for i, want := range []map[string]any{
		{"alg": "ES256", "typ": "at+jwt"},
		{"iss": "limpet", "sub": "access-policy:limpet", "namespace": "*", "exp": float64(testNow.Unix() + 60), "iat": float64(testNow.Unix())},
	} {
		data, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]any{}
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		for name, value := range want {
			if got[name] != value {
				t.Errorf("part %d: %s = %v, want %v", i, name, got[name], value)
			}
		}
		if list, ok := got["permissions"].([]any); i == 1 && (!ok || len(list) != 0) {
			t.Errorf("permissions = %v, want []", got["permissions"])
		}
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	signer, other := newTestSigner(t), newTestSigner(t)
	good := mustSign(t, signer, testClaims())
	with := func(change func(*Claims)) string {
		c := testClaims()
		change(&c)
		return mustSign(t, signer, c)
	}
	parts := strings.Split(good, ".")
	header := func(text string) string { return encoded([]byte(text)) + "." + parts[1] + "." }
	for _, c := range []struct {
		name, token string
		want        error
	}{
		{"good", good, nil},
		{"not valid yet, within the leeway", with(func(c *Claims) { c.IssuedAt = jwt.NewNumericDate(testNow.Add(20 * time.Second)) }), nil},
		{"empty", "", jwt.ErrTokenMalformed},
		{"two parts", parts[0] + "." + parts[1], jwt.ErrTokenMalformed},
		{"four parts", good + ".x", jwt.ErrTokenMalformed},
		{"header not base64", "!." + parts[1] + "." + parts[2], jwt.ErrTokenMalformed},
		{"no algorithm", header(`{"alg":"none","kid":"`+signer.kid+`"}`) + parts[2], jwt.ErrTokenSignatureInvalid},
		{"symmetric", header(`{"alg":"HS256","kid":"`+signer.kid+`"}`) + parts[2], jwt.ErrTokenSignatureInvalid},
		{"critical", header(`{"alg":"ES256","crit":["b64"],"kid":"`+signer.kid+`"}`) + parts[2], errCritical},
		{"other key", mustSign(t, other, testClaims()), errOtherKey},
		{"other key, this name", header(`{"alg":"ES256","kid":"`+signer.kid+`"}`) + strings.Split(mustSign(t, other, testClaims()), ".")[2],
			jwt.ErrTokenSignatureInvalid},
		{"no signature", parts[0] + "." + parts[1] + ".", jwt.ErrTokenSignatureInvalid},
		{"short signature", parts[0] + "." + parts[1] + "." + encoded(make([]byte, 63)), jwt.ErrTokenSignatureInvalid},
		{"padded", good + "=", jwt.ErrTokenMalformed},
		{"other claims", parts[0] + "." + encoded([]byte(`{"iss":"limpet","exp":9999999999,"namespace":"*"}`)) + "." + parts[2],
			jwt.ErrTokenSignatureInvalid},
		{"zero signature", parts[0] + "." + parts[1] + "." + encoded(make([]byte, 64)), jwt.ErrTokenSignatureInvalid},
		{"too long", strings.Repeat("a", maxTokenSize+1), errTooLong},
		{"expired", with(func(c *Claims) { c.ExpiresAt = jwt.NewNumericDate(testNow) }), jwt.ErrTokenExpired},
		{"no expiry", with(func(c *Claims) { c.ExpiresAt = nil }), jwt.ErrTokenRequiredClaimMissing},
		{"from the future", with(func(c *Claims) { c.IssuedAt = jwt.NewNumericDate(testNow.Add(time.Minute)) }), errFuture},
		{"other issuer", with(func(c *Claims) { c.Issuer = "grafana" }), jwt.ErrTokenInvalidIssuer},
	} {
		_, err := signer.Verify(c.token, testNow)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	claims, err := signer.Verify(good, testNow)
	if err != nil || claims.Subject != "access-policy:limpet" || len(claims.Audience) != 1 {
		t.Errorf("claims = %+v, %v", claims, err)
	}
}

// FuzzVerify: no text is a valid token but one that the signer made, and none makes the parser fall
// over.
func FuzzVerify(f *testing.F) {
	signer := newTestSigner(f)
	good := mustSign(f, signer, testClaims())
	f.Add(good)
	f.Add(good[:len(good)-2])
	f.Add("..")
	f.Add("e30.e30.")
	f.Add(encoded([]byte(`{"alg":"none"}`)) + "." + encoded([]byte(`{}`)) + ".")
	f.Add(encoded([]byte(`{"alg":"ES256","kid":"`+signer.kid+`"}`)) + "." + encoded([]byte(`{"aud":1}`)) + "." + encoded(make([]byte, 64)))
	f.Fuzz(func(t *testing.T, token string) {
		_, err := signer.Verify(token, testNow)
		if err == nil && token != good {
			t.Errorf("accepted %q", token)
		}
	})
}

// TestSignersAgree: processes that start together end up with one key.
func TestSignersAgree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	signers := make([]*Signer, 8)
	var starts sync.WaitGroup
	for i := range signers {
		starts.Go(func() {
			s, err := NewSigner(dir)
			if err != nil {
				t.Error(err)
				return
			}
			signers[i] = s
		})
	}
	starts.Wait()
	if t.Failed() {
		return
	}
	token := mustSign(t, signers[0], testClaims())
	for i, s := range signers {
		if _, err := s.Verify(token, testNow); err != nil {
			t.Errorf("signer %d: %v", i, err)
		}
	}
}

func encoded(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }
