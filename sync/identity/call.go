package identity

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

// Bounds of a call.
const (
	// callTimeout bounds one call. Source: Flux.
	callTimeout = 10 * time.Second
	// nearTimeout bounds the way to a metadata server, which is on this host or
	// nowhere: off a cloud its address leads to silence.
	nearTimeout = 2 * time.Second
	// maxAnswer is far more than a token and what is said about it. Unit: bytes.
	maxAnswer = 256 << 10
	// clockOff is a difference of clocks that may be why a proof is refused. Source:
	// the 5 minutes that AWS and Entra ID bear, less the way.
	clockOff = 4 * time.Minute
	// longestLife bounds what an answer may say of a token's life.
	longestLife = 24 * time.Hour
	// mostLines bounds how many sets of certificates have a transport.
	mostLines = 16
)

// call is one request to who makes tokens.
type call struct {
	op       string // "get a token from the metadata server"
	identity string // for people
	method   string
	url      string
	header   map[string]string
	body     string            // a form
	near     bool              // metadata: without a proxy, over http
	also     int               // status that is an answer too; 0 = none
	tls      *auth.Credentials // nil = the system's authorities
	secrets  []string          // never repeated in an error
}

// lines are the transports, by certificates. They keep no connection: a token is
// asked for once an hour.
type lines struct {
	mu    sync.Mutex                 // guards known
	known map[string]*http.Transport // by auth.Credentials.Line
}

func (l *lines) to(c call, guard netx.Guard) (*http.Transport, error) {
	key := c.tls.Line()
	if c.near {
		key = "near"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if t, ok := l.known[key]; ok {
		return t, nil
	}
	config, err := c.tls.TLS()
	if err != nil {
		return nil, err
	}
	t := guard.Transport(config, c.tls.Way())
	if c.near { // metadata servers are where the guard lets nobody else go
		t = &http.Transport{TLSClientConfig: config, DialContext: (&net.Dialer{Timeout: nearTimeout}).DialContext}
	}
	t.DisableKeepAlives = true
	if l.known == nil || len(l.known) >= mostLines {
		l.known = map[string]*http.Transport{}
	}
	l.known[key] = t
	return t, nil
}

// answer is what was said with success.
type answer struct {
	header http.Header
	body   []byte
	at     time.Time // Date of the other side, the local clock without one
}

// do makes one call.
func (d *desk) do(parent context.Context, c call) (answer, error) {
	at, err := url.Parse(c.url)
	if err != nil || at.Host == "" || at.User != nil || at.Scheme != "https" && at.Scheme != "http" {
		return answer{}, c.fail(netx.Invalid, 0, errors.New("its URL is not an http or https URL"))
	} else if at.Scheme == "http" && !c.near && !d.o.AllowInsecure {
		return answer{}, c.fail(netx.Invalid, 0, errors.New("a secret would go over plain http"))
	} else if err := d.o.Guard.Host(at.Hostname()); err != nil && !c.near {
		return answer{}, c.fail(netx.Invalid, 0, err)
	}
	transport, err := d.lines.to(c, d.o.Guard)
	if err != nil {
		return answer{}, c.fail(netx.Invalid, 0, err)
	}
	var asked netx.Asked // there is a handshake for each call
	ctx, cancel := context.WithTimeout(asked.Watch(parent, ""), callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, c.method, c.url, strings.NewReader(c.body))
	if err != nil {
		return answer{}, c.fail(netx.Invalid, 0, errors.New("its URL cannot be asked"))
	}
	req.Header.Set("User-Agent", d.o.UserAgent)
	if c.body != "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for k, v := range c.header {
		req.Header.Set(k, v)
	}
	res, err := transport.RoundTrip(req) // follows nothing
	if err != nil {
		return answer{}, c.unanswered(parent, err, at, asked.Hint(""))
	}
	defer res.Body.Close()
	if !c.near { // what is near may go by the clock of this host
		d.learn(res)
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return answer{}, c.unanswered(parent, err, at, asked.Hint(""))
	case len(data) > maxAnswer:
		return answer{}, c.fail(netx.Protocol, res.StatusCode, fmt.Errorf("the answer has more than %d bytes", maxAnswer))
	}
	return c.judge(res, data, asked.Hint(""))
}

