package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"limpet/sync/git/pack"
	"limpet/sync/git/transport"
)

// How a commit is made without a worktree. Of the base only those trees are read and
// made anew in which something changes; all else, names that nobody may use and
// submodules among it, stays as it is, byte for byte. What is new is held in memory
// until it is pushed: a mirror never has what its host has not, and a power cut
// leaves nothing behind.

// Edit is one change of a tree. Paths are from the root of the repository, with "/"
// between their parts; one with a slash at its end is a directory and all below it.
type Edit struct {
	Path string
	// To is where Path is moved to: a whole path, of the same kind. "" = it is not moved.
	To string
	// Data is the content that the file at Path is to have; nil removes what is at
	// Path, or moves it. A new file is not executable; of one that is there the mode
	// stays.
	Data []byte
}

// Composition is a tree that was made of that of a commit. It is in memory only.
type Composition struct {
	Base string // commit
	// Outcomes are what became of the edits, one for each: nil, an error that wraps
	// fs.ErrNotExist for a path that is not there, fs.ErrExist for a place that is
	// taken, or another one. What has an error was left out.
	Outcomes []error

	base, tree pack.ID       // trees, before and after
	made       []pack.Object // without the commit
}

// Empty says that the tree is the one of the base.
func (c *Composition) Empty() bool { return c.tree == c.base }

// Compose makes edits, one after the other, of the tree of a commit of the mirror. It
// makes no request and writes nothing. An error means that there is no Composition:
// ErrUnknownCommit, Refused for a path that breaks the path rule, Corrupt, TooLarge.
func (m *Mirrors) Compose(ctx context.Context, r Remote, base string, edits []Edit) (*Composition, error) {
	var c *Composition
	err := m.read(ctx, "compose commit", r, func(v *reading) error {
		id, parent, err := v.commit(base)
		if err != nil {
			return err
		}
		c = &Composition{Base: id.String(), base: parent.Tree, Outcomes: make([]error, len(edits))}
		size, made := int64(0), map[pack.ID]bool{}
		e := treeEditor{
			read: func(id pack.ID) ([]byte, error) {
				data, err := v.store.ReadKind(id, pack.TreeKind, v.limits.ObjectBytes)
				return data, inside(err)
			},
			put: func(k pack.Kind, data []byte) (pack.ID, error) {
				id := pack.IDOf(k, data)
				if made[id] { // one that is in the mirror may be gone at its host
					return id, nil
				}
				n := int64(len(data))
				if size += n; n > v.limits.ObjectBytes {
					return id, &TooLargeError{What: "object", Size: n, Limit: v.limits.ObjectBytes}
				} else if size > v.limits.PackBytes {
					return id, &TooLargeError{What: transport.PackBudget, Size: size, Limit: v.limits.PackBytes}
				}
				made[id] = true
				c.made = append(c.made, pack.Object{ID: id, Kind: k, Data: data})
				return id, nil
			},
		}
		root := &dirNode{id: c.base}
		for i, edit := range edits {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			for _, path := range []string{edit.Path, cmp.Or(edit.To, edit.Path)} {
				if why := badPath(path, v.limits); why != "" {
					return &Error{Kind: Refused, Err: fmt.Errorf("%q cannot be written to: %s", showPath(path), why)}
				}
			}
			err := e.edit(root, edit)
			root.prune()
			if bad, is := errors.AsType[*editError](err); is {
				c.Outcomes[i] = bad
			} else if err != nil {
				return err
			}
		}
		c.tree, err = e.write(root)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// badPath tells why a path may not be written to; "" when it may.
func badPath(path string, l pack.Limits) string {
	parts := strings.Split(strings.TrimSuffix(path, "/"), "/")
	for _, part := range parts {
		if why := badName(part); why != "" {
			return why
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
