// Package push sends commits to a branch of a Git host by compare and swap: the host takes them if
// the branch is at the commit that they build on, and nothing is ever forced. The list of refs is
// read within Limits.RefsBytes, as for a fetch; a pack over Limits.PackBytes is not sent.
package push

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"limpet/sync/auth"
	"limpet/sync/git/giterr"
	"limpet/sync/git/pack"
	"limpet/sync/git/transport"
)

const branchPrefix = "refs/heads/"

// Update is one change of a branch of a host.
type Update struct {
	Branch  string  // full name
	Old     pack.ID // what it has to be; zero = it must not exist
	New     pack.ID
	Objects []pack.Packed // that the host may not have
	Edits   []Edit        // that make New of Old, for a directory
}

// Edit is one change of a tree. Paths are from the root of the repository, with "/"
// between their parts; one with a slash at its end is a directory and all below it.
type Edit struct {
	Path string
	// To is where Path is moved to: a whole path, of the same kind. "" = it is not moved.
	To string
	// Blob is the content that the file at Path is to have; nil removes what is at Path, or moves it.
	// A new file is not executable; of one that is there the mode stays.
	Blob *pack.Packed
}

var errReadOnly = giterr.New(giterr.ReadOnly, "bundles and another limpet are only read", "push to the Git host that they come from")

// Push has a branch go from one commit to another. The host compares Old with what it has; nothing
// is ever forced. A repository on this host, and a directory, is written to in its place.
func Push(c *transport.Call, u Update) error {
	if c.Pushes = true; c.Addr.Own() {
		return errReadOnly
	}
	switch c.Addr.Scheme {
	case auth.DirScheme:
		return Dir(c, u)
	case "file":
		return Local(c.Addr.Path, u, c.Limits)
	}
	content := pack.Encode(u.Objects)
	if size := int64(len(content)); size > c.Limits.PackBytes {
		return &giterr.TooLargeError{What: transport.PackBudget, Size: size, Limit: c.Limits.PackBytes}
	}
	leave, err := c.Visit()
	if err != nil {
		return err
	}
	defer leave()
	s, refs, err := c.ListPush()
	if err != nil {
		return err
	}
	defer s.Close()
	switch now := refs.References[u.Branch]; {
	case now == u.New:
		return nil // an earlier one has arrived
	case now != u.Old:
		return overtaken("it is at another commit")
	case !refs.Capabilities.Supports(capability.ReportStatus):
		return giterr.New(giterr.Protocol, "the server does not support report-status", "")
	}
	req := packp.NewReferenceUpdateRequest()
	for _, n := range []capability.Capability{capability.ReportStatus, capability.Sideband64k, capability.Quiet} {
		if refs.Capabilities.Supports(n) {
			req.Capabilities.Set(n)
		}
	}
	if refs.Capabilities.Supports(capability.Agent) {
		req.Capabilities.Set(capability.Agent, capability.DefaultAgent())
	}
	req.Commands = []*packp.Command{{Name: plumbing.ReferenceName(u.Branch), Old: u.Old, New: u.New}}
	req.Packfile, req.Progress = io.NopCloser(bytes.NewReader(content)), &c.Remarks
	c.SetBudget("answer to the push", transport.AnswerHead)
	report, err := s.ReceivePack(c.WithCall(), req)
	if report == nil {
		return cmp.Or(err, fmt.Errorf("nothing was said of the push: %w", io.ErrUnexpectedEOF))
	}
	return result(c, report, u.Branch)
}

// Check asks a server whether it takes a push: it has the server begin one and leaves it
// at that. A repository on this host is not asked.
func Check(c *transport.Call) error {
	if c.Pushes = true; c.Addr.Own() {
		return errReadOnly
	}
	switch c.Addr.Scheme {
	case auth.DirScheme:
		return checkDir(c)
	case "file":
		return nil
	}
	leave, err := c.Visit()
	if err != nil {
		return err
	}
	defer leave()
	s, _, err := c.ListPush()
	if err != nil {
		return err
	}
	return s.Close()
}

// result is what the server has made of the push.
func result(c *transport.Call, report *packp.ReportStatus, name string) error {
	if why := report.UnpackStatus; why != "ok" {
		return giterr.Wrap(giterr.Declined, fmt.Errorf("the host does not take the commit: %s", why), "its own log may say more")
	}
	for _, s := range report.CommandStatuses {
		if s.ReferenceName.String() != name {
			continue
		}
		if s.Status == "ok" {
			return nil
		}
		said := strings.ToLower(s.Status + " " + c.Remarks.Text())
		if slices.ContainsFunc(races, func(word string) bool { return strings.Contains(said, word) }) {
			return overtaken(s.Status)
		}
		return declined(s.Status)
	}
	return giterr.New(giterr.Protocol, "the report-status of the server does not name the branch", "")
}

// races are words of servers for a branch that is not what it was, or that another process
// else is about to change: git of all ages, JGit, and what hosts make of them.
var races = []string{"non-fast-forward", "non-fast forward", "fetch first", "cannot lock", "failed to lock", "unable to lock",
	"lock failure", "failed to update ref", "incorrect old value", "reference already exists", "reference does not exist", "stale info"}

func overtaken(why string) *giterr.Error {
	return giterr.Wrap(giterr.Overtaken, fmt.Errorf("the branch has moved on meanwhile: %s", why), "fetch it, and make the commit again")
}

func declined(why string) *giterr.Error {
	return giterr.Wrap(giterr.Declined, fmt.Errorf("the host refuses the push: %s", why),
		"a rule of the host is against it, such as a protected branch; ask for it to be changed, or write to another branch")
}
