package git

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// Repositories made on the spot, with no git on the host: for the demo and for
// trying things out. A Remote may name one under Options.AllowLocal.

// CreateRepository makes an empty bare repository in dir, whose HEAD is the
// branch main. It is an error when dir exists and is not empty.
func CreateRepository(dir string) error {
	if files, err := os.ReadDir(dir); err == nil && len(files) > 0 {
		return fmt.Errorf("create repository: %s is not empty", dir)
	}
	for _, d := range []string{"objects/pack", "objects/info", "refs/heads", "refs/tags"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return fmt.Errorf("create repository: %w", err)
		}
	}
	for name, text := range map[string]string{
		"config": "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n",
		headFile: "ref: refs/heads/main\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("create repository: %w", err)
		}
	}
	return nil
}

// sampleAuthor is who the commits of CommitFiles are by.
const sampleAuthor = "limpet <limpet@localhost>"

// CommitFiles writes one commit on a branch of a local repository: files by
// path, and paths that are deleted (a directory with all below it). Without the
// branch it begins it. It returns the hash of the commit. Paths pass the rule
// that trees pass when they are read.
func CommitFiles(dir, branch, message string, files map[string][]byte, deletes []string, when time.Time) (string, error) {
	if err := checkRefName(branch); err != nil {
		return "", err
	}
	store, err := openLocal(dir)
	if err != nil {
		return "", err
	}
	defer store.Close()
	name := plumbing.NewBranchReferenceName(branch)
	var parents []objectID
	root := &dirNode{}
	if ref, err := store.Reference(name); err == nil {
		parents = []objectID{ref.Hash()}
		if root.id, err = treeOf(store, ref.Hash()); err != nil {
			return "", err
		}
	} else if !errors.Is(err, plumbing.ErrReferenceNotFound) {
		return "", err
	}
	e := treeEditor{store}
	for _, path := range deletes {
		if err := e.put(root, path, nil); err != nil {
			return "", err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		data := files[path]
		if data == nil {
			data = []byte{}
		}
		if err := e.put(root, path, data); err != nil {
			return "", err
		}
	}
	tree, err := e.write(root)
	if err != nil {
		return "", err
	}
	id, err := e.object(commitKind, commitText(tree, parents, message, when))
	if err != nil {
		return "", err
	}
	return id.String(), store.SetReference(plumbing.NewHashReference(name, id))
}

func commitText(tree objectID, parents []objectID, message string, when time.Time) []byte {
	out := fmt.Appendf(nil, "tree %s\n", tree)
	for _, p := range parents {
		out = fmt.Appendf(out, "parent %s\n", p)
	}
	who := fmt.Sprintf("%s %d +0000", sampleAuthor, when.Unix())
	return fmt.Appendf(out, "author %s\ncommitter %s\n\n%s\n", who, who, strings.TrimRight(message, "\n"))
}

// dirNode is a directory that is edited; unread while only its id is known.
type dirNode struct {
	id    objectID
	read  bool
	dirs  map[string]*dirNode
	files map[string]treeEntry
}

// treeEditor edits trees of an object store.
type treeEditor struct{ store storer.EncodedObjectStorer }

func (e treeEditor) load(d *dirNode) error {
	if d.read {
		return nil
	}
	d.read, d.dirs, d.files = true, make(map[string]*dirNode), make(map[string]treeEntry)
	if d.id.IsZero() {
		return nil
	}
	data, err := rawObject(e.store, d.id, treeKind)
	if err != nil {
		return err
	}
	entries, err := parseTree(data)
	for _, t := range entries {
		if t.mode == modeTree {
			d.dirs[t.name] = &dirNode{id: t.id}
		} else {
			d.files[t.name] = t
		}
	}
	return err
}

// put writes a file, or deletes it and any directory of that name when data is nil.
func (e treeEditor) put(d *dirNode, path string, data []byte) error {
	if err := e.load(d); err != nil {
		return err
	}
	name, rest, deeper := strings.Cut(path, "/")
	if why := badName(name); why != "" {
		return fmt.Errorf("commit %q: %s", path, why)
	}
	if deeper {
		sub := d.dirs[name]
		if sub == nil {
			if data == nil {
				return nil
			}
			sub = &dirNode{}
			d.dirs[name] = sub
			delete(d.files, name)
		}
		return e.put(sub, rest, data)
	}
	delete(d.dirs, name)
	delete(d.files, name)
	if data == nil {
		return nil
	}
	id, err := e.object(blobKind, data)
	d.files[name] = treeEntry{mode: modeFile, name: name, id: id}
	return err
}

// write stores changed directories from the bottom up; empty ones vanish.
func (e treeEditor) write(d *dirNode) (objectID, error) {
	if !d.read {
		return d.id, nil
	}
	entries := slices.Collect(maps.Values(d.files))
	for name, sub := range d.dirs {
		id, err := e.write(sub)
		if err != nil {
			return id, err
		}
		if sub.read && len(sub.dirs)+len(sub.files) == 0 {
			delete(d.dirs, name)
			continue
		}
		entries = append(entries, treeEntry{mode: modeTree, name: name, id: id})
	}
	return e.object(treeKind, treeText(entries))
}

// treeText is a raw tree, in git's order: a directory sorts as if it had a
// slash at its end.
func treeText(entries []treeEntry) []byte {
	key := func(t treeEntry) string {
		if t.mode == modeTree {
			return t.name + "/"
		}
		return t.name
	}
	sort.Slice(entries, func(i, j int) bool { return key(entries[i]) < key(entries[j]) })
	var out []byte
	for _, t := range entries {
		out = fmt.Appendf(out, "%o %s\x00", t.mode, t.name)
		out = append(out, t.id[:]...)
	}
	return out
}

func (e treeEditor) object(k kind, data []byte) (objectID, error) {
	o := e.store.NewEncodedObject()
	o.SetType(k)
	w, err := o.Writer()
	if err != nil {
		return objectID{}, err
	}
	if _, err := w.Write(data); err != nil {
		return objectID{}, err
	}
	if err := w.Close(); err != nil {
		return objectID{}, err
	}
	id := nameOf(k, data)
	if e.store.HasEncodedObject(id) == nil {
		return id, nil
	}
	_, err = e.store.SetEncodedObject(o)
	return id, err
}
