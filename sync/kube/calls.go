package kube

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/sync/text"
)

// What every call of a Client goes through, from the outside in: callTransport
// (deadline, reachability, foreign answers), authTransport, wireTransport (server
// clock, user agent), what a kubeconfig adds, and the pool of connections.

const (
	// watchHeader bounds the wait for the header of a watch.
	watchHeader = 45 * time.Second
	// mostBody bounds the answer to a call, in bytes: far above any list of
	// ours, far below what would take the host down.
	mostBody = 256 << 20
	// mostEvent bounds one event of a watch.
	mostEvent = 16 << 20
	// watchOvertime is how much longer than agreed, by timeoutSeconds, a watch may last.
	watchOvertime = 30 * time.Second
	// mostStatus bounds the answers that are read to add Retry-After to them.
	mostStatus = 64 << 10
)

type callKey struct{}

// call changes how one call is made and takes a note of how it ended. It
// travels in the context, because client-go stands between.
type call struct {
	timeout time.Duration // with the answer, for long lists over slow links; 0 = that of the client
	accept  string        // the form in which the answer is wanted, "" = client-go's
	err     error         // of the last round trip; client-go hides some
}

// Accepting returns a context whose calls ask for their answer in a form; see http's Accept.
func Accepting(ctx context.Context, media string) context.Context {
	return withCall(ctx, &call{accept: media})
}

func withCall(ctx context.Context, c *call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// callTransport gives each call its deadline and keeps the health of the server.
type callTransport struct {
	next         http.RoundTripper
	timeout      time.Duration
	availability *availability
}

func (t *callTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	note, _ := req.Context().Value(callKey{}).(*call)
	if note == nil {
		note = new(call)
	}
	resp, err := t.within(req, note)
	note.err = err
	return resp, err
}

func (t *callTransport) within(req *http.Request, note *call) (*http.Response, error) {
	parent, watch := req.Context(), isWatch(req)
	limit := cmp.Or(note.timeout, t.timeout)
	if watch {
		limit = watchHeader
	}
	ctx, cancel := context.WithCancelCause(parent)
	timer := time.AfterFunc(limit, func() { cancel(&timeoutError{After: limit}) })
	begin := time.Now()
	req = req.Clone(ctx)
	if note.accept != "" {
		req.Header.Set("Accept", note.accept)
	}
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		timer.Stop()
		err = causeOf(ctx, parent, err)
		cancel(nil)
		if parent.Err() == nil {
			t.failed(err)
		}
		return nil, err
	}
	if !watch { // the head of a watch comes when the server sees fit
		t.availability.latency.Store(int64(time.Since(begin)))
	} else if timer.Stop() {
		if seconds, _ := strconv.Atoi(req.URL.Query().Get("timeoutSeconds")); seconds > 0 {
			timer.Reset(time.Duration(seconds)*time.Second + watchOvertime)
		}
	}
	body := &callBody{ReadCloser: resp.Body, ctx: ctx, parent: parent, done: func() {
		timer.Stop()
		cancel(nil)
	}}
	if watch {
		body.left = mostEvent
	} else {
		body.failed, body.left = t.failed, mostBody
	}
	resp.Body = body
	return t.answered(req, resp)
}

// causeOf names our own deadline, which net/http reports as a cancellation.
func causeOf(ctx, parent context.Context, err error) error {
	var timeout *timeoutError
	if parent.Err() == nil && errors.As(context.Cause(ctx), &timeout) {
		return timeout
	}
	return err
}

func (t *callTransport) failed(err error) {
	after, _ := RetryAfter(err)
	t.availability.fail(err, after)
}