// judge reads what an answer means.
func (c call) judge(res *http.Response, data []byte, asked string) (answer, error) {
	now := time.Now()
	at, err := http.ParseTime(res.Header.Get("Date"))
	if err != nil {
		at = now
	}
	status := res.StatusCode
	media, _, _ := strings.Cut(strings.ToLower(res.Header.Get("Content-Type")), ";")
	switch {
	case status >= 200 && status < 300 && strings.TrimSpace(media) == "text/html":
		return answer{}, c.fail(netx.Unavailable, status, errors.New("a web page answers in its place: log in to the network if it has a sign-on page"))
	case status >= 200 && status < 300, status == c.also:
		return answer{res.Header, data, at}, nil
	case status >= 300 && status < 400:
		return answer{}, c.fail(netx.Protocol, status, errors.New("it redirects, and an identity is not sent elsewhere"))
	}
	text := c.clean(said(data))
	if text != "" {
		text = ": " + text
	}
	what := fmt.Errorf("it answers %d %s%s", status, http.StatusText(status), text)
	if asked != "" && netx.MayWantCertificate(status) {
		what = fmt.Errorf("%w (%s)", what, asked)
	}
	kind := netx.Refused
	switch {
	case status == http.StatusTooManyRequests:
		kind = netx.RateLimited
	case status >= 500 || status == http.StatusRequestTimeout || status == http.StatusProxyAuthRequired:
		kind = netx.Unavailable
	case status == http.StatusForbidden:
		kind = netx.Forbidden
	case status == http.StatusNotFound || status == http.StatusGone:
		kind = netx.NotFound
	case status == http.StatusUnauthorized || status == http.StatusBadRequest:
		// OAuth tells wrong secrets and ended grants with 400. Source: RFC 6749 §5.2.
		kind = netx.Unauthorized
	}
	if kind == netx.Unauthorized || kind == netx.Forbidden {
		if at.Sub(now).Abs() > clockOff { // proofs hold for minutes; how far off it is changes, the text does not
			what = fmt.Errorf("%w (the clock of this host is off by more than %v)", what, clockOff)
		}
	}
	e := c.fail(kind, status, what)
	if kind == netx.RateLimited || kind == netx.Unavailable {
		e.RetryAfter, _ = netx.RetryAfter(res.Header, at)
	}
	return answer{}, e
}

// said is what the body of a refusal says: JSON of OAuth, of Google and of
// metadata servers, or XML of AWS. Azure adds ids and the hour of each request,
// which are left out: statuses repeat the text.
func said(body []byte) string {
	var flat struct {
		Error       json.RawMessage `json:"error"`
		Description string          `json:"error_description"`
		Message     string          `json:"message"`
		Code        string          `json:"code"`
	}
	if json.Unmarshal(body, &flat) == nil {
		code := ""
		var deep struct {
			Message string `json:"message"`
			Status  string `json:"status"`
		}
		if json.Unmarshal(flat.Error, &code) != nil && json.Unmarshal(flat.Error, &deep) == nil {
			code, flat.Message = deep.Status, deep.Message
		}
		text := flat.Description
		if text == "" {
			text = flat.Message
		}
		if code == "" {
			code = flat.Code
		}
		text, _, _ = strings.Cut(text, " Trace ID: ")
		text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
		if code != "" && text != "" {
			return code + ": " + text
		}
		return code + text
	}
	var aws struct {
		Code    string `xml:"Error>Code"`
		Message string `xml:"Error>Message"`
	}
	if xml.Unmarshal(body, &aws) == nil && aws.Code != "" {
		return aws.Code + ": " + aws.Message
	}
	return ""
}

// unanswered says why no answer was had.
func (c call) unanswered(parent context.Context, err error, at *url.URL, asked string) *netx.Error {
	if parent.Err() != nil {
		return c.fail(netx.Cancelled, 0, context.Cause(parent))
	}
	if errors.Is(err, netx.ErrForbidden) {
		return c.fail(netx.Invalid, 0, errors.New(c.clean(netx.SteadyText(err))))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no complete answer within %v", callTimeout)
	}
	return c.fail(netx.Unavailable, 0, errors.New(c.clean(netx.NoAnswer(err, at, asked))))
}

// fail makes an error of this call. A query is no part of its endpoint.
func (c call) fail(kind netx.ErrorKind, status int, err error) *netx.Error {
	endpoint, _, _ := strings.Cut(c.url, "?")
	return &netx.Error{Kind: kind, Op: c.op, Identity: c.identity, Endpoint: c.method + " " + netx.SafeText(endpoint), Status: status, Err: err}
}

func (c call) clean(text string) string { return netx.SafeText(text, c.secrets...) }
