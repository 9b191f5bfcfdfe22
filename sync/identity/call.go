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
	// nearTimeout bounds the connection to a metadata server, which is on this host or
	// does not exist: outside of a cloud its address does not answer.
	nearTimeout = 2 * time.Second
	// maxAnswer is far more than a token and its description. Unit: bytes.
	maxAnswer = 256 << 10
	// clockOff is a difference of clocks that may be why a proof is refused. Source:
	// the 5 minutes that AWS and Entra ID accept, less the latency.
	clockOff = 4 * time.Minute
	// maxTransports bounds how many sets of certificates have a transport.
	maxTransports = 16
)

// call is one request to a token endpoint or metadata server.
type call struct {
	op       string // "get a token from the metadata server"
	identity string // for people
	method   string
	url      string
	header   map[string]string
	body     string            // a form
	near     bool              // metadata: without a proxy and guard, over http
	tls      *auth.Credentials // nil = the system's authorities
	secrets  []string          // never repeated in an error
}

// transports are those to the outside, by certificates. They keep no connections: a
// token is asked for once an hour.
type transports struct {
	mu    sync.Mutex                   // guards byKey
	byKey map[string]http.RoundTripper // by auth.Credentials.TransportKey
}

func (t *transports) get(c call, guard netx.Guard) (http.RoundTripper, error) {
	key := c.tls.TransportKey()
	if c.near {
		key = "near"
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, ok := t.byKey[key]; ok {
		return known, nil
	}
	config, err := c.tls.TLS()
	if err != nil {
		return nil, err
	}
	made := guard.Transport(config, c.tls.GetProxy())
	if c.near { // the guard refuses metadata servers
		made = &http.Transport{TLSClientConfig: config, DialContext: (&net.Dialer{Timeout: nearTimeout}).DialContext}
	}
	made.DisableKeepAlives = true
	if t.byKey == nil || len(t.byKey) >= maxTransports {
		t.byKey = map[string]http.RoundTripper{}
	}
	t.byKey[key] = made
	return made, nil
}

// answer is a successful answer.
type answer struct {
	header http.Header
	body   []byte
	at     time.Time // Date of the other side, the local clock without one
}

// do makes one call. It follows no redirects.
func (g *registry) do(parent context.Context, c call) (answer, error) {
	to, err := url.Parse(c.url)
	if err != nil || to.Host == "" || to.User != nil || to.Scheme != "https" && to.Scheme != "http" {
		return answer{}, c.fail(netx.Invalid, 0, errors.New("its URL is not an http or https URL"))
	} else if to.Scheme == "http" && !c.near && !g.o.AllowInsecure {
		return answer{}, c.fail(netx.Invalid, 0, errors.New("a secret would go over plain http"))
	} else if err := g.o.Guard.Host(to.Hostname()); err != nil && !c.near {
		return answer{}, c.fail(netx.Invalid, 0, err)
	}
	transport, err := g.transports.get(c, g.o.Guard)
	if err != nil {
		return answer{}, c.fail(netx.Invalid, 0, err)
	}
	var asked netx.CertificateRequests // there is a handshake for each call
	ctx, cancel := context.WithTimeout(asked.Watch(parent, ""), callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, c.method, c.url, strings.NewReader(c.body))
	if err != nil {
		return answer{}, c.fail(netx.Invalid, 0, errors.New("its URL cannot be used"))
	}
	if c.body != "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for k, v := range c.header {
		req.Header.Set(k, v)
	}
	req.Header.Set("User-Agent", g.o.UserAgent)
	res, err := transport.RoundTrip(req)
	if err != nil {
		return answer{}, c.unanswered(parent, err, to, asked.Hint(""))
	}
	defer res.Body.Close()
	if at, err := http.ParseTime(res.Header.Get("Date")); err == nil && !c.near { // what is near may use the clock of this host
		g.setClock(at)
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return answer{}, c.unanswered(parent, err, to, asked.Hint(""))
	case len(data) > maxAnswer:
		return answer{}, c.fail(netx.Protocol, res.StatusCode, fmt.Errorf("the answer has more than %d bytes", maxAnswer))
	}
	return c.classify(res, data, asked.Hint(""))
}

