package netx

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Bounds of a Client.
const (
	// MaxAnswer is more than any API that is called here answers. Unit: bytes.
	MaxAnswer     = 4 << 20
	mostRedirects = 3
	// idleConnection is more than the pauses between the calls of one task.
	idleConnection = 30 * time.Second
	maxHosts       = 64 // sets of certificates with a transport; hosts with a known clock
	// nearTimeout bounds the connection to a metadata server: outside of a cloud its address does not
	// answer.
	nearTimeout = 2 * time.Second
	// defaultRetryAfter is the wait after a rate limit without a stated time.
	// Source: GitHub's rules for its secondary limits.
	defaultRetryAfter = time.Minute
	// minSkew is the difference of clocks that may be why a proof is refused. An answer gives it to
	// the second.
	minSkew = 30 * time.Second
)

// Client makes calls to APIs of Git hosts and of token providers. Each call is bounded in time and
// in bytes. Redirects lead to the same scheme and host only, because a request holds secrets. Safe
// for concurrent use.
type Client struct {
	Guard         Guard
	AllowInsecure bool // secrets may go over plain http
	UserAgent     string
	Timeout       time.Duration     // of one call with its redirects
	Now           func() time.Time  // the clock while that of a host is unknown; nil = time.Now
	Transport     http.RoundTripper // for all calls; nil = one for each Trust
	Idle          time.Duration     // after which a connection that is not used is closed; 0 = idleConnection
	Silence       time.Duration     // of a host that has got a request; 0 = the call decides

	asked      CertificateRequests
	mu         sync.Mutex // guards what follows; never held over a call
	transports map[string]*http.Transport
	skews      map[string]time.Duration // clock of a host less the local one
}

// Trust is how a host is reached: its authorities, a client certificate, a proxy.
// TransportKey is equal for those that may share connections.
type Trust interface {
	TransportKey() string
	TLS() (*tls.Config, error)
	GetProxy() *Proxy
}

// Call is one request.
type Call struct {
	Op, Identity string // for people, as in Error
	Method, URL  string
	Header       map[string]string
	Body         []byte
	Open         bool // nothing in it is secret
	Unread       bool // what it answers does not matter, so that neither a page nor half an answer is a failure
	Plain        bool // its errors are plain text
	Near         bool // to a metadata server: without a proxy and the Guard, over http
	Trust        Trust
	Secrets      []string // never repeated in an error
}

// Answer is a successful answer.
type Answer struct {
	Header http.Header
	Body   []byte
	At     time.Time // Date of the host, the local clock without one
}

// Fail returns the error of a call. A query is no part of its endpoint.
func (c Call) Fail(kind ErrorKind, status int, err error) *Error {
	endpoint, _, _ := strings.Cut(c.URL, "?")
	return &Error{Kind: kind, Op: c.Op, Identity: c.Identity, Endpoint: c.Method + " " + SafeText(endpoint), Status: status, Err: err}
}

// Clean makes foreign text safe to quote, without the secrets of the call.
func (c Call) Clean(text string) string { return SafeText(text, c.Secrets...) }

// Do makes a call. Every error is an *Error.
func (c *Client) Do(parent context.Context, call Call) (Answer, error) {
	to, err := url.Parse(call.URL)
	switch {
	case err != nil || to.Host == "" || to.User != nil || to.Scheme != "https" && to.Scheme != "http":
		return Answer{}, call.Fail(Invalid, 0, errors.New("its URL is not an http or https URL"))
	case to.Scheme == "http" && !call.Near && !call.Open && !c.AllowInsecure:
		return Answer{}, call.Fail(Invalid, 0, errors.New("credentials would go over plain http"))
	}
	if err := c.Guard.Host(to.Hostname()); err != nil && !call.Near {
		return Answer{}, call.Fail(Invalid, 0, err)
	}
	key, transport, err := c.transport(call)
	if err != nil {
		return Answer{}, call.Fail(Invalid, 0, err)
	}
	key += " " + to.Host
	ctx, cancel := context.WithTimeout(c.asked.Watch(parent, key), c.Timeout)
	defer cancel()
	for range mostRedirects + 1 {
		res, data, err := c.send(ctx, transport, call, to)
		switch {
		case err != nil:
			return Answer{}, c.unanswered(parent, call, to, err, c.asked.Hint(key))
		case len(data) > MaxAnswer:
			return Answer{}, call.Fail(Protocol, res.StatusCode, fmt.Errorf("the answer has more than %d bytes", MaxAnswer))
		case res.StatusCode < 300 || res.StatusCode >= 400:
			return c.classify(call, res, data, c.asked.Hint(key))
		}
		if to, err = redirect(to, res.Header.Get("Location")); err != nil {
			return Answer{}, call.Fail(Protocol, res.StatusCode, errors.New(call.Clean(err.Error())))
		}
	}
	return Answer{}, call.Fail(Protocol, 0, fmt.Errorf("it redirects more than %d times", mostRedirects))
}

