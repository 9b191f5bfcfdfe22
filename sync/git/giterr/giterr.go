// Package giterr holds the errors of package git, below it, so that its parts can return them.
package giterr

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind is the class of an Error: what the caller decides by.
type Kind string

// The kinds of errors.
const (
	Auth           Kind = "auth"             // 401, 403, ssh key refused, host key unknown: a user has to act
	ReadOnly       Kind = "read-only"        // the credentials may read the repository, but not push to it
	Declined       Kind = "declined"         // a rule of the host forbids this push: protected branch, hook
	Overtaken      Kind = "overtaken"        // the branch of a push has changed: fetch, and make the commit again
	NotFound       Kind = "not-found"        // no repository at this URL, or none that these credentials may see
	BranchNotFound Kind = "branch-not-found" // the repository has no such ref; the hint names similar ones
	CommitNotFound Kind = "commit-not-found" // a commit that was selected by its hash is not available, or not on its branch
	PathNotFound   Kind = "path-not-found"   // the commit has no such directory
	Empty          Kind = "empty"            // the repository has no commits
	Unreachable    Kind = "unreachable"      // name, route, TLS, 5xx, a portal answers in its place: retry later
	Throttled      Kind = "throttled"        // 429: retry later
	Timeout        Kind = "timeout"          // the deadline of the context, or a silent server
	Cancelled      Kind = "cancelled"        // the context was cancelled; the cause is wrapped
	Moved          Kind = "moved"            // the ref changed while it was fetched: resolve again
	TooLarge       Kind = "too-large"        // a limit; wraps *TooLargeError
	Corrupt        Kind = "corrupt"          // damaged pack or mirror; a mirror is rebuilt by the next Fetch
	Protocol       Kind = "protocol"         // the server violates Git's smart protocol
	Refused        Kind = "refused"          // not allowed here: URL, insecure credentials, path
	Unverified     Kind = "unverified"       // not signed as required; wraps a *signature.Error
	Unknown        Kind = "unknown"          // anything else, such as a full disk
)

// Error is every error of this package that reaches a caller. Neither its text nor anything it
// wraps holds a secret.
type Error struct {
	Kind       Kind
	Op         string // "resolve", "fetch", "read tree", ...
	URL        string // redacted
	Err        error
	Hint       string        // what to do next; may be empty
	RetryAfter time.Duration // what the server asked for; 0 = it did not
}

func (e *Error) Error() string {
	s := e.Op + " " + e.URL + ": " + e.Err.Error()
	if e.URL == "" {
		s = strings.TrimPrefix(e.Op+": "+e.Err.Error(), ": ")
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// KindOf is the Kind of the first Error in err's chain, Unknown when there is none, and "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Unknown
}

// ErrUnknownCommit is wrapped when a commit is not in the mirror.
var ErrUnknownCommit = errors.New("commit is not in the mirror")

// TooLargeError says which limit was exceeded. Size is what was announced or counted when the limit
// was hit.
type TooLargeError struct {
	What        string // "object", "pack", "number of objects", ...
	Size, Limit int64
	Count       bool // Size and Limit count things; else they are bytes
}

func (e *TooLargeError) Error() string {
	unit := " bytes"
	if e.Count {
		unit = ""
	}
	return fmt.Sprintf("%s of %d%s exceeds the limit of %d", e.What, e.Size, unit, e.Limit)
}

// Plain is an error that shows Text only. What it stands for is visible to errors.Is and errors.As,
// but not printed by walking the chain: the texts of foreign errors may echo anything.
type Plain struct {
	Text  string
	Inner error
}

func (p *Plain) Error() string        { return p.Text }
func (p *Plain) Is(target error) bool { return errors.Is(p.Inner, target) }
func (p *Plain) As(target any) bool   { return errors.As(p.Inner, target) }

// New is an error of a kind, and what to do next; hint may be empty.
func New(k Kind, text, hint string) *Error { return Wrap(k, errors.New(text), hint) }

// Wrap is New for an error that exists already.
func Wrap(k Kind, err error, hint string) *Error { return &Error{Kind: k, Err: err, Hint: hint} }

// SHA256 refuses a repository of that object format.
var SHA256 = New(Refused, "object format sha256 is not supported by this version", "use a repository with the object format sha1")
