package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"k8s.io/apimachinery/pkg/util/wait"

	"limpet/sync/text"
)

// The exchange of a long-lived token for short-lived access tokens, as
// Grafana's authlib does it: the same request, the same retries, the same
// life of the cached token. What is ours is the protection of the service:
// while it fails, there is one try every 30 s, and all callers in between get
// the error of the last one. Where nothing answers at all, it is most likely
// about to start, as this host is: then the first tries follow each other sooner.

const (
	exchangeNamespace = "*" // of the tokens: all namespaces
	exchangeTries     = 3   // of the first attempt; later ones have one
	exchangeFirstWait = 250 * time.Millisecond
	exchangeTimeout   = 10 * time.Second // of one try
	// exchangePause lies between attempts while the service fails, and between
	// refreshes that a 401 asks for while they do not help.
	exchangePause = 30 * time.Second
	// exchangeSoon is the pause after the first attempt to which nothing has
	// answered; it doubles with each further one up to exchangePause.
	exchangeSoon = time.Second
	// refreshPause lies between refreshes that did help: the keys of the
	// issuer were changed, or one of several servers has others.
	refreshPause = 5 * time.Second
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
	silence  time.Duration    // the last pause after an attempt to which nothing has answered
	forced   time.Duration    // monotonic; of the last refresh after a 401; 0 = none was made
	helped   bool             // the server took a token since then
}

// exchangeAttempt is one attempt; token and err may be read when done is closed.
type exchangeAttempt struct {
	done  chan struct{}
	token string
	err   error
}

