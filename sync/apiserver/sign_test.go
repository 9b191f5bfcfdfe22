package apiserver

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

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

func testClaims() tokenClaims {
	return tokenClaims{Issuer: tokenIssuer, Subject: "access-policy:limpet", Audience: []string{"provisioning.grafana.app"},
		IssuedAt: testNow.Unix(), Expires: testNow.Add(time.Minute).Unix(), Namespace: "*"}
}

func mustSign(t testing.TB, s *Signer, c tokenClaims) string {
	t.Helper()
	token, err := s.sign(c)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestSignerKeepsItsKey(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
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
	if _, err := second.verify(token, testNow); err != nil {
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
	for _, text := range []string{"", "garbage", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", pemKey} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := NewSigner(dir); err == nil {
			t.Errorf("the key file %q is accepted", text)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "*.tmp-*"))
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
	with := func(change func(*tokenClaims)) string {
		c := testClaims()
		change(&c)
		return mustSign(t, signer, c)
	}
	parts := strings.Split(good, ".")
	header := func(text string) string { return segment([]byte(text)) + "." + parts[1] + "." }
	for _, c := range []struct{ name, token, want string }{
		{"good", good, ""},
		{"not valid yet, within the leeway", with(func(c *tokenClaims) { c.IssuedAt += 20 }), ""},
		{"empty", "", "not a JSON Web Token"},
		{"two parts", parts[0] + "." + parts[1], "not a JSON Web Token"},
		{"four parts", good + ".x", "not a JSON Web Token"},
		{"header not base64", "!." + parts[1] + "." + parts[2], "header"},
		{"no algorithm", header(`{"alg":"none","kid":"`+signer.kid+`"}`) + parts[2], "algorithm"},
		{"symmetric", header(`{"alg":"HS256","kid":"`+signer.kid+`"}`) + parts[2], "algorithm"},
		{"critical", header(`{"alg":"ES256","crit":["b64"],"kid":"`+signer.kid+`"}`) + parts[2], "critical"},
		{"other key", mustSign(t, other, testClaims()), "another key"},
		{"other key, this name", header(`{"alg":"ES256","kid":"`+signer.kid+`"}`) + strings.Split(mustSign(t, other, testClaims()), ".")[2], "signature is wrong"},
		{"no signature", parts[0] + "." + parts[1] + ".", "signature cannot be read"},
		{"short signature", good[:len(good)-4], "signature cannot be read"},
		{"padded", good + "=", "signature cannot be read"},
		{"other claims", parts[0] + "." + segment([]byte(`{"iss":"limpet","exp":9999999999,"namespace":"*"}`)) + "." + parts[2], "signature is wrong"},
		{"zero signature", parts[0] + "." + parts[1] + "." + segment(make([]byte, 64)), "signature is wrong"},
		{"too long", strings.Repeat("a", maxTokenSize+1), "too long"},
		{"expired", with(func(c *tokenClaims) { c.Expires = testNow.Unix() }), "expired"},
		{"no expiry", with(func(c *tokenClaims) { c.Expires = 0 }), "expired"},
		{"from the future", with(func(c *tokenClaims) { c.IssuedAt += 60 }), "future"},
		{"other issuer", with(func(c *tokenClaims) { c.Issuer = "grafana" }), "issuer"},
	} {
		_, err := signer.verify(c.token, testNow)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	claims, err := signer.verify(good, testNow)
	if err != nil || claims.Subject != "access-policy:limpet" || len(claims.Audience) != 1 {
		t.Errorf("claims = %+v, %v", claims, err)
	}
}

// FuzzVerify: no text is a valid token but one that the signer made, and none
// makes the parser fall over.
func FuzzVerify(f *testing.F) {
	signer := newTestSigner(f)
	good := mustSign(f, signer, testClaims())
	f.Add(good)
	f.Add(good[:len(good)-2])
	f.Add("..")
	f.Add("e30.e30.")
	f.Add(segment([]byte(`{"alg":"none"}`)) + "." + segment([]byte(`{}`)) + ".")
	f.Add(segment([]byte(`{"alg":"ES256","kid":"`+signer.kid+`"}`)) + "." + segment([]byte(`{"aud":1}`)) + "." + segment(make([]byte, 64)))
	f.Fuzz(func(t *testing.T, token string) {
		_, err := signer.verify(token, testNow)
		if err == nil && token != good {
			t.Errorf("accepted %q", token)
		}
	})
}
