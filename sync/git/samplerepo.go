package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"limpet/sync/git/pack"
	"limpet/sync/git/push"
	"limpet/sync/git/transport"
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
func CommitFiles(dir, branch, message string, files map[string][]byte, when time.Time) (string, error) {
	if err := checkRefName(branch); err != nil {
		return "", err
	}
	store, err := transport.OpenLocal(dir)
	if err != nil {
		return "", err
	}
	defer store.Close()
	refs, err := transport.LocalRefs(store.Filesystem().Root())
	if err != nil {
		return "", err
	}
	u := push.Update{Branch: headPrefix + branch, Old: refs[headPrefix+branch]}
	var c Composition
	if !u.Old.IsZero() {
		c.Base = u.Old.String()
		if c.base, err = transport.TreeOf(store, u.Old); err != nil {
			return "", err
		}
	}
	var edits []Edit
	for _, path := range slices.Sorted(maps.Keys(files)) {
		edits = append(edits, Edit{Path: path, Blob: NewBlob(files[path])})
	}
	read := func(id pack.ID) ([]byte, error) { return transport.RawTree(store, id) }
	e := &treeEditor{limits: pack.DefaultLimits, seen: map[pack.ID]bool{}, read: read}
	if err := cmp.Or(c.edit(context.Background(), e, edits), errors.Join(c.Outcomes...)); err != nil {
		return "", err
	}
	author := Person{Name: "limpet", Mail: "limpet@localhost"}
	w, err := c.Commit(CommitOptions{Author: author, Committer: author, When: when, Message: message})
	if err != nil {
		return "", err
	}
	u.New, _ = pack.ParseID(w.Hash)
	u.Objects = w.made
	return w.Hash, push.Local(dir, u, pack.DefaultLimits)
}