func newExchanger(life context.Context, u *url.URL, audiences []string, subject tokenSource, transport http.RoundTripper) *exchanger {
	sorted := slices.Clone(audiences)
	slices.Sort(sorted)
	return &exchanger{life: life, url: u.String(), audiences: sorted, subject: subject, client: &http.Client{
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
		tries := exchangeTries
		if x.failure != nil {
			tries = 1
		}
		// The attempt serves all callers, so it does not end with the context
		// of the first one.
		x.running.Go(func() { x.attempt(x.life, going, tries) })
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
// replaced already; the cached one is given up, but not more often than every
// 5 s, and 30 s while that does not help.
func (x *exchanger) refused(ctx context.Context, used string) string {
	x.mu.Lock()
	now := monotonic()
	if used == x.cached || x.cached == "" || now >= x.until {
		pause := exchangePause
		if x.helped {
			pause = refreshPause
		}
		if x.forced != 0 && now < x.forced+pause {
			x.mu.Unlock()
			return ""
		}
		x.forced, x.helped, x.cached = now, false, ""
	}
	x.mu.Unlock()
	token, err := x.token(ctx)
	if err != nil {
		return ""
	}
	return token
}

// accepted implements tokenSource.
func (x *exchanger) accepted(used string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if used == x.cached {
		x.helped = true
	}
}

// attempt asks for a token and settles the flight.
func (x *exchanger) attempt(ctx context.Context, going *exchangeAttempt, tries int) {
	token, ttl, err := x.try(ctx, tries)
	x.mu.Lock()
	defer x.mu.Unlock()
	defer close(going.done)
	x.flight = nil
	now := monotonic()
	var failure *ExchangeError
	if errors.As(err, &failure) {
		pause := x.pause(failure)
		x.failure, x.notUntil = failure, now+pause
		failure.Next = time.Now().Add(pause)
		going.err = failure
		return
	}
	if err != nil { // the subject token; nothing was asked
		going.err = err
		return
	}
	text.RegisterToken(token)
	x.failure, x.silence = nil, 0
	x.cached, x.until = "", 0
	if ttl > 0 {
		x.cached, x.until = token, now+ttl
	}
	going.token = token
}

// pause is how long to leave the service alone after a failure, and up to a tenth
// more, so that agents which have lost it together do not come back together. It
// needs the lock.
func (x *exchanger) pause(failure *ExchangeError) time.Duration {
	pause := exchangePause
	if failure.Status == 0 {
		x.silence = min(max(2*x.silence, exchangeSoon), exchangePause)
		pause = x.silence
	}
	if after, ok := RetryAfter(failure.Err); ok {
		pause = max(pause, after)
	}
	return pause + rand.N(pause/10)
}

func (x *exchanger) try(ctx context.Context, tries int) (string, time.Duration, error) {
	subject, err := x.subject.token(ctx)
	if err != nil {
		return "", 0, err
	}
	var token string
	var ttl time.Duration
	backoff := wait.Backoff{Duration: exchangeFirstWait, Factor: 2, Jitter: 0.1, Steps: tries}
	_ = wait.ExponentialBackoffWithContext(ctx, backoff, func(ctx context.Context) (done bool, _ error) {
		token, ttl, err = x.once(ctx, subject)
		return !exchangeRetryable(err), nil
	})
	return token, ttl, err
}

func exchangeRetryable(err error) bool {
	var failure *ExchangeError
	if !errors.As(err, &failure) {
		return false
	}
	return failure.Status == 0 || failure.Status == http.StatusTooManyRequests || failure.Status >= 500
}

type exchangeRequest struct {
	Namespace string   `json:"namespace"`
	Audiences []string `json:"audiences"`
}

type exchangeAnswer struct {
	Data struct {
		Token string `json:"token"`
	} `json:"data"`
	Error string `json:"error"`
}

// once makes one request. Its error is an *ExchangeError.
func (x *exchanger) once(ctx context.Context, subject string) (string, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, exchangeTimeout)
	defer cancel()
	body, err := json.Marshal(exchangeRequest{Namespace: exchangeNamespace, Audiences: x.audiences})
	if err != nil {
		return "", 0, x.fail(0, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.url, bytes.NewReader(body))
	if err != nil {
		return "", 0, x.fail(0, err)
	}
	req.Header.Set("Authorization", "Bearer "+subject)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "authlib-client")
	req.Header.Set("X-Org-ID", "0")
	req.Header.Set("X-Realms", exchangeRealms)
	resp, err := x.client.Do(req)
	if err != nil {
		return "", 0, x.fail(0, exchangeTransportCause(err))
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, mostExchange))
	if err != nil {
		return "", 0, x.fail(0, exchangeTransportCause(err))
	}
	var answer exchangeAnswer
	decodeErr := json.Unmarshal(data, &answer)
	switch {
	case resp.StatusCode != http.StatusOK:
		return "", 0, x.fail(resp.StatusCode, exchangeRefusal(resp, answer.Error))
	case decodeErr != nil:
		return "", 0, x.fail(resp.StatusCode, errors.New("the answer is not that of a token exchange"))
	case answer.Data.Token == "":
		return "", 0, x.fail(resp.StatusCode, errors.New("the answer holds no token"))
	}
	if err := checkToken(answer.Data.Token); err != nil {
		return "", 0, x.fail(resp.StatusCode, err)
	}
	return answer.Data.Token, lifetime(answer.Data.Token, resp.Header.Get("Date")), nil
}

// exchangeRefusal makes an error of an answer that is not 200.
func exchangeRefusal(resp *http.Response, answer string) error {
	answer = strings.TrimSpace(text.Redact(answer))
	if answer == "" {
		answer = http.StatusText(resp.StatusCode)
	}
	err := fmt.Errorf("status %d: %s", resp.StatusCode, answer)
	if after, ok := retryAfterOf(resp); ok {
		return &retryAfterError{err: err, after: after}
	}
	return err
}

func (x *exchanger) fail(status int, err error) *ExchangeError {
	return &ExchangeError{URL: text.Redact(x.url), Status: status, Err: text.RedactError(err)}
}

// exchangeTransportCause drops the method and the URL that net/http puts in front.
func exchangeTransportCause(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return &timeoutError{After: exchangeTimeout}
	}
	return transportCause(err)
}

// lifetime is how long a token may be used, or 0 when it cannot be read: then
// it is used once. The expiry is compared with the clock of the issuer, where
// that is known, because the host's own may be anything.
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
