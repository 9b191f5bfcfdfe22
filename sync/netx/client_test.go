package netx

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const canary = "s3cr3t-canary"

// system is a Trust of nothing but the system's authorities.
type system struct{}

func (system) TransportKey() string      { return "" }
func (system) TLS() (*tls.Config, error) { return &tls.Config{MinVersion: tls.VersionTLS12}, nil }
func (system) GetProxy() *Proxy          { return nil }

// pipeTo returns a client whose calls end at a function, without a network.
func pipeTo(serve func(net.Conn)) *Client {
	return &Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			go func() {
				defer there.Close()
				serve(there)
			}()
			return here, nil
		}}}
}

// TestDeadline: whatever the other side does, a call ends in time.
func TestDeadline(t *testing.T) {
	t.Parallel()
	request := func(c net.Conn) {
		if req, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			req.Body.Close()
		}
	}
	for name, serve := range map[string]func(net.Conn){
		"deaf": func(c net.Conn) { time.Sleep(time.Hour) },
		"mute": func(c net.Conn) { request(c); time.Sleep(time.Hour) },
		"slow": func(c net.Conn) {
			request(c)
			for _, b := range []byte("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + strings.Repeat(" ", 100)) {
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := pipeTo(serve)
				c.AllowInsecure = true
				begin := time.Now()
				_, err := c.Do(t.Context(), Call{Op: "ask", Identity: "somebody", Method: http.MethodPost, Trust: system{},
					URL: "http://tokens.example.com/x?secret=" + canary, Body: []byte("a=b")})
				if took := time.Since(begin); took != c.Timeout || KindOf(err) != Unavailable ||
					!strings.Contains(err.Error(), "within 10s, asked by somebody at POST http://tokens.example.com/x") ||
					strings.Contains(err.Error(), canary) {
					t.Errorf("after %v: %v", took, err)
				}
				time.Sleep(2 * time.Hour) // the other side ends
			})
		})
	}
}

// TestUnread: half an answer is one where it does not matter, else not.
func TestUnread(t *testing.T) {
	t.Parallel()
	c := pipeTo(func(c net.Conn) {
		if req, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			req.Body.Close()
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"))
		}
	})
	c.AllowInsecure = true
	for _, unread := range []bool{true, false} {
		_, err := c.Do(t.Context(), Call{Op: "send", Method: http.MethodPost, Trust: system{}, URL: "http://hooks.example.com", Unread: unread})
		if (err == nil) != unread || err != nil && KindOf(err) != Unavailable {
			t.Errorf("unread %v: %v", unread, err)
		}
	}
}

// TestRefusedCalls: what is not asked at all.
func TestRefusedCalls(t *testing.T) {
	t.Parallel()
	c := pipeTo(func(net.Conn) { t.Error("somebody was asked") })
	for _, url := range []string{"", "x", "ftp://h/x", "https://user:" + canary + "@h/x", "http://tokens.example.com/x", "https://[::1/x",
		"https://169.254.169.254/x"} {
		_, err := c.Do(t.Context(), Call{Op: "ask", Method: http.MethodGet, URL: url, Trust: system{}})
		if KindOf(err) != Invalid || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// TestNear: metadata servers are asked whatever the guard says of Git hosts; others are not.
func TestNear(t *testing.T) {
	t.Parallel()
	asked := 0
	site := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer site.Close()
	guard, err := ParseGuard([]string{"none"})
	if err != nil {
		t.Fatal(err)
	}
	c := &Client{Guard: guard, AllowInsecure: true, Timeout: time.Minute}
	if _, err := c.Do(t.Context(), Call{Method: http.MethodGet, URL: site.URL, Trust: system{}, Near: true}); err != nil {
		t.Errorf("a metadata server: %v", err)
	}
	if _, err := c.Do(t.Context(), Call{Method: http.MethodGet, URL: site.URL, Trust: system{}}); !errors.Is(err, ErrForbidden) &&
		KindOf(err) != Invalid {
		t.Errorf("a private token endpoint: %v", err)
	}
	if asked != 1 {
		t.Errorf("%d requests", asked)
	}
}

// TestRedirectIsChecked: where a redirect may lead from https, and what of it is
// taken.
func TestRedirectIsChecked(t *testing.T) {
	t.Parallel()
	from := &url.URL{Scheme: "https", Host: "git.example.com", Path: "/api/v3"}
	for location, want := range map[string]string{
		"/api/v3/repositories/7":                          "https://git.example.com/api/v3/repositories/7",
		"https://u:p@GIT.example.com/api/v3/x?y=1#z":      "https://GIT.example.com/api/v3/x?y=1",
		"http://git.example.com/api/v3/x":                 "",
		"https://git.example.com:444/api/v3/x":            "",
		"https://git.example.com.evil.example.com/api/v3": "",
		"//evil.example.com/api/v3/x":                     "",
		"":                                                "",
		"https://%zz":                                     "",
	} {
		to, err := redirect(from, location)
		if (err == nil) != (want != "") || err == nil && to.String() != want {
			t.Errorf("%q: %v %v, want %q", location, to, err, want)
		}
	}
}

func FuzzErrorText(f *testing.F) {
	f.Add([]byte(`{"message":"a","errors":["b",{"message":"c"}]}`))
	f.Add([]byte(strings.Repeat(`{"message":[`, 50)))
	f.Add([]byte(`<ErrorResponse><Error><Code>a</Code><Message>b</Message></Error></ErrorResponse>`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if n := strings.Count(errorText(body), ": "); n > len(body) {
			t.Fatalf("%d parts of %d bytes", n, len(body))
		}
	})
}
