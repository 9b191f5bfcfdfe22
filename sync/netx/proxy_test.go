package netx_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"limpet/sync/netx"
	"limpet/sync/testenv/nettest"
)

// narrow refuses all private networks.
var narrow, _ = netx.ParseGuard([]string{"none"})

const password = "CANARY/of@the:proxy"

// TestProxies checks that a name that only the proxy resolves is reached through each
// kind of proxy, by http and by a bare connection, and not with a wrong password.
func TestProxies(t *testing.T) {
	site := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Proxy-Authorization") != "" {
			t.Error("the host sees the credentials of the proxy")
		}
		io.WriteString(w, "hello")
	}))
	defer site.Close()
	roots := &tls.Config{RootCAs: x509.NewCertPool()}
	roots.RootCAs.AddCert(site.Certificate())
	const target = "example.com:443" // the name in httptest's certificate
	for _, scheme := range []string{"http", "https", "socks5"} {
		t.Run(scheme, func(t *testing.T) {
			o := nettest.Options{Username: "ann", Password: password, Names: map[string]string{target: site.Listener.Addr().String()}}
			if scheme == "https" {
				o.Wrap = func(l net.Listener) net.Listener { return tls.NewListener(l, site.TLS) }
			}
			server := nettest.Start(t, o)
			for given, good := range map[string]bool{password: true, "CANARY of another": false} {
				p, err := netx.ParseProxy(scheme+"://"+server.Addr, "ann", given)
				if err != nil {
					t.Fatal(err)
				}
				before := len(server.Asked())
				transport := netx.Guard{}.Transport(roots, p)
				res, err := (&http.Client{Transport: transport}).Get("https://" + target)
				if err == nil {
					res.Body.Close()
				}
				transport.CloseIdleConnections()
				outcome(t, server, before, good, err)

				before = len(server.Asked())
				conn, err := netx.Guard{}.Through(t.Context(), p, roots, target)
				if err == nil {
					secured := tls.Client(conn, &tls.Config{RootCAs: roots.RootCAs, ServerName: "example.com"})
					err = secured.HandshakeContext(t.Context())
					secured.Close()
				}
				outcome(t, server, before, good, err)
			}
			// The address of the proxy is judged, and no other.
			p, _ := netx.ParseProxy(scheme+"://"+server.Addr, "ann", password)
			before := len(server.Asked())
			if _, err := (narrow).Through(t.Context(), p, roots, target); !errors.Is(err, netx.ErrForbidden) {
				t.Errorf("a private proxy is asked: %v", err)
			}
			if _, err := (&http.Client{Transport: narrow.Transport(roots, p)}).Get("https://" + target); !errors.Is(err, netx.ErrForbidden) {
				t.Errorf("a private proxy is asked: %v", err)
			}
			if n := len(server.Asked()); n != before {
				t.Errorf("the proxy was asked %d times more", n-before)
			}
		})
	}
}

func outcome(t *testing.T, server *nettest.Proxy, before int, good bool, err error) {
	t.Helper()
	asked := server.Asked()[before:]
	switch {
	case good && (err != nil || len(asked) != 1 || asked[0] != "example.com:443"):
		t.Errorf("error %v, the proxy was asked for %q", err, asked)
	case !good && (err == nil || len(asked) != 0):
		t.Errorf("a wrong password: error %v, the proxy was asked for %q", err, asked)
	case err != nil && strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), "CANARY"):
		t.Errorf("the error shows a secret: %v", err)
	}
}

// TestServerSpeaksFirst checks that early bytes of a server behind a proxy are not
// lost.
func TestServerSpeaksFirst(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan struct{})
	go func() { // a proxy and a server that come in one segment
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		http.ReadRequest(bufio.NewReader(conn))
		io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\nSSH-2.0-early\r\n")
	}()
	p, _ := netx.ParseProxy("http://"+l.Addr().String(), "", "")
	conn, err := netx.Guard{}.Through(t.Context(), p, nil, "git.example:22")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, _ := io.ReadAll(conn); string(got) != "SSH-2.0-early\r\n" {
		t.Errorf("read %q", got)
	}
	<-done
}

// TestSilentProxy checks that a silent proxy does not block beyond the context.
func TestSilentProxy(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, scheme := range []string{"http", "https", "socks5"} {
		p, _ := netx.ParseProxy(scheme+"://"+l.Addr().String(), "", "")
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error)
		go func() {
			_, err := netx.Guard{}.Through(ctx, p, &tls.Config{}, "git.example:22")
			got <- err
		}()
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-got; err == nil {
			t.Errorf("%s: a silent proxy lets through", scheme)
		}
		conn.Close()
	}
}

// TestEnvironment runs in a process of its own: net/http reads the variables once.
func TestEnvironment(t *testing.T) {
	if target := os.Getenv("LIMPET_TEST_TARGET"); target != "" {
		res, err := (&http.Client{Transport: netx.Guard{}.Transport(nil, nil)}).Get(target)
		if err != nil {
			fmt.Println("ERROR", err)
			return
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		fmt.Println("BODY", string(body))
		return
	}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }))
	defer site.Close()
	addr := site.Listener.Addr().String()
	server := nettest.Start(t, nettest.Options{Names: map[string]string{"git.nowhere.invalid": addr, "git.nowhere.invalid:80": addr}})
	run := func(proxy string) string {
		cmd := exec.Command(os.Args[0], "-test.run=^TestEnvironment$")
		cmd.Env = append(os.Environ(), "LIMPET_TEST_TARGET=http://git.nowhere.invalid/", "HTTP_PROXY="+proxy, "http_proxy="+proxy, "NO_PROXY=",
			"no_proxy=")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	for _, scheme := range []string{"http", "socks5"} {
		if got := run(scheme + "://" + server.Addr); !strings.Contains(got, "BODY hello") {
			t.Errorf("%s: %s", scheme, got)
		}
	}
}

// TestParseProxy: no text of a proxy shows its password.
func TestParseProxy(t *testing.T) {
	good := map[string]string{
		"http://proxy.example:3128":  "http://proxy.example:3128",
		"http://proxy.example/":      "http://proxy.example:80",
		"https://proxy.example":      "https://proxy.example:443",
		"socks5://[::1]":             "socks5://[::1]:1080",
		"SOCKS5H://proxy.example:99": "socks5://proxy.example:99",
	}
	for in, want := range good {
		p, err := netx.ParseProxy(in, "ann", "CANARY")
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
		if p, err := netx.ParseProxy(in[0], in[1], in[2]); err == nil || strings.Contains(err.Error(), "CANARY") {
			t.Errorf("%.60q: %v, %v", in, p, err)
		}
	}
}
