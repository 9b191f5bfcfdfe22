package git

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"limpet/sync/git/pack"
	"limpet/sync/git/transport"
)

// Trees that are edited in memory: directories are read when a path leads into them, and made anew
// from the bottom up.

// editError is why one edit was left out.
type editError struct {
	what string
	is   error // fs.ErrNotExist, fs.ErrExist or nil
}

func (e *editError) Error() string { return e.what }

func (e *editError) Unwrap() error { return e.is }

// dirNode is a directory that is edited.
type dirNode struct {
	id      pack.ID
	entries map[string]pack.TreeEntry // nil while only its id is known
	dirs    map[string]*dirNode       // those that were entered
}

// treeEditor edits the trees of an object store.
type treeEditor struct {
	read   func(pack.ID) ([]byte, error)
	limits pack.Limits
	made   []pack.Packed
	seen   map[pack.ID]bool // of made
	size   int64            // of what was made, in bytes
}

// put adds an object. One that is in the mirror may be gone at its host, so it is added too.
func (e *treeEditor) put(o pack.Packed) error {
	if e.seen[o.ID] {
		return nil
	}
	if e.size += o.Size; o.Size > e.limits.ObjectBytes {
		return &TooLargeError{What: "object", Size: o.Size, Limit: e.limits.ObjectBytes}
	} else if e.size > e.limits.PackBytes {
		return &TooLargeError{What: transport.PackBudget, Size: e.size, Limit: e.limits.PackBytes}
	}
	e.seen[o.ID] = true
	e.made = append(e.made, o)
	return nil
}

func inTreeOrder(a, b pack.TreeEntry) int { return strings.Compare(a.SortKey(), b.SortKey()) }

// load reads a directory. One that is not in git's form is not written to: what is beyond the fault
// would be lost.
func (e *treeEditor) load(d *dirNode) error {
	if d.entries != nil {
		return nil
	}
	var entries []pack.TreeEntry
	if !d.id.IsZero() {
		data, err := e.read(d.id)
		if err != nil {
			return err
		}
		if entries, err = pack.ParseTree(data); err != nil {
			return &editError{what: "the directory cannot be read: " + err.Error()}
		}
	}
	named := map[string]pack.TreeEntry{}
	for _, t := range entries {
		named[t.Name] = t
	}
	if len(named) < len(entries) || !slices.IsSortedFunc(entries, inTreeOrder) {
		return &editError{what: "unsorted or duplicate names in the directory"}
	}
	d.entries, d.dirs = named, map[string]*dirNode{}
	return nil
}

// sub enters a directory of d. With make it is made when it is not there; without, nil reports that
// there is none.
func (e *treeEditor) sub(d *dirNode, name string, make bool) (*dirNode, error) {
	if sub := d.dirs[name]; sub != nil {
		return sub, nil
	}
	t, there := d.entries[name]
	switch {
	case there && t.Mode == pack.ModeSubmodule:
		return nil, &editError{what: fmt.Sprintf("%q is a submodule, which is another repository", name)}
	case there && t.Mode == pack.ModeTree:
	case !make:
		return nil, nil
	case there:
		return nil, &editError{what: fmt.Sprintf("%q is a file, not a directory", name), is: fs.ErrExist}
	default:
		if err := d.free(name); err != nil {
			return nil, err
		}
		d.entries[name] = pack.TreeEntry{Mode: pack.ModeTree, Name: name}
	}
	d.dirs[name] = &dirNode{id: t.ID}
	return d.dirs[name], nil
}

// parent enters the directory that holds a path.
func (e *treeEditor) parent(d *dirNode, path string, make bool) (*dirNode, string, error) {
	for {
		if err := e.load(d); err != nil {
			return nil, "", err
		}
		name, rest, deeper := strings.Cut(path, "/")
		if !deeper {
			return d, name, nil
		}
		sub, err := e.sub(d, name, make)
		if err != nil || sub == nil {
			return nil, "", err
		}
		d, path = sub, rest
	}
}

