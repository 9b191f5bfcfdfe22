package kube

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"limpet/sync/api"
	"limpet/sync/fileid"
	"limpet/sync/text"
)

// The exchange of a long-lived token for short-lived access tokens, as Grafana's authlib does it:
// the same request, the same life of the cached token. What is ours is the protection of the
// service: while it fails, tries follow each other after 1, 2, 4 ... 30 s, and all callers in
// between get the error of the last one.

const (
	exchangeNamespace = "*"              // of the tokens: all namespaces
	exchangeTimeout   = 10 * time.Second // of one try
	// exchangeSoon is the pause after the first failure; it doubles with each further
	// one up to exchangePause, which also lies between refreshes that a 401 asks for.
	exchangeSoon  = time.Second
	exchangePause = 30 * time.Second
	// tokenMargin is how long before its expiry a token is no longer used.
	tokenMargin = 15 * time.Second
	// longestCached bounds how long a token is kept, whatever its expiry says:
	// one of the far future is more than a Duration can hold.
	longestCached  = 24 * time.Hour
	mostExchange   = 1 << 20 // bytes of an answer
	exchangeRealms = `[{"type": "system", "identifier": "system"}]`
)

// ExchangeError means that the exchange gave no access token.
type ExchangeError struct {
	URL    string // without secrets
	Status int    // of the answer; 0 = none
	Err    error
	Next   time.Time // when the service will be asked again
}

func (e *ExchangeError) Error() string {
	text := fmt.Sprintf("exchange token at %s: %v", e.URL, e.Err)
	if left := time.Until(e.Next); left > 0 {
		text += fmt.Sprintf(" (next try in %v)", (left + time.Second - 1).Truncate(time.Second))
	}
	return text
}

func (e *ExchangeError) Unwrap() error { return e.Err }

// exchanger is the tokenSource behind X-Access-Token.
type exchanger struct {
	url       string
	audiences []string // sorted
	subject   tokenSource
	client    *http.Client
	life      context.Context // of the Client: attempts end with it
	running   sync.WaitGroup  // attempts under way

	mu       sync.Mutex // guards the fields below
	cached   string
	until    time.Duration    // monotonic; cached is used before then
	flight   *exchangeAttempt // the attempt under way, shared by all callers
	failure  *ExchangeError   // of the last attempt; nil = it succeeded
	notUntil time.Duration    // monotonic; no attempt before then while failure is set
	pause    time.Duration    // after the last failure
	forced   time.Duration    // monotonic; of the last refresh after a 401; 0 = none was made
}

// exchangers exchange one token for the access tokens of all API groups: each is for its group
// alone, beside that of provisioning, which all of them name.
type exchangers struct {
	provisioning *exchanger
	groups       map[string]*exchanger // the groups of what repositories hold; not changed
}

func newExchangers(life context.Context, u *url.URL, subject tokenSource, transport http.RoundTripper) *exchangers {
	of := func(audiences ...string) *exchanger {
		return newExchanger(life, u, audiences, subject, transport)
	}
	x := &exchangers{of(api.ProvisioningGroup), map[string]*exchanger{}}
	for _, k := range api.Kinds {
		if k.Provisioned() && x.groups[k.Group] == nil {
			x.groups[k.Group] = of(k.Group, api.ProvisioningGroup)
		}
	}
	return x
}

// forPath returns the exchanger of the tokens for a path of the API.
func (x *exchangers) forPath(path string) tokenSource {
	_, group, _ := strings.Cut(path, "/apis/")
	group, _, _ = strings.Cut(group, "/")
	if of := x.groups[group]; of != nil {
		return of
	}
	return x.provisioning
}

// wait waits for the attempts under way.
func (x *exchangers) wait() {
	x.provisioning.running.Wait()
	for _, of := range x.groups {
		of.running.Wait()
	}
}

// exchangeAttempt is one attempt; token and err may be read when done is closed.
type exchangeAttempt struct {
	done  chan struct{}
	token string
	err   error
}

