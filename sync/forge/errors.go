package forge

import (
	"fmt"

	"limpet/sync/netx"
)

// Error is every error of this package that reaches a caller, but for those that
// wrap ErrNone.
type (
	Error     = netx.Error
	ErrorKind = netx.ErrorKind
	Field     = netx.Field
)

// The kinds of errors.
const (
	Unauthorized = netx.Unauthorized
	Forbidden    = netx.Forbidden
	NotFound     = netx.NotFound
	RateLimited  = netx.RateLimited
	Unavailable  = netx.Unavailable
	Refused      = netx.Refused
	Protocol     = netx.Protocol
	Invalid      = netx.Invalid
	Cancelled    = netx.Cancelled
	Unknown      = netx.Unknown
)

// Reasons of the condition Ready. Source: Grafana's health.go.
const (
	ReasonInvalidSpec          = netx.ReasonInvalidSpec
	ReasonAuthenticationFailed = netx.ReasonAuthenticationFailed
	ReasonServiceUnavailable   = netx.ReasonServiceUnavailable
	ReasonRateLimited          = netx.ReasonRateLimited
)

// KindOf is netx.KindOf.
func KindOf(err error) ErrorKind { return netx.KindOf(err) }

// invalid returns an error of a request that was not sent.
func invalid(op, format string, args ...any) *Error {
	return &Error{Kind: Invalid, Op: op, Err: fmt.Errorf(format, args...)}
}
