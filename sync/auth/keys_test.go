package auth

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"

	"limpet/sync/testenv/gittest"
)

func TestCredentialsFromKeys(t *testing.T) {
	t.Parallel()
	const https, ssh = "https://host/x", "ssh://host/x"
	cases := []struct {
		name, url, user string
		keys            map[string]string
		want            Credentials
		fails           string
	}{
		{name: "basic", url: https, keys: map[string]string{"username": "u\n", "password": "p\r\n"},
			want: Credentials{Username: "u", Password: "p"}},
		{name: "password alone", url: https, keys: map[string]string{"password": "p"}, fails: "without a username"},
		{name: "bearer wins", url: https, keys: map[string]string{"username": "u", "password": "p", "bearerToken": "b\n"},
			want: Credentials{Username: "u", Bearer: "b"}},
		{name: "token", url: https, keys: map[string]string{"token": "t"}, want: Credentials{Username: "git", Password: "t"}},
		{name: "token with tokenUser", url: https, user: "x-token-auth", keys: map[string]string{"token": "t"},
			want: Credentials{Username: "x-token-auth", Password: "t"}},
		{name: "token with username", url: https, user: "x", keys: map[string]string{"token": "t", "username": "me"},
			want: Credentials{Username: "me", Password: "t"}},
		{name: "line break in token", url: https, keys: map[string]string{"token": "a\r\nX-Evil: 1"}, fails: "line break"},
		{name: "ca alone", url: https, keys: map[string]string{"ca.crt": "PEM", "caFile": "OLD"}, want: Credentials{CA: []byte("PEM")}},
		{name: "old ca name", url: https, keys: map[string]string{"caFile": "OLD"}, want: Credentials{CA: []byte("OLD")}},
		{name: "mtls", url: https, keys: map[string]string{"tls.crt": "C", "tls.key": "K"},
			want: Credentials{ClientCert: []byte("C"), ClientKey: []byte("K")}},
		{name: "old mtls names", url: https, keys: map[string]string{"certFile": "C", "keyFile": "K"},
			want: Credentials{ClientCert: []byte("C"), ClientKey: []byte("K")}},
		{name: "half of mtls by its old name", url: https, keys: map[string]string{"username": "u", "password": "p", "certFile": "C"},
			fails: "go together"},
		{name: "half of mtls", url: https, keys: map[string]string{"tls.crt": "C"}, fails: "go together"},
		{name: "ssh", url: ssh, keys: map[string]string{"identity": "I", "known_hosts": "H", "password": "pp"},
			want: Credentials{SSHKey: []byte("I"), KnownHosts: []byte("H"), SSHPassphrase: "pp"}},
		{name: "ssh without known_hosts", url: ssh, keys: map[string]string{"identity": "I", "known_hosts": "\n"},
			want: Credentials{SSHKey: []byte("I"), KnownHosts: []byte("\n")}},
		{name: "ssh without identity", url: "git@host:x", keys: map[string]string{"token": "t"}, fails: "identity"},
		{name: "identity for https", url: https, keys: map[string]string{"identity": "I", "known_hosts": "H"}, fails: "not ssh"},
		{name: "both kinds, https", url: https, keys: map[string]string{"identity": "I", "known_hosts": "H", "username": "u", "password": "p"},
			want: Credentials{Username: "u", Password: "p"}},
		{name: "unknown keys", url: https, keys: map[string]string{"pat": canary, "otherAppID": "1"}, fails: "[otherAppID pat]"},
		{name: "too long", url: https, keys: map[string]string{"token": strings.Repeat("x", maxValue+1)}, fails: "longer"},
		{name: "a long key", url: ssh, keys: map[string]string{"identity": strings.Repeat("x", maxKey+1), "known_hosts": "H"}, fails: "longer"},
		{name: "long known_hosts", url: ssh, keys: map[string]string{"identity": "I", "known_hosts": strings.Repeat("x", maxKey+1)},
			want: Credentials{SSHKey: []byte("I"), KnownHosts: []byte(strings.Repeat("x", maxKey+1))}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			keys := make(map[string][]byte)
			for k, v := range c.keys {
				keys[k] = []byte(v)
			}
			got, err := credentials(place{keys: keys, name: "here"}, Lookup{URL: c.url, TokenUser: c.user})
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) || strings.Contains(err.Error(), canary) {
					t.Fatalf("error %v, want one with %q", err, c.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Fingerprint() != c.want.Fingerprint() || got.Username != c.want.Username {
				t.Fatalf("got %s user %q password %q", got, got.Username, got.Password)
			}
		})
	}
}

// TestLargeClientKey: a client certificate whose key would take long to sign is refused.
func TestLargeClientKey(t *testing.T) {
	t.Parallel()
	key, public := gittest.LargeRSA(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der := gittest.Must[[]byte](t)(x509.CreateCertificate(rand.Reader, template, &x509.Certificate{}, public,
		gittest.SSHKeys()["ed25519"]))
	c := Credentials{ClientKey: key, ClientCert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	if _, err := c.TLS(); err == nil || !strings.Contains(err.Error(), "more than 8192 bits") {
		t.Error(err)
	}
}