// edit makes one change. Trouble with its paths is an *editError, after which the
// tree is as it was but for empty directories; see prune.
func (e *treeEditor) edit(root *dirNode, edit Edit) error {
	path, dir := strings.CutSuffix(edit.Path, "/")
	switch {
	case edit.Blob != nil && dir:
		return &editError{what: "a directory has no content"}
	case edit.Blob != nil:
		return e.file(root, path, *edit.Blob)
	}
	d, name, err := e.parent(root, path, false)
	if err != nil {
		return err
	}
	var old pack.TreeEntry
	if d != nil {
		old = d.entries[name]
	}
	switch {
	case old.Name == "":
		return &editError{what: "it is not there", is: fs.ErrNotExist}
	case old.Mode == pack.ModeSubmodule:
		return &editError{what: "it is a submodule, which is another repository"}
	case !dir && old.Mode == pack.ModeTree:
		return &editError{what: "it is a directory; write it with a slash at its end"}
	case dir && old.Mode != pack.ModeTree:
		return &editError{what: "it is a file; write it without a slash at its end"}
	}
	to, toDir := strings.CutSuffix(edit.To, "/")
	var target *dirNode
	switch {
	case to == "":
	case dir != toDir:
		return &editError{what: "a file is moved to the path of a file, and a directory to that of a directory"}
	case dir && strings.HasPrefix(edit.To, edit.Path):
		return &editError{what: "a directory cannot be moved into itself"}
	default:
		var as string
		if target, as, err = e.parent(root, to, true); err != nil {
			return err
		}
		if err := target.free(as); err != nil {
			return err
		}
		old.Name = as
		target.entries[as] = old
		if sub := d.dirs[name]; sub != nil {
			target.dirs[as] = sub
		}
	}
	delete(d.entries, name)
	delete(d.dirs, name)
	return nil
}

// prune takes out directories that have become empty: to git they are not there.
func (d *dirNode) prune() {
	for name, sub := range d.dirs {
		if sub.prune(); sub.entries != nil && len(sub.entries) == 0 {
			delete(d.dirs, name)
			delete(d.entries, name)
		}
	}
}

// free returns why nothing can be put under a name: it is taken, or would be taken for
// one that is there, and a reader of the tree would refuse one of them.
func (d *dirNode) free(name string) error {
	key := fold(name)
	for other := range d.entries {
		if other == name {
			return &editError{what: fmt.Sprintf("%q is there already", name), is: fs.ErrExist}
		}
		if fold(other) == key {
			return &editError{what: fmt.Sprintf("the name is taken for %q by some file systems", other), is: fs.ErrExist}
		}
	}
	return nil
}

// file sets the content of the file at a path.
func (e *treeEditor) file(root *dirNode, path string, blob Blob) error {
	d, name, err := e.parent(root, path, true)
	if err != nil {
		return err
	}
	t := pack.TreeEntry{Mode: pack.ModeFile, Name: name, ID: blob.ID}
	switch old, there := d.entries[name]; {
	case !there:
		if err := d.free(name); err != nil {
			return err
		}
	case old.Mode == pack.ModeTree:
		return &editError{what: fmt.Sprintf("%q is a directory", path), is: fs.ErrExist}
	case old.Mode == pack.ModeSubmodule:
		return &editError{what: fmt.Sprintf("%q is a submodule, which is another repository", path)}
	case old.Mode == pack.ModeGroupFile, old.Mode == pack.ModeExec:
		t.Mode = old.Mode
	}
	if err := e.put(blob); err != nil {
		return err
	}
	d.entries[name] = t
	return nil
}

// write stores what has changed of a directory, from the bottom up, and returns its
// tree. Only the root may be empty here, see prune.
func (e *treeEditor) write(d *dirNode) (pack.ID, error) {
	if d.entries == nil {
		return d.id, nil
	}
	var entries []pack.TreeEntry
	for name, t := range d.entries {
		if sub := d.dirs[name]; sub != nil {
			var err error
			if t.ID, err = e.write(sub); err != nil {
				return t.ID, err
			}
		}
		entries = append(entries, t)
	}
	slices.SortFunc(entries, inTreeOrder)
	data := pack.TreeText(entries)
	id := pack.IDOf(pack.TreeKind, data)
	if id == d.id {
		return id, nil
	}
	return id, e.put(pack.Object{ID: id, Kind: pack.TreeKind, Data: data}.Pack())
}
