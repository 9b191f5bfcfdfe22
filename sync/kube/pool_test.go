package kube

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pipeListener accepts in-memory connections, which work in a bubble.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	select {
	case <-l.done:
	default:
		close(l.done)
	}
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443} }

// deadConn is a connection whose packets are dropped once dead is set: writes
// vanish, nothing arrives, nobody says so.
type deadConn struct {
	net.Conn
	dead *atomic.Bool
}

func (c *deadConn) Write(p []byte) (int, error) {
	if c.dead.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// quietWatch runs fn with the answer to a watch that sends nothing, over connections that dead cuts
// off.
func quietWatch(t *testing.T, files TLS, fn func(t *testing.T, watch io.Reader, dead *atomic.Bool)) {
	t.Helper()
	ca := newAuthority(t)
	cert, key := ca.issue(t, "server")
	pair := load(t, cert, key)
	synctest.Test(t, func(t *testing.T) {
		listener := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
		server := &http.Server{ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{*pair.Load()}, NextProtos: []string{"h2"},
				Time: func() time.Time { return time.Unix(0, 0) }},
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				flush(w)
				<-r.Context().Done()
			})}
		served := make(chan error, 1)
		go func() { served <- server.ServeTLS(listener, "", "") }()

		client := connect(t, Config{Server: "https://127.0.0.1", Logger: slog.New(slog.DiscardHandler), TLS: files})
		var dead atomic.Bool
		for _, p := range client.pools {
			p.newest.value.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
				near, far := net.Pipe()
				listener.conns <- far
				return &deadConn{near, &dead}, nil
			}
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, client.url()+"/apis/x/v1/things?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.ProtoMajor != 2 {
			t.Fatalf("protocol %s", resp.Proto)
		}
		fn(t, resp.Body, &dead)
		resp.Body.Close()
		client.Close()
		server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
		synctest.Wait()
	})
}

// A connection that is half open is found within 60 s by pings, though a watch on it has no
// deadline.
func TestHalfOpenConnectionIsFound(t *testing.T) {
	quietWatch(t, TLS{}, func(t *testing.T, watch io.Reader, dead *atomic.Bool) {
		pass(10 * time.Minute) // pings keep a quiet watch alive
		start := time.Now()
		dead.Store(true)
		_, err := io.ReadAll(watch)
		if took := time.Since(start); err == nil || took > time.Minute {
			t.Errorf("found after %v: %v", took, err)
		}
	})
}

// A watch ends soon after the TLS files change, and not before.
func TestWatchEndsWithItsTLSFiles(t *testing.T) {
	dir, ca := t.TempDir(), newAuthority(t)
	put := func() {
		cert, key := ca.issue(t, "client")
		write(t, dir, map[string][]byte{"cert": cert, "key": key})
	}
	put()
	files := TLS{CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key")}
	quietWatch(t, files, func(t *testing.T, watch io.Reader, _ *atomic.Bool) {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = io.ReadAll(watch)
		}()
		pass(10 * time.Minute)
		select {
		case <-ended:
			t.Error("the watch ended though nothing changed")
		default:
		}
		start := time.Now()
		put()
		<-ended
		if took := time.Since(start); took > checkFilesEvery {
			t.Errorf("ended after %v", took)
		}
	})
}
