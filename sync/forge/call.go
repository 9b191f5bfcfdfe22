package forge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

const mostRedirects = 3

// caller calls one API with one identity.
type caller struct {
	h        *Hosts
	http     *http.Client
	api      string // base URL without a slash at its end
	origin   *url.URL
	creds    *auth.Credentials
	identity string            // for people
	gate     string            // in Hosts.gates: one for each identity at an API
	sign     func(http.Header) // adds the identity to a request
	header   map[string]string
	secrets  []string // never repeated in an error
}

// caller returns a caller, if these credentials may be sent to the API.
func (h *Hosts) caller(base string, creds *auth.Credentials) (*caller, error) {
	origin, err := url.Parse(base)
	if err != nil || origin.Host == "" {
		return nil, invalid("reach the API", "its URL cannot be parsed")
	}
	if origin.Scheme != "https" && !creds.Empty() && !h.o.AllowInsecure {
		return nil, invalid("reach "+origin.Host, "credentials would go over plain http")
	}
	if err := h.o.Guard.Host(origin.Hostname()); err != nil {
		return nil, invalid("reach "+origin.Host, "%w", err)
	}
	client, err := h.client(creds)
	if err != nil {
		return nil, invalid("reach "+origin.Host, "%w", err)
	}
	c := &caller{h: h, http: client, api: base, origin: origin, creds: creds, secrets: creds.Secrets(), sign: func(http.Header) {}}
	if !creds.Empty() {
		c.identity = creds.Source
	}
	c.gate = base + " " + creds.Fingerprint()
	if creds != nil && creds.Forget != nil {
		// Limits count for the App, and each of its repositories has another token.
		c.gate = base + " " + creds.Source
	}
	return c, nil
}

// request is one call. Its path is escaped.
type request struct {
	op     string
	method string
	path   string
	query  url.Values
	body   any // as JSON
}

// answer is a successful answer of a host.
type answer struct {
	header http.Header
	body   []byte
	at     time.Time // Date of the host, the local clock without one
}

// into decodes the body of an answer. The error names the call.
func into[T any](c *caller, r request, a answer) (out T, err error) {
	if err := json.Unmarshal(a.body, &out); err != nil {
		return out, c.fail(r, Protocol, 0, errors.New("the answer is not what this API answers"))
	}
	return out, nil
}

// ask is do and into.
func ask[T any](ctx context.Context, c *caller, r request) (out T, err error) {
	a, err := c.do(ctx, r)
	if err != nil {
		return out, err
	}
	return into[T](c, r, a)
}

// do performs one call. It follows redirects at the same origin, with method and
// body: to a renamed repository.
func (c *caller) do(parent context.Context, r request) (answer, error) {
	if e := c.retryLater(r); e != nil {
		return answer{}, e
	}
	var body []byte
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return answer{}, c.fail(r, Invalid, 0, fmt.Errorf("encode the request: %w", err))
		}
	}
	ctx, cancel := context.WithTimeout(c.h.asked.Watch(parent, c.certificateKey()), callTimeout)
	defer cancel()
	target, err := url.Parse(c.api + r.path)
	if err != nil {
		return answer{}, c.fail(r, Invalid, 0, errors.New("the URL cannot be parsed"))
	}
	target.RawQuery = r.query.Encode()
	for range mostRedirects + 1 {
		res, err := c.send(ctx, r.method, target, body)
		if err != nil {
			return answer{}, c.noAnswer(parent, r, err)
		}
		data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
		res.Body.Close()
		switch {
		case err != nil:
			return answer{}, c.noAnswer(parent, r, err)
		case len(data) > maxAnswer:
			return answer{}, c.fail(r, Protocol, res.StatusCode, fmt.Errorf("the answer has more than %d bytes", maxAnswer))
		case res.StatusCode >= 300 && res.StatusCode < 400:
			if target, err = c.redirect(target, res.Header.Get("Location")); err != nil {
				return answer{}, c.fail(r, Protocol, res.StatusCode, err)
			}
			continue
		}
		return c.classify(r, res, data)
	}
	return answer{}, c.fail(r, Protocol, 0, fmt.Errorf("it redirects more than %d times", mostRedirects))
}

