package kube

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

// A dead peer has to be found within 60 s, because a silent watch looks like a quiet server. HTTP/2
// connections are pinged; HTTP/1.1 connections have TCP keep-alives. Both take 45 s at most.
const (
	pingAfter     = 30 * time.Second // of silence on an HTTP/2 connection
	pingTimeout   = 15 * time.Second
	keepIdle      = 15 * time.Second
	keepInterval  = 10 * time.Second
	keepCount     = 3
	dialTimeout   = 10 * time.Second
	idleTimeout   = 90 * time.Second
	connsPerHost  = 100
	http2OffByEnv = "DISABLE_HTTP2" // client-go's own switch, for proxies that break HTTP/2
)

// checkFilesEvery is how often the TLS files are checked while a watch is open, because there may be no other
// requests.
const checkFilesEvery = 15 * time.Second

// pool is one set of connections. It reads the TLS files again when they change and then uses new connections. Running
// calls end on the old ones; watches are cut, because they would keep the former trust for as long as they last.
type pool struct {
	proxy   func(*http.Request) (*url.URL, error)
	newest  Reloaded[*http.Transport]
	current atomic.Pointer[http.Transport]
}

func newPool(files tlsFiles, proxy func(*http.Request) (*url.URL, error), log *slog.Logger) (*pool, error) {
	p := &pool{proxy: proxy}
	p.newest.Log = log
	p.newest.Paths = slices.DeleteFunc([]string{files.ca.path, files.cert.path, files.key.path}, func(path string) bool { return path == "" })
	p.newest.Read = func() (*http.Transport, error) {
		cfg, err := files.config()
		if err != nil {
			return nil, err
		}
		return p.transport(cfg), nil
	}
	_, err := p.newest.Get()
	return p, err
}

func (p *pool) transport(cfg *tls.Config) *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: keepIdle, Interval: keepInterval, Count: keepCount}}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(os.Getenv(http2OffByEnv) == "")
	return &http.Transport{
		Proxy:               p.proxy,
		DialContext:         dialer.DialContext,
		TLSClientConfig:     cfg,
		TLSHandshakeTimeout: dialTimeout,
		Protocols:           protocols,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		MaxIdleConnsPerHost: connsPerHost,
		IdleConnTimeout:     idleTimeout,
	}
}

// RoundTrip implements http.RoundTripper.
func (p *pool) RoundTrip(req *http.Request) (*http.Response, error) {
	newest, err := p.newest.Get()
	if err != nil {
		return nil, err
	}
	if former := p.current.Swap(newest); former != nil && former != newest {
		former.CloseIdleConnections()
	}
	if isWatch(req) && len(p.newest.Paths) > 0 {
		return p.watch(req, newest)
	}
	return newest.RoundTrip(req)
}

// watch opens a watch that ends when the files have changed.
func (p *pool) watch(req *http.Request, transport *http.Transport) (*http.Response, error) {
	ctx, cut := context.WithCancel(req.Context())
	resp, err := transport.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cut()
		return nil, err
	}
	resp.Body = &watchBody{resp.Body, cut}
	go func() {
		defer cut()
		for {
			select {
			case <-time.After(checkFilesEvery):
			case <-ctx.Done():
				return
			}
			if newest, err := p.newest.Get(); err == nil && newest != transport {
				return
			}
		}
	}()
	return resp, nil
}

// watchBody is the answer to a watch.
type watchBody struct {
	io.ReadCloser
	cut context.CancelFunc
}

// Close implements io.Closer.
func (b *watchBody) Close() error {
	b.cut()
	return b.ReadCloser.Close()
}
