package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"limpet/sync/auth"
	"limpet/sync/git/bundle"
	"limpet/sync/git/giterr"
	"limpet/sync/git/transfer"
	"limpet/sync/netx"
	"limpet/sync/text"
)

// Git over http is spoken by go-git; what is around it is ours: connections, certificates,
// counting, and the understanding of answers that are not Git's. A redirect that leaves the origin
// is refused.

// Sizes and times of the http client. A body that explains an error is read up to errorBody bytes;
// a server may take its time for the first byte of a pack, which is what the watchdog is for.
const (
	ErrorBody        = 8 << 10
	handshakeTimeout = 15 * time.Second
	idleConnection   = 30 * time.Second
)

// callKey carries the *Call of a request in its context.
type callKey struct{}

// httpTransport is what a session over http is opened with.
func (c *Call) httpTransport() (transport.Transport, *transport.Endpoint, transport.AuthMethod, error) {
	client, err := c.client.httpClient(c.Target.Creds)
	if err != nil {
		return nil, nil, nil, err
	}
	ep := &transport.Endpoint{Protocol: c.Addr.Scheme, Host: c.Addr.Host, Path: (&url.URL{Path: c.Addr.Path}).EscapedPath()}
	if strings.Contains(ep.Host, ":") {
		ep.Host = "[" + ep.Host + "]"
	}
	if ep.Port, err = strconv.Atoi("0" + c.Addr.Port); err != nil {
		return nil, nil, nil, giterr.New(giterr.Refused, "the port is not a number", "")
	}
	var method transport.AuthMethod
	switch creds := c.Target.Creds; {
	case creds == nil:
	case creds.Bearer != "":
		method = &githttp.TokenAuth{Token: creds.Bearer}
	case creds.Password != "":
		method = &githttp.BasicAuth{Username: creds.Username, Password: creds.Password}
	}
	t := githttp.NewClientWithOptions(client, &githttp.ClientOptions{RedirectPolicy: githttp.FollowInitialRedirects})
	return t, ep, method, nil
}

// httpClient returns the client for the certificates and the proxy of some
// credentials; clients share their connections.
func (t *Client) httpClient(c *auth.Credentials) (*http.Client, error) {
	key := c.TransportKey()
	t.mu.Lock()
	defer t.mu.Unlock()
	if client, ok := t.clients[key]; ok {
		return client, nil
	}
	config, err := c.TLS()
	if err != nil {
		return nil, giterr.Wrap(giterr.Auth, err, "")
	}
	base := t.Options.Guard.Transport(config, c.GetProxy())
	base.ForceAttemptHTTP2 = true
	base.MaxIdleConns = 64
	base.MaxIdleConnsPerHost = 2
	base.IdleConnTimeout = idleConnection
	client := &http.Client{CheckRedirect: checkRedirect, Transport: roundTripper{base}}
	if len(t.clients) >= 32 { // certificates rotate; old ones are not asked for again
		for k, old := range t.clients {
			old.CloseIdleConnections()
			delete(t.clients, k)
		}
	}
	t.clients[key] = client
	return client, nil
}

// checkRedirect is asked beside go-git's own check.
func checkRedirect(req *http.Request, via []*http.Request) error {
	c, _ := req.Context().Value(callKey{}).(*Call)
	if c == nil || len(via) == 0 {
		return nil
	}
	from := via[0].URL
	if !strings.HasSuffix(req.URL.Path, "/info/refs") {
		return c.problem(giterr.Unreachable, 0, "expected a Git server, got a redirect to a page of "+text.Line(req.URL.Host, 100),
			"log in to the network if it has a sign-on page, and check the url")
	}
	to := req.URL
	upgrade := from.Scheme == "http" && to.Scheme == "https"
	if !strings.EqualFold(from.Hostname(), to.Hostname()) || !upgrade && (from.Scheme != to.Scheme || from.Port() != to.Port()) {
		return c.problem(giterr.Refused, 0, "it redirects to another host, port or scheme, "+text.Line(to.Scheme+"://"+to.Host, 100)+
			", which is not followed", "use the new url if it is to be trusted")
	}
	return nil
}

// problem notes what an answer means, for the error that the call returns.
func (c *Call) problem(k giterr.Kind, retryAfter time.Duration, text, hint string) error {
	return c.refused(&giterr.Error{Kind: k, Err: errors.New(text), Hint: hint, RetryAfter: retryAfter})
}

// refused is problem for an error that exists already.
func (c *Call) refused(e *giterr.Error) error {
	c.found.Store(e)
	return e
}

// roundTripper carries the requests of go-git.
type roundTripper struct{ next *http.Transport }

// CloseIdleConnections is for http.Client's method of that name.
func (w roundTripper) CloseIdleConnections() { w.next.CloseIdleConnections() }

func (w roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	c, _ := req.Context().Value(callKey{}).(*Call)
	if c == nil {
		return nil, errors.New("request without a call")
	}
	if c.Pushes && req.Body != nil {
		req.Body = sentBody{req.Body, c}
	}
	res, err := c.roundTrip(w.next, req, true)
	if err != nil {
		return nil, err
	}
	if err := c.classifyResponse(req, res); err != nil {
		res.Body.Close()
		return nil, err
	}
	return res, nil
}

