// Package sink writes the tree of a commit into a directory, so that a program on the same host
// finds plain files there, such as a Grafana with classic file provisioning.
//
// The directory changes atomically: the whole tree is written beside it, synced to the disk and
// renamed into place. A reader sees the old tree or the new one, also after a power cut. Unchanged
// files are hard links to the present ones, so a second write of one commit writes nothing. The
// former tree stays beside the new one, hidden and without what is not shown any more: the next write
// makes its changes there and exchanges the two, in the time of its changes.
//
//	scan.go      what is on the disk, and what is trusted without a read
//	plan.go      what a write changes, from the files of a commit
//	amend.go     the same from the changes between two commits
//	ahead.go     files that are written before they are planned, at the first write
//	write.go     writes a generation and shows it
//	spare.go     the generation that is not shown
//	manifest.go  what limpet has written, and for whom
//
// A manifest in the directory records its owner. A directory without one is used only if it is
// empty, and files of other writers are kept. Nothing outside the permitted prefix is changed,
// whatever links are inside.
package sink

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"limpet/sync/api"
)

// Target is a directory that may be written.
type Target struct {
	prefix string // as configured
	rel    string // below the prefix, slash-separated
}

// String returns the path of the directory.
func (t Target) String() string { return filepath.Join(t.prefix, filepath.FromSlash(t.rel)) }

// Permit returns the Target for dir if it lies below one of the prefixes. It compares names only;
// Open checks links.
func Permit(dir string, prefixes []string) (Target, error) {
	if !filepath.IsAbs(dir) {
		return Target{}, fmt.Errorf("directory %q is not an absolute path", dir)
	}
	if strings.ContainsRune(dir, 0) {
		return Target{}, fmt.Errorf("directory %q is not a path", dir)
	}
	dir = filepath.Clean(dir)
	if api.TemporarySink.MatchString(dir) {
		return Target{}, fmt.Errorf("directory %s has the name of a temporary directory of limpet, which it removes; name another one", dir)
	}
	for _, prefix := range prefixes {
		if prefix = filepath.Clean(prefix); !filepath.IsAbs(prefix) {
			continue
		}
		rel, err := filepath.Rel(prefix, dir)
		if err == nil && rel != "." && filepath.IsLocal(rel) {
			return Target{prefix: prefix, rel: filepath.ToSlash(rel)}, nil
		}
	}
	if len(prefixes) == 0 {
		return Target{}, fmt.Errorf("directory %s may not be written: this agent has no --sink-prefix; start it with --sink-prefix %s",
			dir, filepath.Dir(dir))
	}
	return Target{}, fmt.Errorf("directory %s may not be written: it is not below a --sink-prefix of this agent (%s)",
		dir, strings.Join(prefixes, ", "))
}

// Probe returns why the directory cannot be written for owner, as far as that is known without a
// write.
func Probe(t Target, owner string) error {
	if _, _, err := Check(t, owner); errors.As(err, new(*ForeignError)) {
		return err
	}
	dir := filepath.Dir(t.String())
	for dir != filepath.Clean(t.prefix) {
		if _, err := os.Lstat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir) // a write makes the missing ones
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("directory %s: %w", dir, err)
	}
	return nil
}

// File is one file of the tree.
type File struct {
	Path string // slash-separated, clean, relative
	Hash string // git blob, or SHA256 and the SHA-256 of the content
	Size int64
	Exec bool
	UID  string // of the dashboard in it, which the manifest keeps; "" = none
	at   int    // in the tree
}

// SHA256 begins a File.Hash that is the one of the content.
const SHA256 = "sha256:"

// parent opens the directory that holds the target and creates it if necessary. It rejects links
// that lead out of the prefix.
func (t Target) parent() (*os.Root, error) {
	root, err := openPrefix(t.prefix)
	if err != nil {
		return nil, err
	}
	up := path.Dir(t.rel)
	if up == "." {
		return root, nil
	}
	defer root.Close()
	if err := t.unnested(root, up); err != nil {
		return nil, err
	}
	if err := root.MkdirAll(up, dirMode); err != nil {
		return nil, fmt.Errorf("make directory %s: %w", filepath.Dir(t.String()), err)
	}
	parent, err := root.OpenRoot(up)
	if err != nil {
		return nil, fmt.Errorf("open directory %s: %w", filepath.Dir(t.String()), err)
	}
	return parent, nil
}

// unnested returns an error for a directory inside another sink: the next write of the outer one
// would hide the inner one.
func (t Target) unnested(root *os.Root, up string) error {
	for ; up != "."; up = path.Dir(up) {
		_, err := root.Lstat(path.Join(up, manifestPath))
		if err == nil {
			return fmt.Errorf("directory %s lies inside %s, which is written as a whole for another repository",
				t, filepath.Join(t.prefix, filepath.FromSlash(up)))
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("look at directory %s: %w", filepath.Join(t.prefix, filepath.FromSlash(up)), err)
		}
	}
	return nil
}
