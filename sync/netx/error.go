package netx

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"limpet/sync/text"
)

// ErrorKind is the class of an Error, for decisions of the caller.
type ErrorKind string

// The kinds of errors.
const (
	Unauthorized ErrorKind = "unauthorized" // 401: the identity is not accepted
	Forbidden    ErrorKind = "forbidden"    // 403, and 404 for lists with limited access: a right is missing
	NotFound     ErrorKind = "not-found"    // 404, 410
	RateLimited  ErrorKind = "rate-limited" // not before RetryAfter
	Unavailable  ErrorKind = "unavailable"  // no answer, 5xx, TLS, or a web page in place of an answer: later
	Refused      ErrorKind = "refused"      // the host understands and does not do it: 400, 409, 422
	Protocol     ErrorKind = "protocol"     // the answer is not one of this API
	Invalid      ErrorKind = "invalid"      // nothing was sent: URL, key, insecure credentials
	Cancelled    ErrorKind = "cancelled"    // the context of the caller has ended; its cause is wrapped
	Unknown      ErrorKind = "unknown"      // not an Error
)

// Reasons of the condition Ready. Source: Grafana's health.go.
const (
	ReasonInvalidSpec          = "InvalidSpec"
	ReasonAuthenticationFailed = "AuthenticationFailed"
	ReasonServiceUnavailable   = "ServiceUnavailable"
	ReasonRateLimited          = "RateLimited"
)

// Error is a failed or refused HTTP call. Neither its text nor a wrapped error holds a secret.
type Error struct {
	Kind       ErrorKind
	Op         string        // "list webhooks of team/site"
	Identity   string        // for people: "GitHub App 12, installation 34"; "" = none
	Endpoint   string        // method and URL, without query
	Status     int           // of the answer; 0 = there was none
	Err        error         // what is wrong
	RetryAfter time.Duration // RateLimited and Unavailable: what the host asked for; 0 = it did not
	Fields     []Field       // members of the Connection that are wrong, if that is known
}

// Field is an invalid field of an object.
type Field struct {
	Type   string // of a cause of Kubernetes, such as FieldValueInvalid
	Field  string // such as spec.github.appID
	Detail string
}

func (e *Error) Error() string {
	s := e.Op + ": " + e.Err.Error()
	if e.Identity != "" {
		s += ", asked by " + e.Identity
	}
	if e.Endpoint != "" {
		s += " at " + e.Endpoint
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// Reason returns the reason of a condition for this error.
func (e *Error) Reason() string {
	switch e.Kind {
	case Unauthorized, Forbidden:
		return ReasonAuthenticationFailed
	case RateLimited:
		return ReasonRateLimited
	case Unavailable, Protocol, Cancelled, Unknown:
		return ReasonServiceUnavailable
	}
	return ReasonInvalidSpec
}

// KindOf returns the Kind of the first Error in err's chain, Unknown when there is none, and "" for
// nil.
func KindOf(err error) ErrorKind {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Unknown
}

// maxRetryAfter bounds Retry-After: it is the window of the rate limits of all hosts.
const maxRetryAfter = time.Hour

// RetryAfter parses the header of that name in both its forms.
func RetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseInt(value, 10, 64); err == nil && seconds >= 0 {
		return time.Duration(min(max(seconds, 1), int64(maxRetryAfter/time.Second))) * time.Second, true
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), time.Second), maxRetryAfter), true
	}
	return 0, false
}

// MayWantCertificate reports whether a host may answer with this status when a client
// certificate is missing; nginx answers 400.
func MayWantCertificate(status int) bool {
	return status == http.StatusBadRequest || status == http.StatusUnauthorized || status == http.StatusForbidden
}

// maxSafeText bounds the quoted text of a host. Unit: runes.
const maxSafeText = 300

// SafeText makes the text of a host safe to quote in an error: without the given secrets and other
// likely ones, on one line, and short. It is cut last, because half a secret could not be found.
func SafeText(s string, secrets ...string) string {
	s = text.Clean(s)
	for _, secret := range secrets {
		if secret != "" {
			s = strings.ReplaceAll(s, secret, "[redacted]")
		}
	}
	s = strings.TrimSpace(text.Redact(s))
	if runes := []rune(s); len(runes) > maxSafeText {
		s = string(runes[:maxSafeText]) + "…"
	}
	return s
}

// NoAnswer returns why a URL did not answer, in stable words, and the next step when
// certificates are the reason. hint is that of CertificateRequests.
func NoAnswer(err error, from *url.URL, hint string) string {
	fault, ok := TLSFaultOf(err, HostPort(from))
	switch {
	case ok && fault.Client:
		return fault.Why + " (" + cmp.Or(hint, fault.Next) + ")"
	case ok:
		return fault.Why + " (" + fault.Next + ")"
	case hint != "" && !errors.Is(err, context.DeadlineExceeded): // an alert may be lost on the way
		return SteadyText(err) + " (" + hint + ")"
	}
	return SteadyText(err)
}