// roundTrip counts a request and what comes. own says that it is with the credentials of the
// remote.
func (c *Call) roundTrip(next *http.Transport, req *http.Request, own bool) (*http.Response, error) {
	if err := c.pace(); err != nil {
		return nil, err
	}
	c.peer = netx.HostPort(req.URL)
	if own {
		req = req.WithContext(c.client.asked.Watch(req.Context(), c.asks(req.URL.Host)))
	}
	if m := c.Target.Meter; m != nil {
		m.Enter(transfer.Connecting)
		req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
			GotConn: func(httptrace.GotConnInfo) { m.Enter(transfer.Waiting) }}))
	}
	res, err := next.RoundTrip(req)
	if err == nil {
		res.Body = counted{res.Body, c}
	}
	return res, err
}

// Send sends a request with what the answer before said for it, and with the
// credentials of the remote where own says so. It follows no redirect. leave ends the visit.
func (c *Call) Send(req *http.Request, header map[string]string, own bool) (res *http.Response, leave func(), err error) {
	creds := c.Target.Creds
	if !own || c.Addr.Scheme == "ssh" {
		creds = creds.ForOtherHost()
	}
	web, err := c.client.httpClient(creds)
	if err != nil {
		return nil, nil, err
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("User-Agent", "limpet")
	authorize(req, creds)
	end, err := c.visit(req.URL.Host)
	if err != nil {
		return nil, nil, err
	}
	if res, err = c.roundTrip(web.Transport.(roundTripper).next, req, own); err != nil {
		end()
		return nil, nil, err
	}
	return res, func() {
		res.Body.Close()
		end()
	}, nil
}

// authorize adds credentials to a request that has none.
func authorize(req *http.Request, creds *auth.Credentials) {
	switch {
	case creds == nil, req.Header.Get("Authorization") != "":
	case creds.Bearer != "":
		req.Header.Set("Authorization", "Bearer "+creds.Bearer)
	case creds.Password != "":
		req.SetBasicAuth(creds.Username, creds.Password)
	}
}

// classifyResponse reads what an answer is before go-git does.
func (c *Call) classifyResponse(req *http.Request, res *http.Response) error {
	media := Media(res)
	switch {
	case res.StatusCode >= 300 && res.StatusCode < 400 && res.Header.Get("Location") != "":
		return nil // net/http follows it, or asks checkRedirect
	case res.StatusCode == http.StatusOK:
		want := "application/x-" + c.service() + "-advertisement"
		if req.Method == http.MethodPost {
			want = "application/x-" + c.service() + "-result"
		}
		if c.Addr.Upstream() {
			want = bundle.Media
		}
		switch media {
		case want:
			return nil
		case "text/html":
			return c.problem(giterr.Unreachable, 0, "expected a Git server, got an HTML page",
				"captive portal or wrong url: log in to the network if it has a sign-on page, and check the url")
		}
		return c.problem(giterr.Protocol, 0, fmt.Sprintf("its answer is of type %q, not that of Git's smart protocol", text.Line(media, 80)),
			"check that the url is that of a Git repository, and that it is served with git http-backend")
	}
	said, code := c.ResponseText(res, media), res.StatusCode
	after, _ := netx.RetryAfter(res.Header, time.Now())
	denied := code == http.StatusUnauthorized || code == http.StatusForbidden
	if c.Pushes && after == 0 && denied && (code == http.StatusUnauthorized || media != "text/html") {
		return c.refused(readOnly(said)) // of credentials that may read; a page, or a wish to be asked later, is of something else
	}
	if denied {
		c.Target.Creds.Dated(res.Header.Get("Date"))
	}
	certificate := c.CertificateHint(req.URL.Host)
	kind, text, hint := giterr.Protocol, fmt.Sprintf("%d %s", code, http.StatusText(code)), "check the url"
	switch {
	case code == http.StatusUnauthorized:
		c.Target.Creds.Refused()
		kind, text, hint = giterr.Auth, "authentication failed (401 Unauthorized)", "check that the token is valid and may read this repository"
		if c.Target.Creds.Empty() {
			text, hint = "authentication required (401)", "add a token, or check the url"
		}
	case code == http.StatusForbidden:
		kind, text, hint = giterr.Auth, "permission denied (403 Forbidden)", "check the rights of the token"
	case code == http.StatusBadRequest && certificate != "": // what nginx answers
		return c.problem(giterr.Auth, 0, text+said, certificate)
	case code == http.StatusNotFound, code == http.StatusGone:
		kind, text, hint = giterr.NotFound, "repository not found", c.notFoundHint()
	case code == http.StatusProxyAuthRequired:
		kind, text, hint = giterr.Unreachable, "proxy authentication required (407)", c.proxyHint()
	case code == http.StatusTooManyRequests:
		c.throttle(after)
		kind, text, hint = giterr.Throttled, "too many requests (429)", "it is asked again later"
	case code >= 500:
		kind, hint = giterr.Unreachable, "it is retried later"
	}
	if kind == giterr.Auth && certificate != "" {
		hint += "; " + certificate
	}
	return c.problem(kind, after, text+said, hint)
}

// ResponseText is what a plain-text answer says, ready to be put behind a sentence.
func (c *Call) ResponseText(res *http.Response, media string) string {
	if media != "text/plain" && media != "application/json" && media != "" {
		return ""
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, ErrorBody))
	text := c.clean(string(body), 200)
	if text == "" {
		return ""
	}
	return ": " + text
}

// Media is the type of an answer.
func Media(res *http.Response) string {
	media, _, _ := strings.Cut(strings.ToLower(res.Header.Get("Content-Type")), ";")
	return strings.TrimSpace(media)
}

// WithCall puts the call where its requests find it.
func (c *Call) WithCall() context.Context { return context.WithValue(c.Ctx, callKey{}, c) }
