package kube

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A dead peer has to be found within 60 s, because a silent watch looks like a
// quiet server. HTTP/2 connections are pinged; HTTP/1.1 connections have TCP
// keep-alives. Both take 45 s at most.
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
	files   tlsFiles
	proxy   func(*http.Request) (*url.URL, error)
	log     *slog.Logger
	current atomic.Pointer[http.Transport]

	mu    sync.Mutex // guards stamp
	stamp string     // of the files that were tried last, good or bad
}

func newPool(files tlsFiles, proxy func(*http.Request) (*url.URL, error), log *slog.Logger) (*pool, error) {
	p := &pool{files: files, proxy: proxy, log: log, stamp: files.stamp()}
	cfg, err := files.config()
	if err != nil {
		return nil, err
	}
	p.current.Store(p.transport(cfg))
	return p, nil
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
	p.reload()
	return p.current.Load().RoundTrip(req)
}

// reload compares the files with those in use. Files that cannot be used leave the former
// ones in place until they change again.
func (p *pool) reload() {
	stamp := p.files.stamp()
	p.mu.Lock()
	defer p.mu.Unlock()
	if stamp == p.stamp {
		return
	}
	p.stamp = stamp
	cfg, err := p.files.config()
	if err != nil {
		p.log.Warn("TLS files unusable, keeping the former ones", "err", err)
		return
	}
	p.current.Swap(p.transport(cfg)).CloseIdleConnections()
	p.log.Info("TLS files reloaded")
}

func (p *pool) close() { p.current.Load().CloseIdleConnections() }