// transport returns that of a call, and its key.
func (c *Client) transport(call Call) (string, http.RoundTripper, error) {
	key := call.Trust.TransportKey()
	if call.Near {
		key = "near"
	}
	if c.Transport != nil {
		return key, c.Transport, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.transports[key]; ok {
		return key, known, nil
	}
	config, err := call.Trust.TLS()
	if err != nil {
		return "", nil, err
	}
	made := c.Guard.Transport(config, call.Trust.GetProxy())
	if call.Near { // the Guard refuses metadata servers
		made = &http.Transport{TLSClientConfig: config, DialContext: (&net.Dialer{Timeout: nearTimeout}).DialContext}
	}
	made.ForceAttemptHTTP2 = true
	made.MaxIdleConnsPerHost = 4
	made.IdleConnTimeout = cmp.Or(c.Idle, idleConnection)
	made.ResponseHeaderTimeout = c.Silence
	if c.transports == nil || len(c.transports) >= maxHosts {
		c.closeIdle()
		c.transports = map[string]*http.Transport{}
	}
	c.transports[key] = made
	return key, made, nil
}

// RoundTripper returns the connections for a Trust, for answers that Do would not hold.
func (c *Client) RoundTripper(trust Trust) (http.RoundTripper, error) {
	_, made, err := c.transport(Call{Trust: trust})
	return made, err
}

// Close releases idle connections.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeIdle()
}

func (c *Client) closeIdle() {
	for _, transport := range c.transports {
		transport.CloseIdleConnections()
	}
}

// send makes one request and reads the answer, at most one byte more than MaxAnswer.
func (c *Client) send(ctx context.Context, transport http.RoundTripper, call Call, to *url.URL) (*http.Response, []byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, call.Method, to.String(), bytes.NewReader(call.Body))
	if err != nil {
		return nil, nil, errors.New("its URL cannot be used")
	}
	for k, v := range call.Header {
		req.Header.Set(k, v)
	}
	req.Header.Set("User-Agent", cmp.Or(c.UserAgent, "limpet"))
	res, err := transport.RoundTrip(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	if at, err := http.ParseTime(res.Header.Get("Date")); err == nil && !call.Near { // what is near may use the clock of this host
		c.SetClock(to.Host, at)
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, MaxAnswer+1))
	if call.Unread && res.StatusCode >= 200 && res.StatusCode < 300 {
		return res, nil, nil // it was taken, and would be sent twice
	}
	return res, data, err
}

// redirect returns where a redirect leads, if that is the same scheme and host.
func redirect(from *url.URL, location string) (*url.URL, error) {
	to, err := url.Parse(location)
	if err != nil || location == "" {
		return nil, errors.New("it redirects to nowhere")
	}
	to = from.ResolveReference(to)
	if to.Scheme != from.Scheme || !strings.EqualFold(to.Host, from.Host) {
		return nil, fmt.Errorf("it redirects to another host, %s, and credentials do not go there", to.Hostname())
	}
	to.User, to.Fragment = nil, ""
	return to, nil
}

// unanswered returns why there was no answer.
func (c *Client) unanswered(parent context.Context, call Call, to *url.URL, err error, hint string) *Error {
	switch {
	case errors.Is(parent.Err(), context.DeadlineExceeded): // the caller's, which is shorter than ours
		return call.Fail(Unavailable, 0, errors.New("no complete answer in time"))
	case parent.Err() != nil:
		return call.Fail(Cancelled, 0, context.Cause(parent))
	case errors.Is(err, ErrForbidden):
		return call.Fail(Invalid, 0, errors.New(call.Clean(SteadyText(err))))
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("no complete answer within %v", c.Timeout)
	}
	return call.Fail(Unavailable, 0, errors.New(call.Clean(NoAnswer(err, to, hint))))
}

// kinds are those of the statuses that do not stand for themselves.
var kinds = map[int]ErrorKind{
	http.StatusUnauthorized:      Unauthorized,
	http.StatusForbidden:         Forbidden,
	http.StatusNotFound:          NotFound,
	http.StatusGone:              NotFound,
	http.StatusRequestTimeout:    Unavailable,
	http.StatusProxyAuthRequired: Unavailable,
}

// classify returns the answer, or the error that it means.
func (c *Client) classify(call Call, res *http.Response, data []byte, hint string) (Answer, error) {
	at, err := http.ParseTime(res.Header.Get("Date"))
	if err != nil {
		at = time.Now()
	}
	media, _, _ := strings.Cut(strings.ToLower(res.Header.Get("Content-Type")), ";")
	media = strings.TrimSpace(media)
	status := res.StatusCode
	if status >= 200 && status < 300 {
		if media == "text/html" && !call.Unread {
			return Answer{}, call.Fail(Unavailable, status,
				errors.New("expected an API, got an HTML page: log in to the network if it has a sign-on page, and check the URL"))
		}
		return Answer{res.Header, data, at}, nil
	}
	text := errorText(data)
	if call.Plain && media == "text/plain" {
		text = string(data)
	}
	what := fmt.Sprintf("%d %s", status, http.StatusText(status))
	if quoted := call.Clean(text); quoted != "" {
		what += ": " + quoted
	}
	if hint != "" && MayWantCertificate(status) {
		what += " (" + hint + ")"
	}
	kind := cmp.Or(kinds[status], Refused)
	if status >= 500 {
		kind = Unavailable
	}
	wait, limited := rateLimit(status, res.Header, text, at)
	if limited {
		kind = RateLimited
	}
	e := call.Fail(kind, status, errors.New(what))
	e.RetryAfter = wait
	return Answer{}, e
}

