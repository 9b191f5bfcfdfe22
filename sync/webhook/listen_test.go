package webhook

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener inside the process, so that a test has the time in its hands.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{} // closed by Close
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

// dial opens a connection and returns the client's side.
func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

// serving runs a receiver on pipes in a bubble.
func serving(t *testing.T, fn func(t *testing.T, g *rig, p *pipes)) {
	t.Helper()
	g := newRig(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(context.Background())
		p, ended := newPipes(), make(chan error, 1)
		go func() { ended <- g.Serve(ctx, p) }()
		fn(t, g, p)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// drain reads until the other side closes and says after how long it did.
func drain(c net.Conn, since time.Time) (text string, after time.Duration) {
	data, _ := io.ReadAll(c) // the end of the connection is what is waited for
	return string(data), time.Since(since)
}

func TestSlowClientsTimeOut(t *testing.T) {
	t.Parallel()
	head := "POST " + boards + " HTTP/1.1\r\nHost: x\r\nX-GitHub-Event: push\r\nX-Hub-Signature-256: sha256=" + strings.Repeat("0", 64) +
		"\r\n"
	tests := []struct {
		name, sent, answer string
		after              time.Duration
	}{
		{name: "nothing", after: 10 * time.Second},
		{name: "half a header", sent: head, after: 10 * time.Second},
		{name: "half a body", sent: head + "Content-Length: 1000\r\n\r\n{", answer: "HTTP/1.1 408 ", after: requestTimeout},
		{name: "half a chunk", sent: head + "Transfer-Encoding: chunked\r\n\r\nff\r\n{", answer: "HTTP/1.1 408 ", after: requestTimeout},
		{name: "headers without end", sent: head + "X-Fill: " + strings.Repeat("x", 2*maxHeaderBytes), answer: "HTTP/1.1 431 "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			serving(t, func(t *testing.T, g *rig, p *pipes) {
				c, start := p.dial(), time.Now()
				go io.WriteString(c, tt.sent)
				answer, after := drain(c, start)
				c.Close()
				if !strings.HasPrefix(answer, tt.answer) || tt.answer == "" && answer != "" || after < tt.after || after > tt.after+2*time.Second {
					t.Errorf("%q after %s, want %q after %s", answer, after, tt.answer, tt.after)
				}
				if !g.room.TryAcquire(bodyRoom) {
					t.Error("the room for bodies is not given back")
				}
			})
		})
	}
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	serving(t, func(t *testing.T, _ *rig, p *pipes) {
		c, r := p.dial(), (*http.Response)(nil)
		go io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		in := bufio.NewReader(c)
		r, err := http.ReadResponse(in, nil)
		if err != nil || r.StatusCode != 404 {
			t.Fatalf("%v %v", r, err)
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := in.ReadByte(); err != io.EOF || time.Since(start) != idleTimeout {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		c.Close()
	})
}

// TestForgedRequestsFillNoLog sends forged requests for three minutes.
func TestForgedRequestsFillNoLog(t *testing.T) {
	t.Parallel()
	serving(t, func(t *testing.T, g *rig, p *pipes) {
		for range 180 {
			c := p.dial()
			go io.WriteString(c, "POST "+boards+" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			if answer, _ := drain(c, time.Now()); !strings.HasPrefix(answer, "HTTP/1.1 401 ") {
				t.Fatalf("%q", answer)
			}
			c.Close()
			<-time.After(time.Second) // of the bubble
		}
		synctest.Wait()
		if lines := strings.Count(g.log.String(), "\n"); lines != 3 {
			t.Errorf("%d lines:\n%s", lines, &g.log)
		}
	})
}

// dialled is a connection from an address of its own.
type dialled struct {
	net.Conn
	from string
}

func (d dialled) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(d.from))
}

func TestGate(t *testing.T) {
	t.Parallel()
	p := newPipes()
	ln := Gate(p, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
	accepted := make(chan net.Conn, 2*maxConnections)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	})
	// knock opens n connections and counts those that are turned away.
	knock := func(n int, from string) (turned int) {
		for range n {
			client, server := net.Pipe()
			before := len(accepted)
			p.conns <- dialled{server, from}
			// Either it is accepted or its other side ends.
			ended := make(chan error, 1)
			go func() { _, err := client.Read(make([]byte, 1)); ended <- err }()
			for len(accepted) == before {
				select {
				case <-ended:
					turned++
				case <-time.After(time.Millisecond):
					continue
				}
				break
			}
		}
		return turned
	}
	if n := knock(maxPerClient+5, "203.0.113.7:1"); n != 5 {
		t.Errorf("%d connections of one address too many were turned away, want 5", n)
	}
	if n := knock(maxConnections-maxPerClient, "10.0.0.1:1"); n != 0 {
		t.Errorf("%d connections of a proxy were turned away", n)
	}
	// All places are taken: the next one waits, and goes in when another ends.
	client, server := net.Pipe()
	select {
	case p.conns <- dialled{server, "10.0.0.1:1"}:
		t.Error("one connection too many is accepted")
	case <-time.After(10 * time.Millisecond):
	}
	for range maxConnections {
		c := <-accepted
		if err := errors.Join(c.Close(), c.Close()); err != nil { // counts once
			t.Error(err)
		}
	}
	p.conns <- dialled{server, "10.0.0.1:1"}
	(<-accepted).Close()
	client.Close()
	if n := knock(1, "203.0.113.7:1"); n != 0 {
		t.Error("the places are not given back")
	}
	(<-accepted).Close()
	ln.Close()
	running.Wait()
	if open := ln.(*gate).open; len(open) != 0 {
		t.Errorf("%d addresses are counted", len(open))
	}
}