// classify turns a response into an answer or an error.
func (c call) classify(res *http.Response, data []byte, hint string) (answer, error) {
	now := time.Now()
	at, err := http.ParseTime(res.Header.Get("Date"))
	if err != nil {
		at = now
	}
	status := res.StatusCode
	media, _, _ := strings.Cut(strings.ToLower(res.Header.Get("Content-Type")), ";")
	switch {
	case status >= 200 && status < 300 && strings.TrimSpace(media) == "text/html":
		return answer{}, c.fail(netx.Unavailable, status,
			errors.New("a web page answers in its place: log in to the network if it has a sign-on page"))
	case status >= 200 && status < 300:
		return answer{res.Header, data, at}, nil
	case status >= 300 && status < 400:
		return answer{}, c.fail(netx.Protocol, status, errors.New("it redirects, and credentials do not go to another host"))
	}
	text := c.clean(message(data))
	if text != "" {
		text = ": " + text
	}
	what := fmt.Errorf("it answers %d %s%s", status, http.StatusText(status), text)
	if hint != "" && netx.MayWantCertificate(status) {
		what = fmt.Errorf("%w (%s)", what, hint)
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
		// OAuth answers wrong secrets and ended grants with 400. Source: RFC 6749 §5.2.
		kind = netx.Unauthorized
	}
	if (kind == netx.Unauthorized || kind == netx.Forbidden) && at.Sub(now).Abs() > clockOff { // proofs are valid for minutes
		what = fmt.Errorf("%w (the clock of this host is off by more than %v)", what, clockOff)
	}
	e := c.fail(kind, status, what)
	if kind == netx.RateLimited || kind == netx.Unavailable {
		e.RetryAfter, _ = netx.RetryAfter(res.Header, at)
	}
	return answer{}, e
}

// message returns the text in the body of a refusal: JSON of OAuth, of Google and of
// metadata servers, or XML of AWS. Azure adds ids and the time of each request, which
// are left out: statuses repeat the text.
func message(body []byte) string {
	var flat struct {
		Error       json.RawMessage `json:"error"`
		Description string          `json:"error_description"`
		Message     string          `json:"message"`
		Code        string          `json:"code"`
	}
	var aws struct {
		Code    string `xml:"Error>Code"`
		Message string `xml:"Error>Message"`
	}
	code, text := "", ""
	switch {
	case json.Unmarshal(body, &flat) == nil:
		var deep struct {
			Message string `json:"message"`
			Status  string `json:"status"`
		}
		if json.Unmarshal(flat.Error, &code) != nil && json.Unmarshal(flat.Error, &deep) == nil {
			code, text = deep.Status, deep.Message
		}
		for _, other := range []string{flat.Message, flat.Description} {
			if other != "" {
				text = other
			}
		}
		if code == "" {
			code = flat.Code
		}
		text, _, _ = strings.Cut(text, " Trace ID: ")
		text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	case xml.Unmarshal(body, &aws) == nil && aws.Code != "":
		code, text = aws.Code, aws.Message
	}
	if code != "" && text != "" {
		return code + ": " + text
	}
	return code + text
}

// unanswered says why there was no answer.
func (c call) unanswered(parent context.Context, err error, to *url.URL, hint string) *netx.Error {
	switch {
	case parent.Err() != nil:
		return c.fail(netx.Cancelled, 0, context.Cause(parent))
	case errors.Is(err, netx.ErrForbidden):
		return c.fail(netx.Invalid, 0, errors.New(c.clean(netx.SteadyText(err))))
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("no complete answer within %v", callTimeout)
	}
	return c.fail(netx.Unavailable, 0, errors.New(c.clean(netx.NoAnswer(err, to, hint))))
}

// fail makes an error of this call. A query is no part of its endpoint.
func (c call) fail(kind netx.ErrorKind, status int, err error) *netx.Error {
	endpoint, _, _ := strings.Cut(c.url, "?")
	return &netx.Error{Kind: kind, Op: c.op, Identity: c.identity, Endpoint: c.method + " " + netx.SafeText(endpoint), Status: status,
		Err: err}
}

func (c call) clean(text string) string { return netx.SafeText(text, c.secrets...) }