// rateLimit returns the wait that a host asks for, and whether the request hit a rate
// limit. GitHub reports that with 403 as well.
func rateLimit(status int, h http.Header, text string, date time.Time) (wait time.Duration, limited bool) {
	wait, stated := RetryAfter(h, date)
	spent := ""
	for _, prefix := range []string{"X-RateLimit-", "RateLimit-"} {
		if h.Get(prefix+"Remaining") == "0" {
			spent = h.Get(prefix + "Reset")
		}
	}
	if seconds, err := strconv.ParseInt(spent, 10, 64); err == nil && !stated {
		// A time, or with some proxies a number of seconds.
		if wait = time.Duration(min(max(seconds, 0), int64(maxRetryAfter/time.Second))) * time.Second; seconds > 1_000_000_000 {
			wait = time.Unix(min(seconds, 1<<40), 0).Sub(date)
		}
		wait, stated = min(max(wait, time.Second), maxRetryAfter), true
	}
	switch {
	case status == http.StatusTooManyRequests:
		limited = true
	case status == http.StatusForbidden:
		limited = stated || strings.Contains(strings.ToLower(text), "rate limit")
	case status < 500:
		return 0, false
	}
	if limited && !stated {
		wait = defaultRetryAfter
	}
	return wait, limited
}

// errorKeys are the members of error bodies in reading order, of Git hosts, OAuth and clouds.
var errorKeys = []string{"message", "error", "error_description", "detail", "errors", "code", "field"}

// errorText returns the texts of an error body, JSON or the XML of AWS, "" for all else.
// Azure adds ids and the time of each request, which are left out: statuses repeat the text.
func errorText(body []byte) string {
	const maxParts = 8
	var v any
	var aws struct {
		Code    string `xml:"Error>Code"`
		Message string `xml:"Error>Message"`
	}
	switch {
	case json.Unmarshal(body, &v) == nil:
	case xml.Unmarshal(body, &aws) == nil && aws.Code != "":
		return aws.Code + ": " + aws.Message
	}
	var parts []string
	var collect func(v any, depth int)
	collect = func(v any, depth int) {
		if depth > 4 || len(parts) >= maxParts {
			return
		}
		switch x := v.(type) {
		case string:
			if x, _, _ = strings.Cut(x, " Trace ID: "); x != "" && !slices.Contains(parts, x) {
				parts = append(parts, x)
			}
		case []any:
			for _, each := range x {
				collect(each, depth+1)
			}
		case map[string]any:
			known := false
			for _, key := range errorKeys {
				if inner, ok := x[key]; ok {
					known = true
					collect(inner, depth+1)
				}
			}
			if known || depth == 0 {
				return
			}
			// GitLab names the members that are wrong: {"url":["is blocked"]}.
			for _, key := range slices.Sorted(maps.Keys(x)) {
				parts = append(parts, key)
				collect(x[key], depth+1)
			}
		}
	}
	collect(v, 0)
	return strings.Join(parts, ": ")
}

// Following returns the RoundTripper of an http.Client that follows redirects. A request that has
// left the scheme and host of the first one goes without the login of that: without its
// Authorization and its address, and over the connections of other, which show no client
// certificate. A hop that returns gets none of them back. One from https to http is refused.
func (c *Client) Following(own, other Trust) (http.RoundTripper, error) {
	with, err := c.RoundTripper(own)
	if err != nil {
		return nil, err
	}
	without, err := c.RoundTripper(other)
	return redirected{with, without}, err
}

type redirected struct{ own, other http.RoundTripper }

// RoundTrip sends a request.
func (r redirected) RoundTrip(req *http.Request) (*http.Response, error) {
	for hop := req; hop.Response != nil; hop = hop.Response.Request {
		before := hop.Response.Request
		if before != nil {
			if err := CheckDowngrade(before.URL, hop.URL); err != nil {
				return nil, err
			}
		}
		if before == nil || !SameHost(before.URL, hop.URL) {
			req = req.Clone(req.Context())
			req.Header.Del("Authorization")
			req.Header.Del("Referer") // with the query of the first request
			return r.other.RoundTrip(req)
		}
	}
	return r.own.RoundTrip(req)
}

// CheckDowngrade refuses a redirect from https to plain http.
func CheckDowngrade(from, to *url.URL) error {
	if from.Scheme == "https" && to.Scheme != "https" {
		return fmt.Errorf("it redirects from https to plain http, to %s, which is not followed", to.Hostname())
	}
	return nil
}

// SameHost reports whether two URLs have the same scheme, host and port.
func SameHost(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(HostPort(a), HostPort(b))
}
