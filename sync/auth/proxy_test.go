package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseProxy(t *testing.T) {
	good := map[string]string{
		"http://proxy.example:3128":  "http://proxy.example:3128",
		"http://proxy.example/":      "http://proxy.example:80",
		"https://proxy.example":      "https://proxy.example:443",
		"socks5://[::1]":             "socks5://[::1]:1080",
		"SOCKS5H://proxy.example:99": "socks5://proxy.example:99",
	}
	for in, want := range good {
		p, err := ParseProxy(in, "ann", "CANARY")
		if err != nil || p.String() != want {
			t.Errorf("%s: %v, %v", in, p, err)
			continue
		}
		dump, _ := json.Marshal(p)
		for _, text := range []string{fmt.Sprintf("%v %+v %#v %s %x %v", p, p, p, p, p, *p), string(dump)} {
			if strings.Contains(text, "CANARY") || strings.Contains(text, fmt.Sprintf("%x", "CANARY")) {
				t.Errorf("%s shows its password: %s", in, text)
			}
		}
		if pass, _ := p.URL().User.Password(); pass != "CANARY" {
			t.Errorf("%s: net/http gets the password %q", in, pass)
		}
	}
	bad := [][3]string{
		{"", "", ""}, {"proxy.example:3128", "", ""}, {"ftp://proxy.example", "", ""}, {"http://", "", ""},
		{"http://proxy.example/path", "", ""}, {"http://proxy.example?CANARY", "", ""}, {"http://ann:CANARY@proxy.example", "", ""},
		{"http://proxy.example", "", "CANARY"}, {"http://" + strings.Repeat("CANARY", 400), "", ""}, {"http://%zzCANARY", "", ""},
		{"socks5://proxy.example", strings.Repeat("u", 256), "CANARY"},
	}
	for _, in := range bad {
		if p, err := ParseProxy(in[0], in[1], in[2]); err == nil || strings.Contains(err.Error(), "CANARY") {
			t.Errorf("%.60q: %v, %v", in, p, err)
		}
	}
}

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
		"site/own":   {"token": []byte("t"), keyProxy: []byte("socks5://of-the-secret\n"), keyProxyUsername: []byte("u"), keyProxyPassword: []byte("CANARY\n")},
		"site/proxy": {"address": []byte("http://of-the-annotation:1"), "username": []byte("u"), "password": []byte("CANARY")},
		"site/wrong": {"username": []byte("CANARY")},
	}
	get := func(_ context.Context, namespace, name string) (map[string][]byte, error) {
		if name == "away" {
			return nil, errors.New("away")
		}
		return secrets[namespace+"/"+name], nil
	}
	at := Places{Secrets: SecretsFunc(get), Rules: rules}
	from := at.WithTransport(at)
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
		got, err := from.Credentials(t.Context(), l)
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
	without, with := &Credentials{CA: []byte("PEM")}, &Credentials{CA: []byte("PEM"), Proxy: &Proxy{Scheme: "http", Host: "p:1"}}
	if without.TransportKey() == with.TransportKey() || without.Fingerprint() == with.Fingerprint() {
		t.Error("a proxy makes no difference")
	}
}
