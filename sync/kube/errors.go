package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"limpet/sync/netx"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NotKubernetesError means that the answer is not that of a Kubernetes-style API but of
// another program, a login page or a captive portal.
type NotKubernetesError struct {
	URL    string // without secrets
	Status int
	Got    string // what was found instead, in a few words
}

func (e *NotKubernetesError) Error() string {
	return fmt.Sprintf("%s is not a Kubernetes-style API: got %s", e.URL, e.Got)
}

// UnreachableError means that the server gave no answer: no route,
// no name, refused, an untrusted certificate, no answer in time.
type UnreachableError struct {
	Server string
	Err    error
}

func (e *UnreachableError) Error() string { return fmt.Sprintf("reach %s: %v", e.Server, e.Err) }
func (e *UnreachableError) Unwrap() error { return e.Err }

// timeoutError means that a call had no complete answer in time.
type timeoutError struct{ After time.Duration }

func (e *timeoutError) Error() string { return fmt.Sprintf("no complete answer within %v", e.After) }

// Timeout makes it one for net.Error.
func (e *timeoutError) Timeout() bool { return true }

// Temporary is the rest of net.Error.
func (e *timeoutError) Temporary() bool { return true }

var _ net.Error = (*timeoutError)(nil)

// retryAfterError carries the Retry-After of an answer without a Status object.
type retryAfterError struct {
	err   error
	after time.Duration
}

func (e *retryAfterError) Error() string { return e.err.Error() }
func (e *retryAfterError) Unwrap() error { return e.err }

// Retryable reports whether the same call may succeed a little later: the server is
// busy or failing (429, 500, 502, 503, 504), the call took too long, or the connection
// broke. The call may have been carried out nevertheless.
func Retryable(err error) bool {
	var (
		notKubernetes *NotKubernetesError
		flag          *FlagError
		redirect      *redirectError
		exchange      *ExchangeError
		last          final
	)
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.As(err, &last),
		errors.As(err, &notKubernetes), errors.As(err, &flag), errors.As(err, &redirect), isCertificateError(err), errors.Is(err, errTooLarge):
		return false
	case errors.As(err, &exchange):
		return exchangeRetryable(exchange)
	}
	if status := statusOf(err); status != nil {
		switch status.Code {
		case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
			http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return false
	}
	return isTransportError(err)
}

// UnavailableError means that a call failed for a reason that does not depend on its
// object: no answer, a busy server (429, 502, 503, 504), the answer of another program,
// or a token that is not accepted at the moment (401). The same call may succeed later.
type UnavailableError struct{ Err error }

func (e *UnavailableError) Error() string {
	return "API unavailable: " + e.Err.Error()
}
func (e *UnavailableError) Unwrap() error { return e.Err }

// NotServed reports whether a server has answered that it does not have an object or its
// kind, or not for this client. It will say the same next time.
func NotServed(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsNotAcceptable(err)
}

// AsUnavailable wraps the error of a call in an *UnavailableError when it is one, and returns
// any other as it is. err must be of a call, not of a disk.
func AsUnavailable(err error) error {
	var (
		already       *UnavailableError
		notKubernetes *NotKubernetesError
		exchange      *ExchangeError
	)
	switch {
	case err == nil, errors.As(err, &already), errors.Is(err, context.Canceled), errors.Is(err, errTooLarge):
		return err
	case errors.As(err, &notKubernetes), errors.As(err, &exchange):
		return &UnavailableError{Err: err}
	}
	if status := statusOf(err); status != nil {
		switch status.Code {
		case http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusBadGateway,
			http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return &UnavailableError{Err: err}
		}
		return err
	}
	if isTransportError(err) {
		return &UnavailableError{Err: err}
	}
	return err
}

// isTransportError reports whether a call had no answer.
func isTransportError(err error) bool {
	var (
		netErr net.Error
		urlErr *url.Error
		after  *retryAfterError
	)
	return errors.As(err, &netErr) || errors.As(err, &urlErr) || errors.As(err, &after) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed) ||
		strings.Contains(err.Error(), "stream error") || strings.Contains(err.Error(), "http2: ")
}

// transportCause drops the method and the URL that net/http puts in front.
func transportCause(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

func isCertificateError(err error) bool {
	var (
		verify    *tls.CertificateVerificationError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
	)
	return errors.As(err, &verify) || errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &invalid)
}

func statusOf(err error) *metav1.Status {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return nil
	}
	s := status.Status()
	return &s
}

// RetryAfter returns how long the server asked to wait, at most 5 minutes.
func RetryAfter(err error) (time.Duration, bool) {
	var after *retryAfterError
	if errors.As(err, &after) {
		return min(after.after, longestRetryAfter), true
	}
	var exchange *ExchangeError
	if errors.As(err, &exchange) && !exchange.Next.IsZero() {
		return min(max(time.Until(exchange.Next), 0), longestRetryAfter), true
	}
	if status := statusOf(err); status != nil && status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		return min(time.Duration(status.Details.RetryAfterSeconds)*time.Second, longestRetryAfter), true
	}
	return 0, false
}

// retryAfterOf returns how long an answer asks to wait, at most 5 minutes.
func retryAfterOf(resp *http.Response) (time.Duration, bool) {
	after, ok := netx.RetryAfter(resp.Header, time.Now())
	return min(after, longestRetryAfter), ok
}
