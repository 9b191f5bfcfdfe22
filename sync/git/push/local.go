package push

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"limpet/state/atomicfile"
	"limpet/sync/git/giterr"
	"limpet/sync/git/pack"
	"limpet/sync/git/transport"
)

// A push to a repository on this host, where there may be no git: the pack is put beside its
// others, durable, before the branch names anything of it, and the branch changes under the lock
// file that git itself takes.

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
	s, err := pack.Spool(dir, bytes.NewReader(content), l, nil, nil)
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
