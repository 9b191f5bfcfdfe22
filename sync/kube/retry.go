package kube

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/text"
)

// The schedule of Retry: 100 ms, doubled up to 5 s, each up to a tenth longer;
// 8 attempts take about 13 s in all, less than the expiry of a lease.
const (
	retryAttempts = 8
	retryFirst    = 100 * time.Millisecond
	retryLast     = 5 * time.Second
)

// Retry calls fn until it succeeds, up to 8 times, and returns its last error. It tries again when Retryable
// says so, and then waits as long as the server asked for, if it did. It returns at once when ctx ends or
// would end before the next attempt. fn must be harmless when done twice.
func Retry(ctx context.Context, fn func(ctx context.Context) error) error {
	return retryWhile(ctx, Retryable, fn)
}

// retryWhile is Retry for the errors that again accepts.
func retryWhile(ctx context.Context, again func(error) bool, fn func(ctx context.Context) error) error {
	pause := retryFirst
	for n := 1; ; n++ {
		err := fn(ctx)
		if err == nil || n == retryAttempts || ctx.Err() != nil || !again(err) {
			return err
		}
		wait := pause
		if after, ok := RetryAfter(err); ok {
			wait = max(wait, after)
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
			return err
		}
		if sleep(ctx, wait) != nil {
			return err
		}
		pause = min(2*pause, retryLast)
	}
}

// sleep waits for d and up to a tenth more. It returns the cause of ctx when that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d + rand.N(d/10+1)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Do makes a raw call: path is below the base URL and begins with a slash, body may be nil. contentType is
// that of the body; without a body it is the form in which the answer is wanted ("" = JSON). It repeats like
// Retry; a POST is repeated only when the server says that it did not take it (429, 503) or was not reached.
// A PATCH must be harmless when it is carried out twice.
//
// When the server answers with 400 or more, err is an API status error (see apierrors), and status and answer
// are filled in as well. status is 0 when there was no answer.
func (c *Client) Do(ctx context.Context, method, path string, query url.Values, contentType string, body []byte) (status int,
	answer []byte, err error) {
	return c.do(ctx, method, path, query, contentType, body, func(err error) bool {
		return Retryable(err) && (method != http.MethodPost || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) ||
			neverSent(err))
	})
}

// DoIdempotent is Do for a POST that is harmless when it is carried out twice: it is repeated like the others.
func (c *Client) DoIdempotent(ctx context.Context, method, path string, query url.Values, contentType string, body []byte) (status int,
	answer []byte, err error) {
	return c.do(ctx, method, path, query, contentType, body, Retryable)
}

func (c *Client) do(ctx context.Context, method, path string, query url.Values, contentType string, body []byte,
	again func(error) bool) (status int, answer []byte, err error) {
	err = retryWhile(ctx, again, func(ctx context.Context) error {
		status, answer, err = c.once(ctx, method, path, query, contentType, body)
		return err
	})
	return status, answer, err
}

func (c *Client) once(ctx context.Context, method, path string, query url.Values, contentType string, body []byte) (status int,
	answer []byte, err error) {
	req := c.rest.Verb(method).AbsPath(path).SetHeader("Accept", "application/json")
	for key, values := range query {
		for _, value := range values {
			req.Param(key, value)
		}
	}
	switch {
	case contentType == "":
	case body == nil:
		req.SetHeader("Accept", contentType)
	default:
		req.SetHeader("Content-Type", contentType)
	}
	if body != nil {
		req.Body(body)
	}
	result := req.Do(ctx).StatusCode(&status)
	answer, _ = result.Raw() // Error knows more
	err = result.Error()
	if failure := statusOf(err); failure != nil {
		status = int(failure.Code)
	}
	return status, answer, text.RedactError(err)
}

// neverSent reports whether a call cannot have reached the server.
func neverSent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return errors.Is(err, syscall.ECONNREFUSED) || is[*net.DNSError](err) || is[*ExchangeError](err) || ok && op.Op == "dial"
}
