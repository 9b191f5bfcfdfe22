package sink

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"limpet/sync/api/repopath"
)

// Plan is the set of changes of a write.
type Plan struct {
	Added, Changed []File
	Removed        []string
	kept           []File   // unchanged files, linked
	foreign        []string // files of other writers, linked as well
	manifest       manifest
}

// Empty reports whether the plan changes no file.
func (p *Plan) Empty() bool { return len(p.Added)+len(p.Changed)+len(p.Removed) == 0 }

// Plan compares the directory with the files of a tree. It reads every present file, so that it
// finds files that another writer has changed. Files where the manifest is are left out. A foreign
// file at the path of a file of the tree is an error. The manifest records commit and source, which
// stands for all that the files depend on beside the commit.
func (d *Dir) Plan(commit, source string, files []File) (*Plan, error) {
	p := &Plan{manifest: manifest{
		Version:    manifestVersion,
		Repository: d.owner,
		Commit:     commit,
		Source:     source,
		Files:      make(map[string]string, len(files)),
		Sizes:      make(map[string]int64, len(files)),
		Exec:       map[string]bool{},
		UIDs:       map[string]string{},
	}}
	here, err := d.walk()
	if err != nil {
		return nil, err
	}
	dirs := map[string]bool{}
	for i, f := range files {
		if f.at = i; f.Path == manifestDir || strings.HasPrefix(f.Path, manifestDir+"/") {
			continue
		}
		p.manifest.Files[f.Path], p.manifest.Sizes[f.Path] = f.Hash, f.Size
		if f.Exec {
			p.manifest.Exec[f.Path] = true
		}
		if f.UID != "" {
			p.manifest.UIDs[f.Path] = f.UID
		}
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			dirs[dir] = true
		}
		_, ours := d.was.Files[f.Path]
		if !here[f.Path] {
			p.Added = append(p.Added, f)
			continue
		}
		same, err := holds(d.old, f)
		edited := d.KeepEdits && d.Has(f) && d.was.Exec[f.Path] == f.Exec
		switch {
		case err != nil:
			return nil, fmt.Errorf("read %s in %s: %w", f.Path, d.target, err)
		case same || edited:
			p.kept = append(p.kept, f)
		case ours:
			p.Changed = append(p.Changed, f)
		default:
			return nil, d.inTheWay(f.Path)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(d.was.Files)) {
		if _, stays := p.manifest.Files[path]; !stays {
			p.Removed = append(p.Removed, path)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(here)) {
		_, ours := d.was.Files[name]
		_, wanted := p.manifest.Files[name]
		if ours || wanted {
			continue
		}
		for up := name; up != "."; up = path.Dir(up) { // a file where a directory is to be, or the other way round
			if _, wanted := p.manifest.Files[up]; wanted || dirs[name] {
				return nil, d.inTheWay(name)
			}
		}
		p.foreign = append(p.foreign, name)
	}
	return p, nil
}

func (d *Dir) inTheWay(name string) error {
	return fmt.Errorf("%s in %s was not written by limpet and is in the way of a file of the tree; remove one of them",
		repopath.Quote(name), d.target)
}

// Has reports whether the last write has left the directory with this file.
func (d *Dir) Has(f File) bool { return d.was.Files[f.Path] == f.Hash }

// Last returns the file that the last write has left at a path.
func (d *Dir) Last(name string) (f File, has bool) {
	hash, has := d.was.Files[name]
	return File{Path: name, Hash: hash, Size: d.was.Sizes[name], Exec: d.was.Exec[name], UID: d.was.UIDs[name]}, has
}

// UIDs returns the File.UID of the files that the last write has left, by path; nil = unknown.
func (d *Dir) UIDs() map[string]string { return d.was.UIDs }

// Read returns the present content of a file, at most max bytes.
func (d *Dir) Read(name string, max int64) ([]byte, error) {
	f, err := d.old.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, max))
}

// LeaveOut removes the last n added files from the plan, or all if there are fewer, and returns
// them.
func (p *Plan) LeaveOut(n int) []File {
	rest := len(p.Added) - min(n, len(p.Added))
	out := p.Added[rest:]
	p.Added = p.Added[:rest]
	for _, f := range out {
		delete(p.manifest.Files, f.Path)
		delete(p.manifest.Sizes, f.Path)
		delete(p.manifest.Exec, f.Path)
		delete(p.manifest.UIDs, f.Path)
	}
	return out
}

// walk returns the files in the directory without the manifest.
func (d *Dir) walk() (map[string]bool, error) {
	here := map[string]bool{}
	if d.old == nil {
		return here, nil
	}
	err := fs.WalkDir(anyName{d.old}, ".", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == manifestDir:
			return fs.SkipDir
		case e.IsDir():
		case !e.Type().IsRegular() && d.was.Files[path] == "": // else it is in the place of a file that comes back
			return fmt.Errorf("%s is not a regular file; remove it", path)
		default:
			here[path] = true
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look through %s: %w", d.target, err)
	}
	return here, nil
}

// anyName is the file system of a directory, whatever the names in it are: that of an os.Root
// refuses names that are no UTF-8.
type anyName struct{ dir *os.Root }

func (a anyName) Open(name string) (fs.File, error) { return a.dir.Open(name) }

// Foreign returns the files of other writers, which are kept.
func (p *Plan) Foreign() string {
	var names []string
	for _, name := range p.foreign {
		names = append(names, repopath.Quote(name))
	}
	return strings.Join(names, ", ")
}
