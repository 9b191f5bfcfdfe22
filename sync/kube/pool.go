package kube

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
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

// pool is one set of connections. It reads the TLS files again when they change and then
// uses new connections. Running calls end on the old ones, watches when their time is over.
type pool struct {
	proxy   func(*http.Request) (*url.URL, error)
	newest  Reloaded[*http.Transport]
	current atomic.Pointer[http.Transport]
}

func newPool(files tlsFiles, proxy func(*http.Request) (*url.URL, error), log *slog.Logger) (*pool, error) {
	p := &pool{proxy: proxy}
	p.newest.Paths, p.newest.Log = files.paths(), log
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
	return newest.RoundTrip(req)
}

func (p *pool) close() {
	if t := p.current.Load(); t != nil {
		t.CloseIdleConnections()
	}
}