func newExchanger(life context.Context, u *url.URL, audiences []string, subject tokenSource, transport http.RoundTripper) *exchanger {
	return &exchanger{life: life, url: u.String(), audiences: slices.Sorted(slices.Values(audiences)), subject: subject, client: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// token implements tokenSource. It waits for the attempt under way or for ctx.
func (x *exchanger) token(ctx context.Context) (string, error) {
	x.mu.Lock()
	now := monotonic()
	if x.cached != "" && now < x.until {
		defer x.mu.Unlock()
		return x.cached, nil
	}
	if x.failure != nil && now < x.notUntil && x.flight == nil {
		defer x.mu.Unlock()
		return "", x.failure
	}
	going := x.flight
	if going == nil {
		going = &exchangeAttempt{done: make(chan struct{})}
		x.flight = going
		// The attempt serves all callers, so it does not end with the context of the first one.
		x.running.Go(func() { x.attempt(x.life, going) })
	}
	x.mu.Unlock()
	select {
	case <-going.done:
		return going.token, going.err
	case <-ctx.Done():
		return "", fmt.Errorf("wait for an access token: %w", context.Cause(ctx))
	}
}

// refused implements tokenSource: a token that is no longer cached was
// replaced already; the cached one is given up, but not more often than every 30 s.
func (x *exchanger) refused(ctx context.Context, used string) string {
	x.mu.Lock()
	now := monotonic()
	if used == x.cached || x.cached == "" || now >= x.until {
		if x.forced != 0 && now < x.forced+exchangePause {
			x.mu.Unlock()
			return ""
		}
		x.forced, x.cached = now, ""
	}
	x.mu.Unlock()
	token, err := x.token(ctx)
	if err != nil {
		return ""
	}
	return token
}

func (x *exchanger) attempt(ctx context.Context, going *exchangeAttempt) {
	subject, err := x.subject.token(ctx)
	var token string
	var ttl, asked time.Duration
	if err == nil {
		token, ttl, asked, err = x.once(ctx, subject)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	defer close(going.done)
	x.flight = nil
	now := monotonic()
	if failure, ok := errors.AsType[*ExchangeError](err); ok {
		// Up to a tenth more, so that agents which have lost the service together do not come back
		// together.
		x.pause = min(max(2*x.pause, exchangeSoon), exchangePause)
		pause := max(x.pause, asked)
		pause += rand.N(pause / 10)
		x.failure, x.notUntil = failure, now+pause
		failure.Next = time.Now().Add(pause)
	}
	if err != nil { // else it is the subject token; nothing was asked
		going.err = err
		return
	}
	text.RegisterToken(token)
	x.failure, x.pause = nil, 0
	x.cached, x.until = "", 0
	if ttl > 0 {
		x.cached, x.until = token, now+ttl
	}
	going.token = token
}

type exchangeAnswer struct {
	Data struct {
		Token string `json:"token"`
	} `json:"data"`
	Error string `json:"error"`
}

// once makes one request. It returns the token and how long it may be used, or an
// *ExchangeError and how long the service asks to wait.
func (x *exchanger) once(ctx context.Context, subject string) (token string, ttl, wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, exchangeTimeout)
	defer cancel()
	fail := func(status int, err error) (string, time.Duration, time.Duration, error) {
		if errors.Is(err, context.DeadlineExceeded) {
			err = &timeoutError{After: exchangeTimeout}
		}
		return "", 0, wait, &ExchangeError{URL: text.Redact(x.url), Status: status, Err: text.RedactError(transportCause(err))}
	}
	body, err := json.Marshal(struct {
		Namespace string   `json:"namespace"`
		Audiences []string `json:"audiences"`
	}{exchangeNamespace, x.audiences})
	if err != nil {
		return fail(0, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.url, bytes.NewReader(body))
	if err != nil {
		return fail(0, err)
	}
	for name, value := range map[string]string{"Authorization": "Bearer " + subject, "Content-Type": "application/json",
		"Accept": "application/json", "User-Agent": "authlib-client", "X-Org-ID": "0", "X-Realms": exchangeRealms} {
		req.Header.Set(name, value)
	}
	resp, err := x.client.Do(req)
	if err != nil {
		return fail(0, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, mostExchange))
	if err != nil {
		return fail(0, err)
	}
	var answer exchangeAnswer
	decodeErr := json.Unmarshal(data, &answer)
	switch {
	case resp.StatusCode != http.StatusOK:
		wait, _ = retryAfterOf(resp)
		reason := cmp.Or(strings.TrimSpace(text.Redact(answer.Error)), http.StatusText(resp.StatusCode))
		return fail(resp.StatusCode, fmt.Errorf("status %d: %s", resp.StatusCode, reason))
	case decodeErr != nil:
		return fail(resp.StatusCode, errors.New("the answer is not that of a token exchange"))
	case answer.Data.Token == "":
		return fail(resp.StatusCode, errors.New("the answer holds no token"))
	}
	if err := checkToken(answer.Data.Token); err != nil {
		return fail(resp.StatusCode, err)
	}
	return answer.Data.Token, lifetime(answer.Data.Token, resp.Header.Get("Date")), 0, nil
}

// lifetime is how long a token may be used, or 0 when it cannot be read: then it is used once. The
// expiry is compared with the clock of the issuer, where that is known, because the host's own may
// be anything.
func lifetime(token, date string) time.Duration {
	expiry, ok := expiryOf(token)
	if !ok {
		return 0
	}
	now, err := http.ParseTime(date)
	if err != nil {
		now = time.Now()
	}
	return min(max(expiry.Sub(now)-tokenMargin, 0), longestCached)
}

// expiryOf reads the exp claim of a JSON web token. The signature is for the API to
// verify, so an unknown algorithm is no error here.
func expiryOf(token string) (time.Time, bool) {
	var claims jwt.RegisteredClaims
	_, _, err := jwt.NewParser(jwt.WithPaddingAllowed()).ParseUnverified(token, &claims)
	if err != nil && !errors.Is(err, jwt.ErrTokenUnverifiable) || claims.ExpiresAt == nil {
		return time.Time{}, false
	}
	at := claims.ExpiresAt.Time
	return at, at.Unix() > 0 && at.Unix() <= 1e11
}

// tokenSource gives the value that authenticates a request.
type tokenSource interface {
	// token returns the current one.
	token(ctx context.Context) (string, error)
	// refused is called when the server answered 401 to used. It returns another token to try once, or
	// "".
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

// TokenFile returns the trimmed content of the file that a flag names, which is read again when it
// changes.
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
type fileToken struct{ file *Reloaded[string] }

func newFileToken(path string, log *slog.Logger) *fileToken {
	return &fileToken{TokenFile("--token-file", path, log)}
}

func (f *fileToken) token(context.Context) (string, error) { return f.file.Get() }

func (f *fileToken) refused(_ context.Context, used string) string {
	value, err := f.file.get(true)
	if err != nil || value == used {
		return ""
	}
	return value
}

func readToken(path string) (string, error) {
	data, err := fileid.Read(path, mostToken)
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
	source func(path string) tokenSource
	host   string
	header string // Authorization or X-Access-Token
}

func (a *authTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host != a.host { // a redirect elsewhere takes no token along
		return a.next.RoundTrip(req)
	}
	ctx, source := req.Context(), a.source(req.URL.Path)
	token, err := source.token(ctx)
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
	fresh := source.refused(ctx, token)
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
