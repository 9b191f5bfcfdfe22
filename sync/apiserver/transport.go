package apiserver

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// local serves requests inside the process: HTTP over pipes in memory.
type local struct {
	server http.Server
	client http.Transport
	conns  chan net.Conn
	life   context.Context // ends with the Server
}

// Transport returns a transport to this server without a socket. It does not
// authenticate: code in this process can open the state file anyway.
func (s *Server) Transport() http.RoundTripper {
	s.serveLocal.Do(func() { go func() { _ = s.local.server.Serve(s.local) }() })
	return &s.local.client
}

func (s *Server) newLocal() *local {
	l := &local{conns: make(chan net.Conn), life: s.life}
	l.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { s.serve(w, req, time.Time{}) })
	l.server.ErrorLog = slog.NewLogLogger(s.log.Handler(), slog.LevelError) // of panics
	l.client.DialContext = l.dial
	l.client.MaxIdleConnsPerHost = 100
	l.client.IdleConnTimeout = 90 * time.Second
	l.client.DisableCompression = true
	return l
}

// stop gives requests in flight some time to finish.
func (l *local) stop() error {
	l.client.CloseIdleConnections() // the server would wait for new ones without a request
	return shutdown(&l.server)
}

func (l *local) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.life.Done():
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Accept implements net.Listener.
func (l *local) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.life.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *local) Close() error { return nil }

// Addr implements net.Listener.
func (l *local) Addr() net.Addr { return &net.UnixAddr{Name: "in-process", Net: "unix"} }
