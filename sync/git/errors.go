package git

import "limpet/sync/git/giterr"

// The errors of this package and of those below it, for callers.
type (
	Error         = giterr.Error
	Kind          = giterr.Kind
	TooLargeError = giterr.TooLargeError
)

// The kinds of errors, see package giterr.
const (
	Auth           = giterr.Auth
	ReadOnly       = giterr.ReadOnly
	Declined       = giterr.Declined
	Overtaken      = giterr.Overtaken
	NotFound       = giterr.NotFound
	BranchNotFound = giterr.BranchNotFound
	CommitNotFound = giterr.CommitNotFound
	PathNotFound   = giterr.PathNotFound
	Empty          = giterr.Empty
	Unreachable    = giterr.Unreachable
	Throttled      = giterr.Throttled
	Timeout        = giterr.Timeout
	Cancelled      = giterr.Cancelled
	Moved          = giterr.Moved
	TooLarge       = giterr.TooLarge
	Corrupt        = giterr.Corrupt
	Protocol       = giterr.Protocol
	Refused        = giterr.Refused
	Unverified     = giterr.Unverified
	Unknown        = giterr.Unknown
)

// ErrUnknownCommit is wrapped when a commit is not in the mirror.
var ErrUnknownCommit = giterr.ErrUnknownCommit

// KindOf returns the Kind of the first Error in err's chain, Unknown when there is none,
// and "" for nil.
func KindOf(err error) Kind { return giterr.KindOf(err) }
