package sink

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"limpet/sync/api/repopath"
)

// Plan is the set of changes of a write.
type Plan struct {
	Added, Changed []File
	Removed        []string
	Hidden         int      // files of the commit that are left out of the tree, for Amend
	kept           []string // unchanged files, linked
	foreign        []string // files of other writers, linked as well
	manifest       manifest
	here           *listing         // what the plan was made from; nil = there is no directory
	seen           map[string]stamp // of the directories of the new tree
	amends         bool             // of the files that stay it has those that the spare generation lacks
}

// Empty reports whether the plan changes no file.
func (p *Plan) Empty() bool { return len(p.Added)+len(p.Changed)+len(p.Removed) == 0 }

// Plan compares the directory with the files of a tree. It finds files that another writer has
// changed by what the disk says of them, as Git does, and reads those that it does not trust. Files
// where the manifest is are left out. A foreign file at the path of a file of the tree is an error.
// The manifest records commit and source, which stands for all that the files depend on beside the
// commit.
func (d *Dir) Plan(commit, source string, files []File) (*Plan, error) {
	p := &Plan{manifest: manifest{
		header: header{Version: manifestVersion, Repository: d.owner, Commit: commit, Source: source},
		files:  make(map[string]entry, len(files)),
	}}
	here, now := new(listing), time.Now()
	if err := d.Load(); err != nil {
		return nil, err
	}
	if d.old != nil {
		var err error
		if here, err = scan(d.old, len(d.was.files)); err != nil {
			return nil, fmt.Errorf("look through %s: %w", d.target, err)
		}
		p.here = here
	}
	if len(here.files) == 0 {
		p.Added = make([]File, 0, len(files))
	}
	dirs := map[string]bool{}
	for i, f := range files {
		if f.at = i; f.Path == manifestDir || strings.HasPrefix(f.Path, manifestDir+"/") {
			continue
		}
		for _, dir := range above(f.Path) {
			dirs[dir] = true
		}
		found, there := here.files[f.Path]
		e := entry{hash: f.Hash, size: f.Size, exec: f.Exec, uid: f.UID}
		was, ours := d.was.files[f.Path]
		same, err := there && found.is(f.Size, f.Exec), error(nil)
		if same && (d.Thorough || was.hash != f.Hash || was.at != found.stamp) {
			same, err = holds(d.old, f)
		}
		edited := d.KeepEdits && d.Has(f) && was.exec == f.Exec
		switch {
		case err != nil:
			return nil, fmt.Errorf("read %s in %s: %w", f.Path, d.target, err)
		case !there:
			p.Added = append(p.Added, f)
		case same:
			e.at = found.trusted(now)
			if d.spare != nil && was.at.Inode != found.Inode {
				e.at.Inode = 0 // the spare generation has another file, or none
			}
			p.kept = append(p.kept, f.Path)
		case edited:
			p.kept = append(p.kept, f.Path)
		case ours:
			p.Changed = append(p.Changed, f)
		default:
			return nil, d.inTheWay(f.Path)
		}
		p.manifest.files[f.Path] = e
	}
	for name := range d.was.files {
		if _, stays := p.manifest.files[name]; !stays {
			p.Removed = append(p.Removed, name)
		}
	}
	slices.Sort(p.Removed)
	return p, d.findForeign(p, here, dirs)
}

// findForeign finds the files of other writers. dirs are the directories of the tree.
func (d *Dir) findForeign(p *Plan, here *listing, dirs map[string]bool) error {
	for name, found := range here.files {
		_, ours := d.was.files[name]
		if !ours && found.mode&unix.S_IFMT != unix.S_IFREG {
			return fmt.Errorf("look through %s: %s is not a regular file; remove it", d.target, name)
		}
		if _, wanted := p.manifest.files[name]; ours || wanted {
			continue
		}
		p.foreign = append(p.foreign, name)
	}
	slices.Sort(p.foreign)
	for _, name := range p.foreign {
		for _, dir := range append(above(name), name) { // a file where a directory is to be, or the other way round
			if _, wanted := p.manifest.files[dir]; wanted || dirs[name] {
				return d.inTheWay(name)
			}
		}
	}
	return nil
}

func (d *Dir) inTheWay(name string) error {
	return fmt.Errorf("%s in %s was not written by limpet and is in the way of a file of the tree; remove one of them",
		repopath.Quote(name), d.target)
}

// Load prepares the Dir for questions about all of its files.
func (d *Dir) Load() error { return d.was.load() }

// Has reports whether the last write has left the directory with this file.
func (d *Dir) Has(f File) bool {
	e, has := d.was.get(f.Path)
	return has && e.hash == f.Hash
}

// Last returns the file that the last write has left at a path.
func (d *Dir) Last(name string) (f File, has bool) {
	e, has := d.was.get(name)
	return e.file(name), has
}

// KnowsUIDs reports whether the last write has left the File.UID of its files.
func (d *Dir) KnowsUIDs() bool { return d.was.files != nil && !d.was.noUID }

// Read returns the present content of a file, at most max bytes.
func (d *Dir) Read(name string, max int64) ([]byte, error) {
	f, err := d.old.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, max))
}

// IsFirst reports whether the open directory has nothing of an earlier write.
func (d *Dir) IsFirst() bool { return d.self != nil && d.was.Repository == "" }

// SetUID sets the File.UID of a file of the plan, until the file was read.
func (p *Plan) SetUID(f File) {
	e := p.manifest.files[f.Path]
	e.uid = f.UID
	p.manifest.files[f.Path] = e
}

// leave removes files from the plan that were to be added.
func (p *Plan) leave(names map[string]bool) {
	p.Added = slices.DeleteFunc(p.Added, func(f File) bool { return names[f.Path] })
	for name := range names {
		delete(p.manifest.files, name)
		p.manifest.Count--
	}
}

// LeaveOut removes the last n added files from the plan, or all if there are fewer, and returns
// them.
func (p *Plan) LeaveOut(n int) []File {
	rest := len(p.Added) - min(n, len(p.Added))
	out := p.Added[rest:]
	p.Added = p.Added[:rest]
	for _, f := range out {
		delete(p.manifest.files, f.Path)
	}
	return out
}

// Foreign returns the files of other writers, which are kept.
func (p *Plan) Foreign() string {
	var names []string
	for _, name := range p.foreign {
		names = append(names, repopath.Quote(name))
	}
	return strings.Join(names, ", ")
}

// same reports whether two manifests say the same.
func (m *manifest) same(other *manifest) bool {
	return m.header == other.header && m.list == other.list &&
		maps.Equal(m.changed, other.changed) && maps.Equal(m.files, other.files)
}
