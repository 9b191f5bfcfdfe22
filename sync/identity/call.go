package identity

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

// form is the type of most bodies.
const form = "application/x-www-form-urlencoded"

// do makes a call. A body without a type is a form. OAuth answers wrong secrets and ended
// grants with 400. Source: RFC 6749 §5.2.
func (g *registry) do(ctx context.Context, c netx.Call) (netx.Answer, error) {
	if len(c.Body) > 0 && c.Header == nil {
		c.Header = map[string]string{"Content-Type": form}
	}
	if c.Trust == nil {
		c.Trust = (*auth.Credentials)(nil)
	}
	got, err := g.client.Do(ctx, c)
	if e, ok := errors.AsType[*netx.Error](err); ok && e.Status == http.StatusBadRequest {
		e.Kind = netx.Unauthorized
	}
	return got, err
}

// malformed is an error about an answer.
func malformed(c netx.Call, text string) *netx.Error {
	return c.Fail(netx.Protocol, 0, errors.New(text))
}

// longestLife bounds what an answer may say about the lifetime of a token.
const longestLife = 24 * time.Hour

// parseGrant parses the answer of a token endpoint. Its errors do not repeat the answer.
// Source: RFC 6749 §5.1. Azure's metadata server writes numbers as text.
func parseGrant(body []byte) (auth.Token, error) {
	var grant struct {
		Token string      `json:"access_token"`
		Life  json.Number `json:"expires_in"`
	}
	if json.Unmarshal(body, &grant) != nil {
		return auth.Token{}, errors.New("the answer is not that of a token endpoint")
	}
	seconds, _ := grant.Life.Float64() // 0 = it does not say
	return newToken(grant.Token, time.Duration(max(min(seconds, longestLife.Seconds()), 0))*time.Second)
}

func (g *registry) token(ctx context.Context, c netx.Call) (auth.Token, error) {
	got, err := g.do(ctx, c)
	if err != nil {
		return auth.Token{}, err
	}
	token, err := parseGrant(got.Body)
	if err != nil {
		err = malformed(c, err.Error())
	}
	return token, err
}

func newToken(value string, life time.Duration) (auth.Token, error) {
	switch {
	case !auth.Printable(value):
		return auth.Token{}, errors.New("the answer holds no token")
	case life <= 0:
		return auth.Token{}, errors.New("the answer has no lifetime of the token, or the token has expired")
	}
	life = min(life, longestLife)
	return auth.Token{Value: value, Minted: time.Now(), Expires: time.Now().Add(life), Life: life}, nil
}

// through makes the calls of a library with our deadlines, bounds and errors: it is
// the http.RoundTripper of x/oauth2. It serves one attempt and keeps its error, which the library
// turns into text.
type through struct {
	g    *registry
	ctx  context.Context // of the attempt; x/oauth2 calls without one
	c    netx.Call
	near string // a URL of this network

	failed error
	last   netx.Call
	at     time.Time // of the last answer, by the clock of the other side
}

func (t *through) RoundTrip(req *http.Request) (*http.Response, error) {
	c := t.c
	c.Method, c.URL, c.Header = req.Method, req.URL.String(), map[string]string{}
	c.Near = c.URL == t.near && req.URL.Scheme == "http"
	if req.Body != nil {
		defer req.Body.Close()
		var err error
		if c.Body, err = io.ReadAll(io.LimitReader(req.Body, netx.MaxAnswer)); err != nil {
			return nil, err
		}
	}
	for name := range req.Header {
		c.Header[name] = req.Header.Get(name)
	}
	c.Secrets = append(slices.Clone(c.Secrets), strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer "))
	if form, err := url.ParseQuery(string(c.Body)); err == nil {
		c.Secrets = append(c.Secrets, form.Get("assertion"), form.Get("subject_token"))
	}
	t.last = c
	got, err := t.g.do(t.ctx, c)
	if err != nil {
		t.failed = err
		return nil, err
	}
	t.at = got.At
	return &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: got.Header, Body: io.NopCloser(bytes.NewReader(got.Body)), ContentLength: int64(len(got.Body)), Request: req}, nil
}

// token returns what a library has made of the answers. Its errors may repeat an answer
// and are not repeated, but for those about the configuration.
func (t *through) token(value string, life time.Duration, err error) (auth.Token, error) {
	switch {
	case t.failed != nil:
		return auth.Token{}, t.failed
	case err != nil && t.last.URL == "":
		return auth.Token{}, &netx.Error{Kind: netx.Invalid, Op: t.c.Op, Identity: t.c.Identity, Err: errors.New(t.c.Clean(err.Error()))}
	case err != nil:
		return auth.Token{}, malformed(t.last, "the answer is not that of a token endpoint")
	}
	token, err := newToken(value, life)
	if err != nil {
		return auth.Token{}, malformed(t.last, err.Error())
	}
	return token, nil
}