// answered judges an answer by its status.
func (t *callTransport) answered(req *http.Request, resp *http.Response) (*http.Response, error) {
	switch resp.StatusCode {
	case http.StatusTooManyRequests: // it answers; only this call has to wait
		return resp, passRetryAfter(resp)
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		after, _ := retryAfterOf(resp)
		t.availability.fail(fmt.Errorf("the server answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode)), after)
		return resp, passRetryAfter(resp)
	default: // an answer like any other
	}
	if resp.StatusCode < 300 && isHTML(resp) {
		resp.Body.Close()
		err := &NotKubernetesError{URL: text.Redact(req.URL.Scheme + "://" + req.URL.Host + req.URL.Path), Status: resp.StatusCode,
			Got: "an HTML page"}
		t.availability.fail(err, 0)
		return nil, err
	}
	t.availability.succeed()
	return resp, nil
}

// passRetryAfter lets the Retry-After header survive client-go, which reads
// seconds only and forgets them when the body is a Status without them.
func passRetryAfter(resp *http.Response) error {
	after, ok := retryAfterOf(resp)
	if !ok {
		resp.Header.Del("Retry-After")
		return nil
	}
	seconds := int64((after + time.Second - 1) / time.Second)
	resp.Header.Set("Retry-After", strconv.FormatInt(seconds, 10))
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostStatus))
	if err != nil {
		resp.Body.Close()
		return err
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Kind == "Status" {
		if status.Details == nil {
			status.Details = &metav1.StatusDetails{}
		}
		status.Details.RetryAfterSeconds = cmp.Or(status.Details.RetryAfterSeconds, int32(seconds))
		if body, err = json.Marshal(status); err != nil {
			return err
		}
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(body), resp.Body}
	resp.ContentLength = int64(len(body))
	resp.Header.Del("Content-Length")
	return nil
}

// callBody ends the deadline of a call with its body and names it when it was the reason of a
// broken one.
type callBody struct {
	io.ReadCloser
	ctx, parent context.Context
	failed      func(error) // nil for watches, whose end is normal
	left        int64       // bytes of the answer, of a watch until the end of the event
	once        sync.Once
	done        func()
}

func (b *callBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.failed == nil && bytes.IndexByte(p[:n], '\n') >= 0 {
		b.left = mostEvent
	}
	if b.left < 0 {
		return 0, errTooLarge
	}
	if err == nil || err == io.EOF {
		return n, err
	}
	err = causeOf(b.ctx, b.parent, err)
	if b.failed != nil && b.parent.Err() == nil {
		b.failed(err)
	}
	return n, err
}

// errTooLarge ends an answer of more than mostBody or mostEvent.
var errTooLarge = errors.New("the answer is too large")

func (b *callBody) Close() error {
	err := b.ReadCloser.Close()
	b.once.Do(b.done)
	return err
}

// wireTransport stands next to the network: round trips that it measures hold no wait for a token.
type wireTransport struct {
	next     http.RoundTripper
	clock    *Clock
	requests *requests
	agent    string
}

func (t *wireTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Header.Get("User-Agent") == "" {
		req = req.Clone(req.Context())
		req.Header.Set("User-Agent", t.agent)
	}
	sent := monotonic()
	resp, err := t.next.RoundTrip(req)
	t.requests.add(req, resp)
	// A redirect, an error of 5xx and HTML may be a proxy's or a captive portal's, whose clock is
	// another one.
	if err == nil && (resp.StatusCode < 300 || resp.StatusCode >= 400 && resp.StatusCode < 500) && !isHTML(resp) {
		t.clock.observe(resp.Header, sent, monotonic())
	}
	return resp, err
}

// splitTransport keeps watches on connections of their own: a proxy that
// resets long ones takes everything on the same connection with it.
type splitTransport struct{ calls, watches http.RoundTripper }

func (t splitTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if isWatch(req) {
		return t.watches.RoundTrip(req)
	}
	return t.calls.RoundTrip(req)
}

func isWatch(req *http.Request) bool {
	if req.Method != http.MethodGet || req.URL.RawQuery == "" {
		return false
	}
	value := req.URL.Query().Get("watch")
	return value == "true" || value == "1"
}

func isHTML(resp *http.Response) bool {
	return strings.HasPrefix(strings.ToLower(strings.TrimSpace(resp.Header.Get("Content-Type"))), "text/html")
}

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

// checkFilesEvery is how often the TLS files are checked while a watch is open, because there may
// be no other requests.
const checkFilesEvery = 15 * time.Second

// pool is one set of connections. It reads the TLS files again when they change and then uses new
// connections. Running calls end on the old ones; watches are cut, because they would keep the
// former trust for as long as they last.
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
		for Sleep(ctx, checkFilesEvery) == nil {
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

func (b *watchBody) Close() error {
	b.cut()
	return b.ReadCloser.Close()
}
