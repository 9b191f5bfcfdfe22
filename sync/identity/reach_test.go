package identity

import (
	"strings"
	"testing"

	"limpet/sync/auth"
	"limpet/sync/netx"
	"limpet/sync/testenv/nettest"
)

// TestGuard: metadata servers, which are near, are asked whatever the guard says of
// Git hosts; token endpoints are not.
func TestGuard(t *testing.T) {
	t.Parallel()
	guard, err := netx.ParseGuard([]string{"none"})
	if err != nil {
		t.Fatal(err)
	}
	c := newCloud(t)
	c.says("GET /token", "{}")
	d := &registry{o: Options{AllowInsecure: true, Guard: guard}}
	if _, err := d.do(t.Context(), call{op: "test", method: "GET", url: c.URL + "/token", near: true}); err != nil {
		t.Errorf("a metadata server: %v", err)
	}
	if _, err := d.do(t.Context(), call{op: "test", method: "GET", url: c.URL + "/token"}); err == nil {
		t.Error("a private token endpoint is asked")
	}
	equal(t, "requests", c.requests(), []string{"GET /token"})
}

// TestProxy: token calls of a repository go through its proxy.
func TestProxy(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.says("GET /token", "{}")
	addr := c.Listener.Addr().String()
	server := nettest.Start(t, nettest.Options{Names: map[string]string{"login.nowhere.invalid": addr, "login.nowhere.invalid:80": addr}})
	d := &registry{o: Options{AllowInsecure: true}}
	for _, scheme := range []string{"http", "socks5"} {
		p, err := netx.ParseProxy(scheme+"://"+server.Addr, "", "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.do(t.Context(), call{op: "test", method: "GET", url: "http://login.nowhere.invalid/token",
			tls: &auth.Credentials{Proxy: p}}); err != nil {
			t.Errorf("%s: %v", scheme, err)
		}
	}
	if n := len(server.Asked()); n != 2 {
		t.Errorf("the proxy was asked %d times", n)
	}
}

// TestCertificates: what is wrong with the certificates of a token endpoint is told
// with what to do next, and by whom it was asked.
func TestCertificates(t *testing.T) {
	t.Parallel()
	for _, c := range nettest.TLSCases(t) {
		d := &registry{o: Options{}}
		_, err := d.do(t.Context(), call{op: "get a token", identity: "somebody", method: "POST", url: c.URL + "/token", body: "a=b",
			tls: &c.Creds})
		if err == nil {
			t.Errorf("%s: no error", c.Name)
			continue
		}
		for _, want := range append(c.Says, "asked by somebody at POST "+c.URL+"/token") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", c.Name, err, want)
			}
		}
	}
}
