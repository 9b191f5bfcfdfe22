package git

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"limpet/sync/git/pack"
)

// Trees that are edited in memory: directories are read when a path leads into them,
// and made anew from the bottom up.

// editError is why one edit was left out.
type editError struct {
	what string
	is   error // fs.ErrNotExist, fs.ErrExist or nil
}

func (e *editError) Error() string { return e.what }
func (e *editError) Unwrap() error { return e.is }

// dirNode is a directory that is edited; unread while only its id is known.
type dirNode struct {
	id      pack.ID
	read    bool
	entries []pack.TreeEntry    // in the order of the tree
	dirs    map[string]*dirNode // those that were entered
}

// treeEditor edits the trees of an object store.
type treeEditor struct {
	read func(pack.ID) ([]byte, error)
	put  func(pack.Kind, []byte) (pack.ID, error)
}

// load reads a directory. One that cannot be read whole is not written to: what is
// beyond the fault would be lost.
func (e treeEditor) load(d *dirNode) error {
	if d.read {
		return nil
	}
	if !d.id.IsZero() {
		data, err := e.read(d.id)
		if err != nil {
			return err
		}
		if d.entries, err = pack.ParseTree(data); err != nil {
			return &editError{what: "the directory cannot be read: " + err.Error()}
		}
	}
	d.read, d.dirs = true, map[string]*dirNode{}
	return nil
}

// entry is where a directory has a name, -1 when it has not.
func (d *dirNode) entry(name string) int {
	return slices.IndexFunc(d.entries, func(t pack.TreeEntry) bool { return t.Name == name })
}

// sub enters a directory of d. With make it is made when it is not there; without,
// nil says that there is none.
func (e treeEditor) sub(d *dirNode, name string, make bool) (*dirNode, error) {
	if err := e.load(d); err != nil {
		return nil, err
	}
	if sub := d.dirs[name]; sub != nil {
		return sub, nil
	}
	at := d.entry(name)
	sub := &dirNode{}
	switch {
	case at < 0 && !make:
		return nil, nil
	case at < 0:
		d.set(pack.TreeEntry{Mode: pack.ModeTree, Name: name})
	case d.entries[at].Mode == pack.ModeTree:
		sub.id = d.entries[at].ID
	case d.entries[at].Mode == pack.ModeSubmodule:
		return nil, &editError{what: fmt.Sprintf("%q is a submodule, which is another repository", name)}
	case make:
		return nil, &editError{what: fmt.Sprintf("%q is a file, not a directory", name), is: fs.ErrExist}
	default:
		return nil, nil
	}
	d.dirs[name] = sub
	return sub, nil
}

// parent enters the directory that holds a path.
func (e treeEditor) parent(d *dirNode, path string, make bool) (*dirNode, string, error) {
	for {
		name, rest, deeper := strings.Cut(path, "/")
		if !deeper {
			return d, name, e.load(d)
		}
		sub, err := e.sub(d, name, make)
		if err != nil || sub == nil {
			return nil, "", err
		}
		d, path = sub, rest
	}
}

// set puts an entry in its place, in git's order; one of its name is replaced.
func (d *dirNode) set(t pack.TreeEntry) {
	if at := d.entry(t.Name); at >= 0 {
		d.entries = slices.Delete(d.entries, at, at+1)
	}
	at := slices.IndexFunc(d.entries, func(o pack.TreeEntry) bool { return o.SortKey() > t.SortKey() })
	if at < 0 {
		at = len(d.entries)
	}
	d.entries = slices.Insert(d.entries, at, t)
}

// edit makes one change. Trouble with its paths is an *editError, after which the
// tree is as it was.
func (e treeEditor) edit(root *dirNode, edit Edit) error {
	path, dir := strings.CutSuffix(edit.Path, "/")
	switch {
	case edit.Data != nil && dir:
		return &editError{what: "a directory has no content"}
	case edit.Data != nil:
		return e.file(root, path, edit.Data)
	}
	d, name, err := e.parent(root, path, false)
	if err != nil {
		return err
	}
	at := -1
	if d != nil {
		at = d.entry(name)
	}
	switch {
	case at < 0:
		return &editError{what: "it is not there", is: fs.ErrNotExist}
	case d.entries[at].Mode == pack.ModeSubmodule:
		return &editError{what: "it is a submodule, which is another repository"}
	case !dir && d.entries[at].Mode == pack.ModeTree:
		return &editError{what: "it is a directory; write it with a slash at its end"}
	case dir && d.entries[at].Mode != pack.ModeTree:
		return &editError{what: "it is a file; write it without a slash at its end"}
	}
	if edit.To == "" {
		d.drop(at)
		return nil
	}
	return e.move(root, d, at, edit)
}

