package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"limpet/sync/git/pack"
	"limpet/sync/git/push"
)

// How a commit is made without a worktree. Only those trees of the base are read and made anew in
// which something changes; all else stays byte for byte. What is new is held in memory until it is
// pushed: a mirror never has what its host has not, and a power cut leaves nothing behind.

// Edit is one change of a tree.
type Edit = push.Edit

// Blob is the content of a file, compressed: the files of one commit are in memory together.
type Blob = pack.Packed

// NewBlob makes the blob of a file.
func NewBlob(data []byte) *Blob {
	b := pack.Object{ID: pack.IDOf(pack.BlobKind, data), Kind: pack.BlobKind, Data: data}.Pack()
	return &b
}

// Composition is a tree that was made of that of a commit. It is in memory only.
type Composition struct {
	Base string // commit
	// Outcomes are what became of the edits, one for each: nil, an error that wraps fs.ErrNotExist for
	// a path that is not there, fs.ErrExist for a place that is taken, or another one. What has an
	// error was left out.
	Outcomes []error

	edits      []Edit        // without those that were left out
	base, tree pack.ID       // trees, before and after
	made       []pack.Packed // without the commit
}

// Empty reports that the tree is the one of the base.
func (c *Composition) Empty() bool { return c.tree == c.base }

// Compose makes edits, one after the other, of the tree of a commit of the mirror, or with base ""
// of an empty tree. It makes no request and writes nothing. An error means that there is no
// Composition: ErrUnknownCommit, Refused for a path that breaks the path rule, Corrupt, TooLarge.
func (m *Mirrors) Compose(ctx context.Context, r Remote, base string, edits []Edit) (*Composition, error) {
	if base == "" {
		c := &Composition{}
		e := &treeEditor{limits: r.Limits.Or(m.client.Options.Limits), seen: map[pack.ID]bool{}}
		if err := c.edit(ctx, e, edits); err != nil {
			return nil, err
		}
		return c, nil
	}
	var c *Composition
	err := m.read(ctx, "compose commit", r, func(v *reading) error {
		id, parent, err := v.commit(base)
		if err != nil {
			return err
		}
		c = &Composition{Base: id.String(), base: parent.Tree}
		return c.edit(ctx, &treeEditor{limits: v.limits, seen: map[pack.ID]bool{}, read: func(id pack.ID) ([]byte, error) {
			data, err := v.object(id, pack.TreeKind)
			return data, asDamage(err)
		}}, edits)
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// edit makes the edits and the tree that comes of them.
func (c *Composition) edit(ctx context.Context, e *treeEditor, edits []Edit) (err error) {
	c.Outcomes = make([]error, len(edits))
	root := &dirNode{id: c.base}
	for i, edit := range edits {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for _, path := range []string{edit.Path, cmp.Or(edit.To, edit.Path)} {
			if why := badPath(path, e.limits); why != "" {
				return &Error{Kind: Refused, Err: fmt.Errorf("%q cannot be written to: %s", showPath(path), why)}
			}
		}
		err := e.edit(root, edit)
		root.prune()
		if bad, is := errors.AsType[*editError](err); is {
			c.Outcomes[i] = bad
		} else if err != nil {
			return err
		} else {
			c.edits = append(c.edits, edit)
		}
	}
	c.tree, err = e.write(root)
	c.made = e.made
	return err
}

// CheckPath returns why nothing can be written to a path; nil if it can.
func CheckPath(path string) error {
	if why := badPath(path, pack.DefaultLimits); why != "" {
		return errors.New(why)
	}
	return nil
}

// badPath returns why a path may not be written to; "" when it may.
func badPath(path string, l pack.Limits) string {
	parts := strings.Split(strings.TrimSuffix(path, "/"), "/")
	for _, part := range parts {
		if why := badName(part); why != allowed {
			return why.text
		}
	}
	switch {
	case len(path) > l.PathBytes:
		return fmt.Sprintf("the path is longer than %d bytes", l.PathBytes)
	case len(parts) > l.TreeDepth:
		return fmt.Sprintf("deeper than %d directories", l.TreeDepth)
	}
	return ""
}
