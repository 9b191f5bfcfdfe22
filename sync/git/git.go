// Package git keeps bare mirrors of Git remotes on disk and reads commits, trees and blobs from
// them. It is the one door to go-git.
//
// A mirror holds what jobs need: the tips that were asked for, shallow at first, and no worktree
// ever. It is a cache: it may be deleted while no process uses it, and a damaged one is thrown away
// and cloned afresh once.
//
// Nothing that a server sends is trusted. Bytes are counted on the wire, a pack is examined object
// by object before anything of it is kept or inflated beyond the limits, object hashes are computed
// here, and tree entries pass the rule of path.go. Texts from the server are cleaned of control
// characters and secrets.
//
// Bounds: pack.Limits for refs, packs, objects and trees; refsKept and listingsKept for lists of
// refs in memory; pack.MaxTags for tags of tags; maxEqual for tags of equal versions; maxBelow,
// maxHaves and maxOtherTips for haves; those of package attributes for .gitattributes; maxConfig
// for .gitmodules and .lfsconfig; maxSubmodules for submodules; maxOpen of package pack for the
// open files of all packs.
package git

import (
	"strings"
	"time"

	"limpet/sync/auth"
	"limpet/sync/git/giterr"
	"limpet/sync/git/pack"
	"limpet/sync/git/transfer"
	"limpet/sync/git/transport"
)

// Remote is a repository and the means to ask it. It is plain data: two calls with equal URLs use
// one mirror.
type Remote struct {
	URL           string            // https, http, ssh or user@host:path; a path or file URL under Options.AllowLocal
	Creds         *auth.Credentials // nil = ask without credentials
	AllowInsecure bool              // credentials may go over plain http
	Limits        pack.Limits       // zero fields take the defaults of Options
	Meter         *transfer.Meter   // counts what comes; nil = none
	Requests      RequestLimits     // make those of the host stricter
	// Receiver gets files of the commit that is fetched, those below Dir, while they come; nil = none.
	Receiver pack.Receiver
	Dir      string
	// Fallbacks are other servers of the same repository, see fallback.go.
	Fallbacks []Fallback
	// Down is why the server of URL cannot be asked now although nothing was sent to it:
	// its credentials could not be made. Nil is the rule.
	Down *Error
	// Demands returns what of the commit of a submodule at a URL has to be signed; nil = nothing.
	Demands func(url string) ([]Verification, error)
	// LastSynced is the commit that was synced last, "" if none.
	LastSynced string
}

// Ref is a name on the remote and what it stood for when it was resolved.
type Ref struct {
	Name string // full name, such as "refs/heads/main"; a bare commit has its hash here
	Hash string // commit, 40 hex digits
	Tag  string // the tag object, if it is an annotated tag; another one when the tag was moved
	// Pinned reports that the commit was asked for by its hash: Name is then the branch
	// that it has to be on, if one was given, whose tip may be another.
	Pinned bool
	Stored bool // a pinned commit that is in the mirror: no server was asked
	Via    Via  // the fallback that announced it; zero = the server of Remote.URL
}

// Branch is the name without "refs/heads/"; other names are returned whole.
func (r Ref) Branch() string { return strings.TrimPrefix(r.Name, "refs/heads/") }

// Short is the name as people write it: without "refs/heads/" or "refs/tags/".
func (r Ref) Short() string { return strings.TrimPrefix(r.Branch(), "refs/tags/") }

// Stats describes what a Fetch did.
type Stats struct {
	Bytes    int64         // received from the server, all requests
	Requests int           // sent to the server; 0 = the commit was here already
	Objects  int           // new objects
	Inflated int64         // bytes of the new objects
	Full     bool          // a first clone, nothing older was of use
	Rebuilt  bool          // the mirror was thrown away first: older commits may be gone
	Elapsed  time.Duration // wall time, waiting for the mirror's turn included
}

// Tree is the content of a directory at a commit, recursively.
type Tree struct {
	Commit  string
	Files   []File    // sorted by path
	Dirs    []string  // sorted, relative, without slash at the end; "" is not listed
	Refused []Refusal // entries that broke the path rule, links and submodules; the first thousand
	More    int       // further ones
	// Submodules are those that were fetched, by path.
	Submodules map[string]Submodule
}

// Submodule is a commit of another remote.
type Submodule struct {
	Remote Remote
	Commit string
}

// File is a regular file of a Tree or a Change.
type File struct {
	Path string // relative to the directory asked for, "/" between parts
	Hash string // blob, 40 hex digits
	Size int64  // bytes
	Mode string // "100644" or "100755"
	LFS  bool   // .gitattributes give it the filter of Git LFS, and it may be a pointer
	Home string // URL of the submodule that has it; "" = the remote itself
}

// Refusal is a tree entry that was left out, and why. Path is made safe to
// show: control characters are escaped and long names cut.
type Refusal struct {
	Path   string
	Kind   string // in the singular, such as "symbolic link"
	Reason string
	commit string // of a submodule
}

// Comparison is what differs between two commits, below a directory.
type Comparison struct {
	Files []Change // sorted by path
	Dirs  bool     // a directory was added or deleted
	// Unrefused is the path of an entry that Tree refuses in the first commit and does not in the
	// second; "" for none.
	Unrefused string
	Refused   string // the same of one that it refuses in the second commit and does not in the first
}

// Change is one difference between two commits.
type Change struct {
	Type     string // one of the Change constants
	Path     string // in the newer commit; of the deleted file for ChangeDeleted
	From     string // in the older commit, for ChangeRenamed
	Hash     string // blob in the newer commit; "" for ChangeDeleted
	FromHash string // blob in the older commit; "" for ChangeAdded
	Mode     string // as in File; "" for ChangeDeleted
}

// The types of a Change.
const (
	ChangeAdded    = "added"
	ChangeModified = "modified" // content or executable bit
	ChangeDeleted  = "deleted"
	ChangeRenamed  = "renamed" // without a change of content
)

// CommitInfo is the summary of a commit. The texts come from the repository and are cleaned of
// control characters.
type CommitInfo struct {
	Hash    string
	Tree    string
	Parents []string
	Author  string // "Name <mail>"
	When    time.Time
	Subject string // first line of the message
}

// Options of Open.
type Options = transport.Options

// RequestLimits of a Remote.
type RequestLimits = transport.RequestLimits

// DefaultWhole is the default of Options.Whole.
const DefaultWhole = transport.DefaultWhole

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

// KindOf returns the Kind of the first Error in err's chain, Unknown when there is none, and "" for
// nil.
func KindOf(err error) Kind { return giterr.KindOf(err) }
