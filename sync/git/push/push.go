// Package push sends commits to a branch of a Git host by compare and swap: the host takes
// them if the branch is at the commit that they build on, and nothing is ever forced.
package push

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"limpet/state/atomicfile"
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
}

var errReadOnly = giterr.New(giterr.ReadOnly, "bundles and another limpet are only read", "push to the Git host that they come from")

// Push has a branch go from one commit to another. The host compares Old with what it
// has; nothing is ever forced. A repository on this host, and a directory, is written to in its place.
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

// A push to a repository on this host, where there may be no git: the pack is put beside its others, durable,
// before the branch names anything of it, and the branch changes under the lock file that git itself takes.

// hooks would have to be asked before a branch changes. They are not run here.
var hooks = []string{"pre-receive", "update", "reference-transaction"}

// Local makes a change of a branch of the repository in a directory.
func Local(dir string, u Update, l pack.Limits) error {
	store, err := transport.OpenLocal(dir)
	if err != nil {
		return err
	}
	defer store.Close()
	worktree := false
	if _, err := os.Stat(filepath.Join(dir, ".git", "objects")); err == nil {
		dir, worktree = filepath.Join(dir, ".git"), true
	}
	for _, hook := range hooks {
		if info, err := os.Stat(filepath.Join(dir, "hooks", hook)); err == nil && info.Mode()&0o111 != 0 {
			return giterr.Wrap(giterr.Declined, fmt.Errorf("the repository has a hook %s, which is not run for a local path", hook),
				"serve the repository over ssh or https")
		}
	}
	if head, err := store.Reference(plumbing.HEAD); worktree && err == nil && head.Target().String() == u.Branch {
		return giterr.New(giterr.Declined, "the branch is checked out there", "make it a bare repository, or check out another branch")
	}
	if now, err := localTip(dir, u); err != nil || now == u.New {
		return err
	}
	if err := addPack(dir, u.Objects, l); err != nil {
		return err
	}
	return swap(dir, u)
}

// localTip is the commit that the branch has, if the push may be made.
func localTip(dir string, u Update) (pack.ID, error) {
	refs, err := transport.LocalRefs(dir)
	if err != nil {
		return pack.ID{}, err
	}
	for name := range refs {
		if strings.HasPrefix(name, u.Branch+"/") || strings.HasPrefix(u.Branch, name+"/") {
			return pack.ID{}, declined(fmt.Sprintf("there is a branch %s, so that there can be none of this name",
				strings.TrimPrefix(name, branchPrefix)))
		}
	}
	now := refs[u.Branch]
	if now != u.Old && now != u.New {
		return now, overtaken("it is at another commit")
	}
	return now, nil
}

// addPack puts objects into a repository, as a pack.
func addPack(dir string, made []pack.Packed, l pack.Limits) error {
	content := pack.Encode(made)
	if err := os.MkdirAll(filepath.Join(dir, "objects", "pack"), 0o755); err != nil {
		return err
	}
	s, err := pack.Spool(dir, bytes.NewReader(content), l, nil)
	if s != nil {
		defer s.Discard()
	}
	if err != nil {
		return err
	}
	if err := s.WriteIndex(dir); err != nil {
		return err
	}
	return s.Publish(dir)
}

// swap points the branch at the commit if it still is what it was.
func swap(dir string, u Update) error {
	path := filepath.Join(dir, filepath.FromSlash(u.Branch))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return overtaken("somebody else has locked it, or has died: " + path + ".lock")
	}
	if err != nil {
		return err
	}
	renamed := false
	defer func() {
		if !renamed { // else a lock of that name belongs to another process
			os.Remove(lock.Name())
		}
	}()
	if now, err := localTip(dir, u); err != nil || now == u.New {
		return errors.Join(err, lock.Close())
	}
	_, err = fmt.Fprintf(lock, "%s\n", u.New)
	if err = errors.Join(err, lock.Sync(), lock.Close()); err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if err := os.Remove(path); err != nil { // left by branches that were in it
			return err
		}
	}
	if err := os.Rename(lock.Name(), path); err != nil {
		return err
	}
	renamed = true
	return atomicfile.SyncDir(filepath.Dir(path))
}
