package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"sync/atomic"

	"limpet/sync/text"
)

// tokenSource gives the value that authenticates a request.
type tokenSource interface {
	// token returns the current one.
	token(ctx context.Context) (string, error)
	// refused is called when the server answered 401 to used. It returns another token to try once, or "".
	refused(ctx context.Context, used string) string
}

// staticToken is that of the configuration, until SetToken replaces it.
type staticToken struct{ value atomic.Pointer[string] }

func newStaticToken(token string) *staticToken {
	s := new(staticToken)
	s.value.Store(&token)
	return s
}

func (s *staticToken) token(context.Context) (string, error)  { return *s.value.Load(), nil }
func (s *staticToken) refused(context.Context, string) string { return *s.value.Load() }

// SetToken replaces the token of a Client whose Config has one.
func (c *Client) SetToken(token string) {
	if s := c.shared.static; s != nil && token != "" {
		text.RegisterSecret([]byte(token))
		s.value.Store(&token)
	}
}

// mostToken bounds a token file, in bytes.
const mostToken = 1 << 20

// TokenFile returns the trimmed content of the file that a flag names, which is read again when it changes.
func TokenFile(flag, path string, log *slog.Logger) *Reloaded[string] {
	return &Reloaded[string]{Paths: []string{path}, Log: log, Read: func() (string, error) {
		value, err := readToken(path)
		if err != nil {
			return "", &FlagError{Flag: flag, Err: err}
		}
		return value, nil
	}}
}

// fileToken is that of a file, which is read again after a 401 too.
type fileToken struct{ *Reloaded[string] }

func newFileToken(path string, log *slog.Logger) *fileToken {
	return &fileToken{TokenFile("--token-file", path, log)}
}

func (f *fileToken) token(context.Context) (string, error) { return f.Get() }

func (f *fileToken) refused(_ context.Context, used string) string {
	value, err := f.get(true)
	if err != nil || value == used {
		return ""
	}
	return value
}

func readToken(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, mostToken))
	if err != nil {
		return "", err
	}
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return "", fmt.Errorf("%s is empty", path)
	}
	if err := checkToken(string(data)); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	text.RegisterSecret(data)
	return string(data), nil
}

// authTransport adds the token to requests for its own host and asks for
// another one, once, when the server answers 401.
type authTransport struct {
	next   http.RoundTripper
	source tokenSource
	host   string
	header string // Authorization or X-Access-Token
}

// RoundTrip implements http.RoundTripper.
func (a *authTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host != a.host { // a redirect elsewhere takes no token along
		return a.next.RoundTrip(req)
	}
	ctx := req.Context()
	token, err := a.source.token(ctx)
	if err != nil {
		if req.Body != nil {
			req.Body.Close() // as a RoundTripper has to
		}
		return nil, err
	}
	resp, err := a.next.RoundTrip(a.with(req, token))
	if err != nil || resp.StatusCode != http.StatusUnauthorized || req.Body != nil && req.GetBody == nil {
		return resp, err
	}
	fresh := a.source.refused(ctx, token)
	if fresh == "" || fresh == token {
		return resp, nil
	}
	again := a.with(req, fresh)
	if req.GetBody != nil {
		if again.Body, err = req.GetBody(); err != nil {
			return resp, nil // the 401 says more
		}
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
	resp.Body.Close()
	return a.next.RoundTrip(again)
}

func (a *authTransport) with(req *http.Request, token string) *http.Request {
	clone := req.Clone(req.Context())
	clone.Header.Set(a.header, "Bearer "+token)
	return clone
}

// redirectError is a redirect to another server.
type redirectError struct{ from, to string }

func (e *redirectError) Error() string {
	return fmt.Sprintf("%s redirects to %s", e.from, e.to)
}

// sameHostOnly lets redirects stay on the server. Others lead to login pages
// and captive portals, and would take what the request says along.
func sameHostOnly(req *http.Request, via []*http.Request) error {
	first := via[0].URL
	if req.URL.Scheme != first.Scheme || req.URL.Host != first.Host {
		to := url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host, Path: req.URL.Path}
		return &redirectError{from: first.Scheme + "://" + first.Host, to: text.Redact(to.String())}
	}
	if len(via) >= 5 {
		return errors.New("stopped after 5 redirects")
	}
	return nil
}