// HostPort returns the host of a URL with its port, which is that of the scheme where the URL has
// none.
func HostPort(u *url.URL) string {
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), map[string]string{"https": "443", "http": "80"}[u.Scheme]))
}

// SteadyText returns the text of a network error without varying parts such as a port
// or the hour: statuses repeat it, and should change only with the error. The URL of a request
// is none of it: its query may hold a secret.
func SteadyText(err error) string {
	if call, ok := errors.AsType[*url.Error](err); ok {
		err = call.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op + ": " + op.Err.Error()
	}
	s, _, _ := strings.Cut(err.Error(), ": current time ")
	return s
}

// TLSFault is the reason of a failed TLS handshake and the next step. Both texts are
// stable, so that a status which repeats them does not change.
type TLSFault struct {
	Why, Next string
	Plain     bool // the other side does not speak TLS
	Client    bool // it does not take the certificate of this side, or requires one
}

// TLSFaultOf finds the fault in the error of a connection to address, a host with its port. The
// texts name the keys beside the credentials for authorities and certificates.
func TLSFaultOf(err error, address string) (TLSFault, bool) {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var verify *tls.CertificateVerificationError
	switch {
	case errors.As(err, &unknown):
		return TLSFault{Why: "x509: certificate signed by unknown authority",
			Next: "give the authority's certificate as ca.crt beside the credentials, or in a rule of git-credentials; " +
				"openssl s_client -showcerts -connect " + address + " shows it"}, true
	case errors.As(err, &host):
		return TLSFault{Why: "x509: certificate is not valid for " + host.Host + certificateNames(host.Certificate),
			Next: "check the host in the url"}, true
	case errors.As(err, &invalid):
		why := "x509: certificate is not valid"
		if cert := invalid.Cert; invalid.Reason == x509.Expired && cert != nil {
			why = "x509: certificate has expired on " + cert.NotAfter.UTC().Format(time.DateOnly)
			if time.Now().Before(cert.NotBefore) {
				why = "x509: certificate is not valid before " + cert.NotBefore.UTC().Format(time.DateOnly)
			}
		}
		return TLSFault{Why: why, Next: "check the clock of this host, then the certificate"}, true
	case errors.As(err, &verify):
		return TLSFault{Why: "x509: certificate is not trusted: " + verify.Err.Error(),
			Next: "give the authority's certificate as ca.crt beside the credentials"}, true
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return TLSFault{Why: "not a TLS server: " + address, Next: "check scheme and port of the url", Plain: true}, true
	}
	_, alert, found := strings.Cut(err.Error(), "remote error: tls: ")
	if !found {
		return TLSFault{}, false
	}
	return TLSFault{Why: "TLS handshake failed: " + alert,
		Next: "the server may require a client certificate, or another one: tls.crt and tls.key", Client: true}, true
}

func certificateNames(cert *x509.Certificate) string {
	if cert == nil || len(cert.DNSNames) == 0 {
		return ""
	}
	names := []rune(text.Clean(strings.Join(cert.DNSNames[:min(len(cert.DNSNames), 3)], ", ")))
	return ", only for " + string(names[:min(len(names), 200)])
}

// maxRequests bounds the remembered hosts.
const maxRequests = 256

// CertificateRequests remembers which hosts request a client certificate in the
// handshake. Such a host may accept a connection without one, and reject the request
// as if the token were invalid. The zero value is ready; safe for concurrent use.
type CertificateRequests struct {
	mu    sync.Mutex        // guards hints
	hints map[string]string // by key of Watch
}

type requestKey struct{}

// handshake is the context value of a watched handshake.
type handshake struct {
	asked *CertificateRequests
	key   string
}

// Watch returns the context for a request; it records handshakes of the request under
// key, which identifies the host and the credentials.
func (a *CertificateRequests) Watch(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, requestKey{}, handshake{a, key})
}

// Hint returns the advice about the client certificate requested under key, "" when none was
// requested or one was sent.
func (a *CertificateRequests) Hint(key string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.hints[key]
}

func (a *CertificateRequests) note(key, hint string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.hints[key]; a.hints == nil || !known && len(a.hints) >= maxRequests {
		a.hints = map[string]string{}
	}
	a.hints[key] = hint
}

// certificateChooser chooses a certificate as crypto/tls does, and records the request.
func certificateChooser(mine []tls.Certificate) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		hint, chosen := "it asks for a client certificate, and none is given: tls.crt and tls.key", &tls.Certificate{}
		for i := range mine {
			hint = "it asks for a client certificate of another authority than that of tls.crt"
			if info.SupportsCertificate(&mine[i]) == nil {
				hint, chosen = "", &mine[i]
				break
			}
		}
		if at, ok := info.Context().Value(requestKey{}).(handshake); ok {
			at.asked.note(at.key, hint)
		}
		return chosen, nil
	}
}