func (c *caller) send(ctx context.Context, method string, target *url.URL, body []byte) (*http.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", c.h.o.UserAgent)
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range c.header {
		req.Header.Set(k, v)
	}
	c.sign(req.Header)
	return c.http.Do(req)
}

// redirect returns the URL of a redirect.
func (c *caller) redirect(from *url.URL, location string) (*url.URL, error) {
	to, err := url.Parse(location)
	if err != nil || location == "" {
		return nil, errors.New("it redirects to nowhere")
	}
	to = from.ResolveReference(to)
	if to.Scheme != c.origin.Scheme || !strings.EqualFold(to.Host, c.origin.Host) {
		return nil, fmt.Errorf("it redirects to another host, %s, and credentials do not go there", c.clean(to.Hostname()))
	}
	to.User, to.Fragment = nil, ""
	return to, nil
}

// noAnswer returns the error of a call without answer, without the URL and its query
// that net/http adds.
func (c *caller) noAnswer(parent context.Context, r request, err error) *Error {
	switch {
	case errors.Is(parent.Err(), context.DeadlineExceeded): // the caller's, which is shorter than ours
		return c.fail(r, Unavailable, 0, errors.New("no complete answer in time"))
	case parent.Err() != nil:
		return c.fail(r, Cancelled, 0, context.Cause(parent))
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if errors.Is(err, netx.ErrForbidden) {
		return c.fail(r, Invalid, 0, errors.New(netx.SteadyText(err)))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no complete answer within %v", callTimeout)
	}
	return c.fail(r, Unavailable, 0, errors.New(c.clean(netx.NoAnswer(err, c.origin, c.certificateHint()))))
}

// certificateKey returns the key for netx.CertificateRequests.
func (c *caller) certificateKey() string { return c.creds.TransportKey() + " " + c.origin.Host }

// certificateHint returns the advice about a client certificate that the API
// requests, "" for none.
func (c *caller) certificateHint() string { return c.h.asked.Hint(c.certificateKey()) }

// withSecret returns c for a call whose body holds one more secret.
func (c *caller) withSecret(s Secret) *caller {
	if s == "" {
		return c
	}
	copy := *c
	copy.secrets = append(slices.Clone(c.secrets), string(s))
	return &copy
}

// fail returns the error of a call.
func (c *caller) fail(r request, kind ErrorKind, status int, err error) *Error {
	return &Error{Kind: kind, Op: r.op, Identity: c.identity, Endpoint: r.method + " " + c.api + r.path, Status: status, Err: err}
}

// clean makes foreign text safe to quote, without the secrets of this call.
func (c *caller) clean(s string) string { return netx.SafeText(s, c.secrets...) }

// token returns the secret for the API of a host.
func token(creds *auth.Credentials) string {
	switch {
	case creds == nil:
		return ""
	case creds.Bearer != "":
		return creds.Bearer
	}
	return creds.Password
}

// bearer sends the token as GitHub, GitLab and Bitbucket want it.
func bearer(creds *auth.Credentials) func(http.Header) {
	return header(token(creds), "Bearer ")
}

// giteaToken sends the token as every Gitea and Forgejo takes it.
func giteaToken(creds *auth.Credentials) func(http.Header) {
	return header(token(creds), "token ")
}

func header(value, scheme string) func(http.Header) {
	return func(h http.Header) {
		if value != "" {
			h.Set("Authorization", scheme+value)
		}
	}
}

func basic(user string, creds *auth.Credentials) func(http.Header) {
	value := token(creds)
	return func(h http.Header) {
		if value != "" {
			r := http.Request{Header: h}
			r.SetBasicAuth(user, value)
		}
	}
}
