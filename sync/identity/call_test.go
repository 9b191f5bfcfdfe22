package identity

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"limpet/sync/netx"
)

// pipeTo has the calls of a desk end at a function, without a network.
func pipeTo(d *registry, serve func(net.Conn)) {
	d.transports.byKey = map[string]http.RoundTripper{"": &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			go func() {
				defer there.Close()
				serve(there)
			}()
			return here, nil
		}}}
}

// TestDeadline: whatever the other side does, a call ends after 10 s.
func TestDeadline(t *testing.T) {
	t.Parallel()
	request := func(c net.Conn) bool {
		req, err := http.ReadRequest(bufio.NewReader(c))
		return err == nil && req.Body.Close() == nil
	}
	for name, serve := range map[string]func(net.Conn){
		"deaf": func(c net.Conn) { time.Sleep(time.Hour) },
		"mute": func(c net.Conn) { request(c); time.Sleep(time.Hour) },
		"slow": func(c net.Conn) {
			if request(c); true {
				for _, b := range []byte("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + strings.Repeat(" ", 100)) {
					if _, err := c.Write([]byte{b}); err != nil {
						return
					}
					time.Sleep(time.Second)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &registry{o: Options{AllowInsecure: true}}
				pipeTo(d, serve)
				begin := time.Now()
				_, err := d.do(t.Context(), call{op: "ask", identity: "somebody", method: http.MethodPost, url: "http://tokens.example.com/x?secret=" +
					canary, body: "a=b"})
				if took := time.Since(begin); took != callTimeout || netx.KindOf(err) != netx.Unavailable ||
					!strings.Contains(err.Error(), "within 10s, asked by somebody at POST http://tokens.example.com/x") ||
					strings.Contains(err.Error(), canary) {
					t.Errorf("after %v: %v", took, err)
				}
				time.Sleep(2 * time.Hour) // the other side ends
			})
		})
	}
}

// TestCancelled: who asks may go away, and is told why.
func TestCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, lost := &registry{}, errors.New("the lease is lost")
		pipeTo(d, func(net.Conn) { time.Sleep(time.Hour) })
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(lost) })
		_, err := d.do(ctx, call{op: "ask", method: http.MethodGet, url: "https://tokens.example.com/x"})
		if netx.KindOf(err) != netx.Cancelled || !errors.Is(err, lost) {
			t.Error(err)
		}
		time.Sleep(2 * time.Hour)
	})
}

// TestRefusedCalls: what is not asked at all.
func TestRefusedCalls(t *testing.T) {
	t.Parallel()
	d := &registry{}
	pipeTo(d, func(net.Conn) { t.Error("somebody was asked") })
	for _, url := range []string{"", "x", "ftp://h/x", "https://user:" + canary + "@h/x", "http://tokens.example.com/x", "https://[::1/x"} {
		if _, err := d.do(t.Context(), call{op: "ask", method: http.MethodGet, url: url}); netx.KindOf(err) != netx.Invalid {
			t.Errorf("%s: %v", url, err)
		} else if strings.Contains(err.Error(), canary) {
			t.Errorf("a password is told: %v", err)
		}
	}
}
