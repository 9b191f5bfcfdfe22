package forge

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"limpet/sync/auth"
	"limpet/sync/netx"
	"limpet/sync/testenv/nettest"
)

const hidden = "CANARY-of-the-token"

// TestGuarded: an API that a Secret names, as githubAppBaseURL, is judged like a Git
// host, by name and by address.
func TestGuarded(t *testing.T) {
	t.Parallel()
	asked := 0
	site := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer site.Close()
	narrow, err := netx.ParseGuard([]string{"none"})
	if err != nil {
		t.Fatal(err)
	}
	byName := strings.Replace(site.URL, "127.0.0.1", "localhost", 1)
	for _, base := range []string{"http://169.254.169.254/api/v3", "http://[fe80::1]", "http://metadata.google.internal/x", site.URL, byName} {
		h := New(Options{AllowInsecure: true, Guard: narrow})
		c := h.caller(base, "Bearer ", &auth.Credentials{Bearer: hidden})
		_, err := c.do(t.Context(), request{op: "test", method: http.MethodGet, path: "/user"})
		if e, ok := errors.AsType[*netx.Error](err); !ok || e.Kind != netx.Invalid || !strings.Contains(err.Error(), "forbidden address") {
			t.Errorf("%s: %v", base, err)
		}
		h.Close()
	}
	if asked != 0 {
		t.Errorf("the API was asked %d times", asked)
	}
}

// TestProxy: the proxy of the credentials leads to the API too.
func TestProxy(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{"login":"ann"}`)) }))
	defer site.Close()
	server := nettest.Start(t, nettest.Options{Username: "ann", Password: hidden,
		Names: map[string]string{"api.nowhere.invalid:80": site.Listener.Addr().String()}})
	p, err := netx.ParseProxy("socks5://"+server.Addr, "ann", hidden)
	if err != nil {
		t.Fatal(err)
	}
	h := New(Options{AllowInsecure: true})
	defer h.Close()
	for pass, good := range map[string]bool{hidden: true, "CANARY": false} {
		p.Password = pass
		c := h.caller("http://api.nowhere.invalid", "Bearer ", &auth.Credentials{Bearer: hidden, Proxy: p})
		_, err := c.do(t.Context(), request{op: "test", method: http.MethodGet, path: "/user"})
		if (err == nil) != good || err != nil && strings.Contains(err.Error(), pass) {
			t.Errorf("good password %v: %v", good, err)
		}
	}
}

// TestCertificates checks that invalid certificates of either side are reported with
// the next step, in stable words.
func TestCertificates(t *testing.T) {
	t.Parallel()
	for _, c := range nettest.TLSCases(t) {
		hosts := New(Options{})
		r, err := hosts.Remote(t.Context(), Target{Type: "github", URL: c.URL + "/team/site"}, &c.Creds)
		if err != nil {
			t.Fatal(err)
		}
		_, err = facts(t.Context(), r)
		if err == nil {
			t.Errorf("%s: no error", c.Name)
			continue
		}
		for _, want := range c.Says {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", c.Name, err, want)
			}
		}
		if _, again := facts(t.Context(), r); again == nil || again.Error() != err.Error() {
			t.Errorf("%s: %q, then %q", c.Name, err, again)
		}
		hosts.Close()
	}
}