// drop takes an entry out.
func (d *dirNode) drop(at int) {
	delete(d.dirs, d.entries[at].Name)
	d.entries = slices.Delete(d.entries, at, at+1)
}

// prune takes out directories that have become empty: to git they are not there.
func (d *dirNode) prune() {
	for name, sub := range d.dirs {
		if sub.prune(); sub.read && len(sub.entries) == 0 {
			d.drop(d.entry(name))
		}
	}
}

// move puts the entry of d at another place.
func (e treeEditor) move(root, d *dirNode, at int, edit Edit) error {
	to, dir := strings.CutSuffix(edit.To, "/")
	moved := d.entries[at]
	switch {
	case dir != (moved.Mode == pack.ModeTree):
		return &editError{what: "a file is moved to the path of a file, and a directory to that of a directory"}
	case dir && strings.HasPrefix(edit.To, edit.Path):
		return &editError{what: "a directory cannot be moved into itself"}
	}
	if err := e.free(root, to); err != nil {
		return err
	}
	node := d.dirs[moved.Name]
	target, name, err := e.parent(root, to, true)
	if err != nil {
		return err
	}
	d.drop(d.entry(moved.Name)) // the way to the target may have added to d
	moved.Name = name
	target.set(moved)
	if node != nil {
		target.dirs[name] = node
	}
	return nil
}

// free says why nothing can be put at a path, without changing anything.
func (e treeEditor) free(root *dirNode, path string) error {
	d, rest := root, path
	for {
		name, below, deeper := strings.Cut(rest, "/")
		if err := e.load(d); err != nil {
			return err
		}
		at := d.entry(name)
		if at < 0 {
			return d.twin(name)
		}
		if !deeper {
			return &editError{what: fmt.Sprintf("%q is there already", path), is: fs.ErrExist}
		}
		sub, err := e.sub(d, name, true)
		if err != nil {
			return err
		}
		d, rest = sub, below
	}
}

// twin says that a new name would be taken for one that is there. Who reads the tree
// would refuse one of them.
func (d *dirNode) twin(name string) error {
	key := fold(name)
	for _, t := range d.entries {
		if fold(t.Name) == key {
			return &editError{what: fmt.Sprintf("the name is taken for %q by some file systems", t.Name), is: fs.ErrExist}
		}
	}
	return nil
}

// file gives the file at a path its content.
func (e treeEditor) file(root *dirNode, path string, data []byte) error {
	d, name, err := e.parent(root, path, false)
	if err != nil {
		return err
	}
	t := pack.TreeEntry{Mode: pack.ModeFile, Name: basename(path)}
	if d == nil || d.entry(name) < 0 {
		if err := e.free(root, path); err != nil {
			return err
		}
		if d, _, err = e.parent(root, path, true); err != nil {
			return err
		}
	} else {
		at := d.entry(name)
		switch old := d.entries[at]; old.Mode {
		case pack.ModeTree:
			return &editError{what: fmt.Sprintf("%q is a directory", path), is: fs.ErrExist}
		case pack.ModeSubmodule:
			return &editError{what: fmt.Sprintf("%q is a submodule, which is another repository", path)}
		case pack.ModeFile, pack.ModeGroupFile, pack.ModeExec:
			t.Mode = old.Mode
		}
	}
	if t.ID, err = e.put(pack.BlobKind, data); err == nil {
		d.set(t)
	}
	return err
}

// write stores what has changed of a directory, from the bottom up, and returns its
// tree. Only the root may be empty here, see prune.
func (e treeEditor) write(d *dirNode) (pack.ID, error) {
	if !d.read {
		return d.id, nil
	}
	var entries []pack.TreeEntry
	for _, t := range d.entries {
		if sub := d.dirs[t.Name]; sub != nil && t.Mode == pack.ModeTree {
			id, err := e.write(sub)
			if err != nil {
				return id, err
			}
			t.ID = id
		}
		entries = append(entries, t)
	}
	data := pack.TreeText(entries)
	if id := pack.IDOf(pack.TreeKind, data); id == d.id {
		return id, nil
	}
	return e.put(pack.TreeKind, data)
}
