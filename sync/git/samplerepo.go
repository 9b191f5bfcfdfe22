package git

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"limpet/sync/auth"
	"limpet/sync/git/gitref"
)

// Repositories made on the spot, with no git on the host: for the demo and for
// trying things out. A Remote may name one under Options.AllowLocal.

// CreateRepository makes an empty bare repository in dir, whose HEAD is the
// branch main. It is an error when dir exists and is not empty.
func CreateRepository(dir string) error {
	if files, err := os.ReadDir(dir); err == nil && len(files) > 0 {
		return fmt.Errorf("create repository: %s is not empty", dir)
	}
	if err := makeBare(dir, "refs/heads/main"); err != nil {
		return fmt.Errorf("create repository: %w", err)
	}
	return nil
}

// CommitFiles writes one commit on a branch of a local repository: files by path. Without the
// branch it begins it. It returns the hash of the commit. Paths pass the rule that trees pass when
// they are read.
func CommitFiles(dir, branch, message string, files map[string][]byte, when time.Time) (hash string, err error) {
	scratch, err := os.MkdirTemp("", "limpet-commit-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(scratch)
	m := newMirrors(scratch, Options{AllowLocal: []string{dir}})
	defer m.Close()
	ctx, r := context.Background(), Remote{URL: auth.Address{Scheme: "file", Path: dir}.String()}
	ref, err := m.Resolve(ctx, r, gitref.Branch(branch))
	if err == nil {
		_, err = m.Fetch(ctx, r, ref)
	} else if kind := KindOf(err); kind == Empty || kind == BranchNotFound {
		err = nil
	}
	if err != nil {
		return "", err
	}
	var edits []Edit
	for _, path := range slices.Sorted(maps.Keys(files)) {
		edits = append(edits, Edit{Path: path, Blob: NewBlob(files[path])})
	}
	c, err := m.Compose(ctx, r, ref.Hash, edits)
	if err == nil {
		err = errors.Join(c.Outcomes...)
	}
	if err != nil {
		return "", err
	}
	author := Person{Name: "limpet", Mail: "limpet@localhost"}
	made, err := c.Commit(CommitOptions{Author: author, Committer: author, When: when, Message: message})
	if err != nil {
		return "", err
	}
	return made.Hash, m.Push(ctx, r, headPrefix+branch, ref.Hash, made)
}
