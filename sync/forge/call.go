package forge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

// maxGates is one for each of a thousand repositories with tokens of their own.
const maxGates = 1024

// caller calls one API with one identity.
type caller struct {
	h        *Hosts
	api      string // base URL without a slash at its end
	creds    *auth.Credentials
	identity string // for people
	gate     string // in Hosts.gates: one for each identity at an API
	header   map[string]string
	secrets  []string // never repeated in an error
}

// caller returns a caller that sends the token of some credentials after scheme, such as "Bearer ".
func (h *Hosts) caller(base, scheme string, creds *auth.Credentials) *caller {
	c := &caller{h: h, api: base, creds: creds, secrets: creds.Secrets(),
		header: map[string]string{"Accept": "application/json", "Content-Type": "application/json"}}
	if value := token(creds); value != "" {
		c.header["Authorization"] = scheme + value
	}
	if !creds.Empty() {
		c.identity = creds.Source
	}
	c.gate = base + " " + creds.Fingerprint()
	if creds != nil && creds.Forget != nil {
		// Limits count for the App, and each of its repositories has another token.
		c.gate = base + " " + creds.Source
	}
	return c
}

// request is one call. Its path is escaped.
type request struct {
	op     string
	method string
	path   string
	query  url.Values
	body   any // as JSON
}

// into decodes the body of an answer. The error names the call.
func into[T any](c *caller, r request, a netx.Answer) (out T, err error) {
	if err := json.Unmarshal(a.Body, &out); err != nil {
		return out, c.fail(r, netx.Protocol, errors.New("the answer is not what this API answers"))
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

// do performs one call, unless the host has asked to be left alone.
func (c *caller) do(ctx context.Context, r request) (netx.Answer, error) {
	if e := c.retryLater(r); e != nil {
		return netx.Answer{}, e
	}
	call := c.call(r)
	if r.body != nil {
		var err error
		if call.Body, err = json.Marshal(r.body); err != nil {
			return netx.Answer{}, c.fail(r, netx.Invalid, fmt.Errorf("encode the request: %w", err))
		}
	}
	got, err := c.h.client.Do(ctx, call)
	e, failed := errors.AsType[*netx.Error](err)
	switch {
	case !failed:
	case e.Kind == netx.Unauthorized:
		c.creds.Refused()
	case e.Kind == netx.RateLimited:
		c.setRetryAfter(c.gate, e)
	case e.RetryAfter > 0:
		c.setRetryAfter(c.api, e) // the API is down for all identities
	}
	return got, err
}

func (c *caller) call(r request) netx.Call {
	to := c.api + r.path
	if len(r.query) > 0 {
		to += "?" + r.query.Encode()
	}
	return netx.Call{Op: r.op, Identity: c.identity, Method: r.method, URL: to, Header: c.header, Open: c.creds.Empty(), Trust: c.creds,
		Secrets: c.secrets}
}

// fail returns the error of a call.
func (c *caller) fail(r request, kind netx.ErrorKind, err error) *netx.Error {
	return c.call(r).Fail(kind, 0, err)
}

// withSecret returns c for a call whose body holds one more secret.
func (c *caller) withSecret(s Secret) *caller {
	copy := *c
	copy.secrets = append(slices.Clone(c.secrets), string(s))
	return &copy
}

// gate is a wait that a host has asked for.
type gate struct {
	until time.Time
	said  *netx.Error
}

// retryLater returns the last error while its wait lasts, for this identity or for the
// whole API; nil means no wait. RetryAfter is the remaining wait.
func (c *caller) retryLater(r request) *netx.Error {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	for _, key := range []string{c.gate, c.api} {
		if g := c.h.gates[key]; time.Until(g.until) > 0 {
			e := c.fail(r, g.said.Kind, g.said.Err)
			e.Status, e.RetryAfter = g.said.Status, time.Until(g.until)
			return e
		}
	}
	return nil
}

func (c *caller) setRetryAfter(key string, said *netx.Error) {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	maps.DeleteFunc(c.h.gates, func(_ string, g gate) bool { return time.Until(g.until) <= 0 })
	if len(c.h.gates) >= maxGates {
		clear(c.h.gates)
	}
	c.h.gates[key] = gate{time.Now().Add(said.RetryAfter), said}
}

// token returns the secret for the API of a host.
func token(creds *auth.Credentials) string {
	if creds == nil {
		return ""
	}
	return cmp.Or(creds.Bearer, creds.Password)
}

// segments escapes each part of a path; its slashes stay.
func segments(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.Join(parts, "/")
}
