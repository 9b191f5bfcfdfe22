package auth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"limpet/sync/netx"
)

// TestWithTransport: how a host is reached is decided by the Secret of a proxy, by the place of
// the credentials, and by rules that say nothing else; in this order.
func TestWithTransport(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca")
	if err := os.WriteFile(ca, []byte("PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	rules := []Rule{
		{URL: "https://git.example", Values: map[string]string{keyProxy: "http://of-the-rule"}, Files: map[string]string{keyCA: ca}},
		{URL: "https://git.example", Values: map[string]string{keyUsername: "ann", keyPassword: "p"}},
	}
	secrets := map[string]map[string][]byte{
		"site/plain": {"token": []byte("t")},
		"site/own": {"token": []byte("t"), keyProxy: []byte("socks5://of-the-secret\n"), keyProxyUsername: []byte("u"),
			keyProxyPassword: []byte("CANARY\n")},
		"site/proxy": {"address": []byte("http://of-the-annotation:1"), "username": []byte("u"), "password": []byte("CANARY")},
		"site/wrong": {"username": []byte("CANARY")},
	}
	get := func(_ context.Context, namespace, name string) (map[string][]byte, error) {
		if name == "away" {
			return nil, errors.New("away")
		}
		return secrets[namespace+"/"+name], nil
	}
	at := Places{Secrets: Secrets(get), Rules: NewList(rules)}
	from := at.WithTransport(at.Credentials)
	cases := []struct{ secret, proxy, url, want, ca, kind string }{
		{"", "", "https://git.example/a", "http://of-the-rule:80", "PEM", "basic"},
		{"plain", "", "https://git.example/a", "http://of-the-rule:80", "PEM", "basic"},
		{"own", "", "https://git.example/a", "socks5://of-the-secret:1080", "PEM", "basic"},
		{"own", "proxy", "https://git.example/a", "http://of-the-annotation:1", "PEM", "basic"},
		{"own", "", "https://other.example/a", "socks5://of-the-secret:1080", "", "basic"},
		{"", "proxy", "https://other.example/a", "http://of-the-annotation:1", "", "none"},
		{"plain", "", "https://other.example/a", "none", "", "basic"},
		{"plain", "missing", "https://git.example/a", "error", "", ""},
		{"plain", "wrong", "https://git.example/a", "error", "", ""},
		{"plain", "away", "https://git.example/a", "error", "", ""},
	}
	for _, c := range cases {
		l := Lookup{Namespace: "site", URL: c.url, ProxySecret: c.proxy, Secure: map[string]string{"token": c.secret}}
		got, err := from(t.Context(), l)
		if c.want == "error" {
			if err == nil || strings.Contains(err.Error(), "CANARY") {
				t.Errorf("%v: %v, %v", c, got, err)
			}
			continue
		}
		if err != nil || got.GetProxy().String() != c.want || string(got.CA) != c.ca || got.Kind() != c.kind {
			t.Errorf("%v: proxy %v, ca %q, %v, error %v", c, got.GetProxy(), got.CA, got, err)
		}
		if text := fmt.Sprintf("%+v %#v %s", got, got, got.Fingerprint()); strings.Contains(text, "CANARY") {
			t.Errorf("%v shows a secret: %s", c, text)
		}
		if got.GetProxy() != nil && c.secret == "own" && !strings.Contains(strings.Join(got.Secrets(), " "), "CANARY") {
			t.Errorf("%v: the password of the proxy is none of its secrets", c)
		}
	}
	without, with := &Credentials{CA: []byte("PEM")}, &Credentials{CA: []byte("PEM"), Proxy: &netx.Proxy{Scheme: "http", Host: "p:1"}}
	if without.TransportKey() == with.TransportKey() || without.Fingerprint() == with.Fingerprint() {
		t.Error("a proxy makes no difference")
	}
}
