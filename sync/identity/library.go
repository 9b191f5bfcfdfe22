package identity

import (
	"bytes"
	"context"
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

// through makes the calls of a library with our deadlines, bounds and errors: it is
// the http.RoundTripper of x/oauth2 and the policy.Transporter of azidentity. It serves
// one attempt and keeps its error, which the libraries turn into text.
type through struct {
	g   *registry
	ctx context.Context // of the attempt; x/oauth2 calls without one
	c   call

	failed error
	url    string    // of the last call
	at     time.Time // of the last answer, by the clock of the other side
}

// RoundTrip implements http.RoundTripper.
func (t *through) RoundTrip(req *http.Request) (*http.Response, error) {
	c := t.c
	c.method, c.url, c.header = req.Method, req.URL.String(), map[string]string{}
	if req.Body != nil {
		defer req.Body.Close()
		body, err := io.ReadAll(io.LimitReader(req.Body, maxAnswer))
		if err != nil {
			return nil, err
		}
		c.body = string(body)
	}
	for name := range req.Header {
		c.header[name] = req.Header.Get(name)
	}
	c.secrets = append(slices.Clone(c.secrets), strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer "))
	if form, err := url.ParseQuery(c.body); err == nil {
		c.secrets = append(c.secrets, form.Get("assertion"), form.Get("client_assertion"), form.Get("subject_token"))
	}
	t.url = c.url
	got, err := t.g.do(t.ctx, c)
	if err != nil {
		t.failed = err
		return nil, err
	}
	t.at = got.at
	return &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: got.header, Body: io.NopCloser(bytes.NewReader(got.body)), ContentLength: int64(len(got.body)), Request: req}, nil
}

// Do implements policy.Transporter.
func (t *through) Do(req *http.Request) (*http.Response, error) { return t.RoundTrip(req) }

// token returns what a library has made of the answers. Its errors may repeat an answer
// and are not repeated, but for those about the configuration.
func (t *through) token(value string, life time.Duration, err error) (auth.Token, error) {
	switch {
	case t.failed != nil:
		return auth.Token{}, t.failed
	case err != nil && t.url == "":
		return auth.Token{}, &netx.Error{Kind: netx.Invalid, Op: t.c.op, Identity: t.c.identity, Err: errors.New(t.c.clean(err.Error()))}
	}
	var token auth.Token
	if err == nil {
		token, err = newToken(value, life)
	} else {
		err = errors.New("the answer is not that of a token endpoint")
	}
	if err != nil {
		c := t.c
		c.method, c.url = http.MethodPost, t.url
		return auth.Token{}, c.fail(netx.Protocol, 0, err)
	}
	return token, nil
}
