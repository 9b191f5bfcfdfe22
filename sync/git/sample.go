package git

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"limpet/sync/git/pack"
	"limpet/sync/git/transport"

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
	store, err := transport.OpenLocal(dir)
	if err != nil {
		return "", err
	}
	defer store.Close()
	name := plumbing.NewBranchReferenceName(branch)
	var parents []pack.ID
	root := &dirNode{}
	if ref, err := store.Reference(name); err == nil {
		parents = []pack.ID{ref.Hash()}
		if root.id, err = transport.TreeOf(store, ref.Hash()); err != nil {
			return "", err
		}
	} else if !errors.Is(err, plumbing.ErrReferenceNotFound) {
		return "", err
	}
	e := treeEditor{
		read: func(id pack.ID) ([]byte, error) { return transport.RawObject(store, id, pack.TreeKind) },
		put:  func(k pack.Kind, data []byte) (pack.ID, error) { return putObject(store, k, data) },
	}
	for _, path := range deletes {
		if err := e.replace(root, path, nil); err != nil {
			return "", err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		data := files[path]
		if data == nil {
			data = []byte{}
		}
		if err := e.replace(root, path, data); err != nil {
			return "", err
		}
	}
	root.prune()
	tree, err := e.write(root)
	if err != nil {
		return "", err
	}
	id, err := e.put(pack.CommitKind, commitText(tree, parents, message, when))
	if err != nil {
		return "", err
	}
	return id.String(), store.SetReference(plumbing.NewHashReference(name, id))
}

func commitText(tree pack.ID, parents []pack.ID, message string, when time.Time) []byte {
	out := fmt.Appendf(nil, "tree %s\n", tree)
	for _, p := range parents {
		out = fmt.Appendf(out, "parent %s\n", p)
	}
	who := fmt.Sprintf("%s %d +0000", sampleAuthor, when.Unix())
	return fmt.Appendf(out, "author %s\ncommitter %s\n\n%s\n", who, who, strings.TrimRight(message, "\n"))
}

// replace sets the content of a file, whatever is in its way, or with nil removes
// what is at a path.
func (e treeEditor) replace(d *dirNode, path string, data []byte) error {
	name, rest, deeper := strings.Cut(path, "/")
	if why := badName(name); why != "" {
		return fmt.Errorf("commit %q: %s", path, why)
	}
	if err := e.load(d); err != nil {
		return err
	}
	at := d.entry(name)
	if at >= 0 && (!deeper || data != nil && d.entries[at].Mode != pack.ModeTree) {
		d.drop(at)
	}
	switch {
	case deeper:
		sub, err := e.sub(d, name, data != nil)
		if err != nil || sub == nil {
			return err
		}
		return e.replace(sub, rest, data)
	case data == nil:
		return nil
	}
	id, err := e.put(pack.BlobKind, data)
	d.set(pack.TreeEntry{Mode: pack.ModeFile, Name: name, ID: id})
	return err
}

// putObject stores an object in a local repository.
func putObject(s storer.EncodedObjectStorer, k pack.Kind, data []byte) (pack.ID, error) {
	o := s.NewEncodedObject()
	o.SetType(k)
	w, err := o.Writer()
	if err != nil {
		return pack.ID{}, err
	}
	if _, err := w.Write(data); err != nil {
		return pack.ID{}, err
	}
	if err := w.Close(); err != nil {
		return pack.ID{}, err
	}
	id := pack.IDOf(k, data)
	if s.HasEncodedObject(id) == nil {
		return id, nil
	}
	_, err = s.SetEncodedObject(o)
	return id, err
}
