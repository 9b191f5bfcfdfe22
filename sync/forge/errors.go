package forge

import (
	"errors"
	"fmt"
	"time"
)

// ErrorKind is the class of an Error: what the caller decides by.
type ErrorKind string

// The kinds of errors.
const (
	Unauthorized ErrorKind = "unauthorized" // 401: the identity is not accepted
	Forbidden    ErrorKind = "forbidden"    // 403, and 404 for lists that only some may see: a right is missing
	NotFound     ErrorKind = "not-found"    // 404, 410
	RateLimited  ErrorKind = "rate-limited" // not before RetryAfter
	Unavailable  ErrorKind = "unavailable"  // no answer, 5xx, TLS, or something else answers in its place: later
	Refused      ErrorKind = "refused"      // the host understands and does not do it: 400, 409, 422
	Protocol     ErrorKind = "protocol"     // an answer that is none of this API
	Invalid      ErrorKind = "invalid"      // this side will not ask: URL, key, insecure credentials
	Cancelled    ErrorKind = "cancelled"    // the context of the caller has ended; its cause is wrapped
	Unknown      ErrorKind = "unknown"      // not an error of this package
)

// Reasons of the condition Ready. Source: Grafana's health.go.
const (
	ReasonInvalidSpec          = "InvalidSpec"
	ReasonAuthenticationFailed = "AuthenticationFailed"
	ReasonServiceUnavailable   = "ServiceUnavailable"
	ReasonRateLimited          = "RateLimited"
)

// Error is every error of this package that reaches a caller, but for those that
// wrap ErrNone. Neither its text nor what it wraps holds a secret.
type Error struct {
	Kind       ErrorKind
	Op         string        // "list webhooks of team/site"
	Identity   string        // who asked, for people: "GitHub App 12, installation 34"; "" = nobody
	Endpoint   string        // method and URL, without query
	Status     int           // of the answer; 0 = there was none
	Err        error         // what is wrong
	RetryAfter time.Duration // RateLimited and Unavailable: what the host asked for; 0 = it did not
	Fields     []Field       // members of the Connection that are to blame, if that is known
}

// Field is a member of an object that is to blame for an Error.
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

// Reason is the reason of a condition that tells of this error.
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

// KindOf is the Kind of the first Error in err's chain, Unknown when there is
// none, and "" for nil.
func KindOf(err error) ErrorKind {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Unknown
}

// invalid is a refusal of this side.
func invalid(op, format string, args ...any) *Error {
	return &Error{Kind: Invalid, Op: op, Err: fmt.Errorf(format, args...)}
}
