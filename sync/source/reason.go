package source

import (
	"errors"

	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/netx"
)

// Reason returns Flux's reason for an error of reading a GitRepository, of a host that makes
// tokens, or of package git.
func Reason(err error) string {
	invalid, isInvalid := errors.AsType[*auth.SourceError](err)
	refused, isForge := errors.AsType[*netx.Error](err)
	_, isGit := errors.AsType[*git.Error](err)
	switch {
	case isInvalid:
		return invalid.Reason
	case isForge && refused.Kind == netx.Invalid:
		return auth.ReasonProvider
	case isForge, !isGit:
		return auth.ReasonAuthentication
	case git.KindOf(err) == git.Empty:
		return auth.ReasonEmpty
	}
	return auth.ReasonOperation
}
