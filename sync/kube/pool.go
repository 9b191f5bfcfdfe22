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
	mostRetired   = 8 // transports of former certificates that Close still reaches
	connsPerHost  = 100
	http2OffByEnv = "DISABLE_HTTP2" // client-go's own switch, for proxies that break HTTP/2
)

// checkFilesEvery is how often the TLS files are checked while a watch is open, because
// there may be no other requests.
const checkFilesEvery = 30 * time.Second

// pool is one set of connections. It reads the TLS files again when they change and then
// uses new connections. Running calls end on the old ones; watches are cut, because they
// would otherwise keep the former trust for as long as they last.
type pool struct {
	files   tlsFiles
	proxy   func(*http.Request) (*url.URL, error)
	log     *slog.Logger
	current atomic.Pointer[http.Transport]

	mu      sync.Mutex // guards the fields below
	stamp   string     // of the files that were tried last, good or bad
	retired []*http.Transport
	watches map[*watchBody]struct{} // that run on connections of the present files
}

func newPool(files tlsFiles, proxy func(*http.Request) (*url.URL, error), log *slog.Logger) (*pool, error) {
	p := &pool{files: files, proxy: proxy, log: log, stamp: files.stamp(), watches: map[*watchBody]struct{}{}}
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
	if isWatch(req) {
		return p.watch(req)
	}
	return p.current.Load().RoundTrip(req)
}

// watchBody is the answer to a watch, which lasts. It ends when the files change.
type watchBody struct {
	io.ReadCloser
	pool *pool
	cut  context.CancelFunc
	look *time.Timer
}

// Close implements io.Closer.
func (b *watchBody) Close() error {
	b.pool.mu.Lock()
	delete(b.pool.watches, b)
	b.pool.mu.Unlock()
	b.look.Stop()
	b.cut()
	return b.ReadCloser.Close()
}

func (p *pool) watch(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	transport := p.current.Load()
	resp, err := transport.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	b := &watchBody{ReadCloser: resp.Body, pool: p, cut: cancel}
	p.mu.Lock()
	defer p.mu.Unlock()
	b.look = time.AfterFunc(checkFilesEvery, func() {
		p.reload()
		if ctx.Err() == nil {
			b.look.Reset(checkFilesEvery)
		}
	})
	p.watches[b] = struct{}{}
	if transport != p.current.Load() { // the files have changed meanwhile
		cancel()
	}
	resp.Body = b
	return resp, nil
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
	old := p.current.Swap(p.transport(cfg))
	for b := range p.watches {
		b.cut()
	}
	clear(p.watches)
	old.CloseIdleConnections()
	p.retired = append(p.retired, old)
	if len(p.retired) > mostRetired {
		p.retired = p.retired[1:]
	}
	p.log.Info("TLS files reloaded")
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current.Load().CloseIdleConnections()
	for _, old := range p.retired {
		old.CloseIdleConnections()
	}
}
