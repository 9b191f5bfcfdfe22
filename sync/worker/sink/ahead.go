package sink

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
)

// Ahead is the tree of a directory that nothing is in, whose files are written before all of them
// are known. It takes no lock: a fetch may take long. Another writer of the directory may remove
// it, and then it is not used.
type Ahead struct {
	target Target
	owner  string

	mu     sync.Mutex // guards all below
	dirs   *dirSet    // nil before the first file
	files  map[string]written
	failed bool
	taken  bool
}

// written is a file that was written ahead.
type written struct {
	hash string // File.Hash; "" = not yet
	uid  string // File.UID
	exec bool
	at   stamp
}

// NewAhead returns an Ahead of a directory, nil where a write of its owner would not be the first. It
// removes what a crash has left of an earlier one: many of them would fill the disk.
func NewAhead(ctx context.Context, t Target, owner string) *Ahead {
	if t.written() {
		return nil
	}
	d, err := Look(ctx, t, owner)
	if err != nil {
		return nil
	}
	defer d.Close()
	beside, _ := fs.ReadDir(d.parent.FS(), path.Dir(t.rel)) // none before the first write
	if slices.ContainsFunc(beside, func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), stagePrefix(path.Base(t.rel))) }) {
		cleaned, err := Open(ctx, t, owner)
		if err != nil {
			return nil
		}
		_ = cleaned.Close()
	}
	return &Ahead{target: t, owner: owner, files: map[string]written{}}
}

// written reports whether the directory has a manifest, or may have one. It reads none.
func (t Target) written() bool {
	root, err := openPrefix(t.prefix)
	if err != nil {
		return true
	}
	defer root.Close()
	_, err = root.Lstat(path.Join(t.rel, manifestPath))
	return !errors.Is(err, fs.ErrNotExist)
}

// Write writes a file, unless an earlier one has failed or has the same path. It is safe for
// concurrent use. What has failed is left to the write of the whole tree.
func (a *Ahead) Write(f File, content []byte) {
	if !fs.ValidPath(f.Path) {
		return
	}
	a.mu.Lock()
	_, there := a.files[f.Path]
	if a.failed || there || a.begin() != nil {
		a.mu.Unlock()
		return
	}
	a.files[f.Path] = written{} // until it is written
	a.mu.Unlock()
	mode := fs.FileMode(fileMode)
	if f.Exec {
		mode = execMode
	}
	at, err := a.dirs.write(path.Join(a.dirs.top, f.Path), bytes.NewReader(content), mode)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = a.failed || err != nil
	a.files[f.Path] = written{f.Hash, f.UID, f.Exec, at.stamp}
}

// begin makes the directory of the tree, once.
func (a *Ahead) begin() error {
	if a.dirs != nil {
		return nil
	}
	parent, err := a.target.parent()
	if err != nil {
		a.failed = true
		return err
	}
	stage := stagePrefix(path.Base(a.target.rel)) + unique()
	a.dirs = &dirSet{root: parent, top: stage, made: map[string]bool{stage: true}}
	err = parent.Mkdir(stage, dirMode)
	if err == nil {
		err = parent.Chmod(stage, dirMode)
	}
	a.failed = err != nil
	return err
}

// Open is the Open of the directory, whose first write takes what was written ahead. No Write is
// under way then, and none follows.
func (a *Ahead) Open(ctx context.Context) (*Dir, error) { return open(ctx, a.target, a.owner, a) }

// stage returns the name of the directory of the tree, "" where it cannot be used.
func (a *Ahead) stage() string {
	if a == nil || a.dirs == nil || a.failed {
		return ""
	}
	return a.dirs.top
}

// file returns a file as it was written.
func (a *Ahead) file(f File) (written, bool) {
	if a == nil {
		return written{}, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	w, there := a.files[f.Path]
	return w, there && w.hash == f.Hash && w.exec == f.Exec
}

// Written returns the File.UID of a file of the first write, if that was written ahead.
func (d *Dir) Written(f File) (uid string, there bool) {
	w, there := d.ahead.file(f)
	return w.uid, there
}

// drop removes the files that the first write leaves out, when it has written all others: a directory
// goes with its last file.
func (a *Ahead) drop(names map[string]bool) error {
	if a == nil {
		return nil
	}
	for name := range names {
		if err := a.dirs.remove(path.Join(a.dirs.top, name)); err != nil {
			return err
		}
	}
	return nil
}

// take hands the tree over to the first write, without what is none of its files.
func (a *Ahead) take(p *Plan) (dirs *dirSet, err error) {
	a.taken = true
	linked := make(map[string]bool, len(p.kept)) // another writer has made the same files meanwhile
	for _, name := range p.kept {
		linked[name] = true
	}
	a.mu.Lock() // files are read ahead of the write
	defer a.mu.Unlock()
	for name, w := range a.files {
		e := p.manifest.files[name]
		if wanted := e.hash == w.hash && e.exec == w.exec && !linked[name]; !wanted && err == nil {
			err = a.dirs.remove(path.Join(a.dirs.top, name))
			delete(a.files, name)
		}
	}
	return a.dirs, err
}

// Close removes what no write has taken.
func (a *Ahead) Close() error {
	if a.dirs == nil {
		return nil
	}
	defer a.dirs.root.Close()
	if a.taken {
		return nil
	}
	return a.dirs.root.RemoveAll(a.dirs.top)
}
