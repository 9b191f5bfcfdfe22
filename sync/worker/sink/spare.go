package sink

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"limpet/sync/fileid"
)

// spare is the generation of a directory that is not shown. The two take turns: a write brings the
// spare one level with the shown one, makes its changes there and exchanges them, in the time of its
// changes, whatever the size of the directory. Files are links to those of the shown one, so a spare
// needs space for its directories alone, and a file is never written in place.
//
// A file inside describes it, which goes before the first change and comes after the
// exchange. A spare without one, or with one of an earlier start of the host, was left by a crash or
// a power cut: it is removed, and the next write makes all links.
type spare struct {
	name string // in the directory above

	Boot    string           `json:"boot"`
	Shown   uint64           `json:"shown"`   // inode of the directory that it belongs to
	Stale   []string         `json:"stale"`   // files that are others in the shown one, or are in one of both
	Foreign []string         `json:"foreign"` // files of other writers
	Dirs    map[string]stamp `json:"-"`       // its directories; rows of the file
	Seen    map[string]stamp `json:"-"`       // those of the shown one
}

const (
	sparePath = manifestDir + "/spare.json"
	bootID    = "/proc/sys/kernel/random/boot_id"
)

// boot returns the name of the present start of the host, "" where it has none.
func boot() string {
	id, _ := os.ReadFile(bootID)
	return strings.TrimSpace(string(id))
}

// stat returns what the disk says of a file or directory beside the target. It follows links on the
// way, unlike the calls that read and write: there is another file then.
func (d *Dir) stat(name string) (inode, error) {
	var st unix.Stat_t
	err := retry(func() error { return unix.Fstatat(int(d.self.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil {
		return inode{}, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return inodeOf(&st), nil
}

// findSpare returns the spare generation in a directory beside the target, nil if it is none.
func (d *Dir) findSpare(name string) *spare {
	data, err := fileid.ReadChecked(d.parent.OpenFile, path.Join(name, sparePath), maxManifest, nil)
	s := &spare{name: name}
	if err != nil || d.spare != nil || d.old == nil || s.decode(string(data)) != nil {
		return nil
	}
	shown, err := d.stat(d.base)
	if now := boot(); err != nil || now == "" || s.Boot != now || s.Shown != shown.Inode {
		return nil
	}
	return s
}

// encode returns the text of the file. Its rows are those of a manifest, and look like executable
// files for the directories of the shown one.
func (s *spare) encode() string {
	list := make([]byte, 0, 200*(len(s.Dirs)+len(s.Seen)))
	for shown, dirs := range map[bool]map[string]stamp{false: s.Dirs, true: s.Seen} {
		for name, at := range dirs {
			list = append(appendRow(list, name, entry{exec: shown, at: at}), between...)
		}
	}
	return frame(s) + strings.TrimSuffix(string(list), between) + ends
}

func (s *spare) decode(text string) error {
	list, framed, err := unframe(text, s)
	if err != nil || !framed {
		return cmp.Or(err, io.ErrUnexpectedEOF)
	}
	s.Dirs, s.Seen = map[string]stamp{}, map[string]stamp{}
	return eachRow(list, func(name string, e entry) {
		if e.exec {
			s.Seen[name] = e.at
		} else {
			s.Dirs[name] = e.at
		}
	})
}

// level makes the spare generation equal to the shown one, but for what the plan changes. It returns
// the files that are linked again.
func (d *Dir) level(dirs *dirSet, p *Plan) (linked []string, err error) {
	d.step("level")
	s := d.spare
	if err := d.parent.Remove(path.Join(s.name, sparePath)); err != nil {
		return nil, err
	}
	if !p.amends { // which has just looked
		if _, same := d.unchanged(s.name, s.Dirs); !same {
			return nil, fmt.Errorf("directory %s was changed by another program", s.name)
		}
	}
	gone := map[string]bool{manifestPath: true, basePath: true, execPath: true}
	for _, name := range slices.Concat(s.Stale, s.Foreign, p.changes()) {
		gone[name] = true
	}
	for _, name := range slices.Concat(p.kept, p.foreign) {
		if e, ours := d.was.get(name); gone[name] || !ours || e.at.Inode != p.here.files[name].Inode {
			gone[name] = true
			linked = append(linked, name)
		}
	}
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(gone))) { // a file before one in its place
		if err := dirs.remove(path.Join(s.name, name)); err != nil {
			return nil, err
		}
	}
	return linked, d.link(dirs, s.name, linked)
}

// keep keeps the former generation as the spare one, without the files that p has changed. It
// returns false for a directory that another writer has made different from what a write makes.
func (d *Dir) keep(former string, p *Plan) (bool, error) {
	shown, err := d.stat(d.base)
	s := &spare{name: former, Boot: boot(), Shown: shown.Inode, Stale: p.changes(), Foreign: p.foreign,
		Seen: p.seen}
	if err != nil || s.Boot == "" || d.was.Version == 0 || p.here.empty {
		return false, err
	}
	root := shown.stamp
	root.MTime = s.Seen["."].MTime // the exchange has changed the other time, and another program may have been quick
	s.Seen["."] = root
	known := make(map[string]stamp, len(p.here.dirs))
	for name, was := range p.here.dirs {
		dir, err := d.stat(path.Join(former, name))
		if err != nil || dir.MTime != was.MTime || dir.mode != shown.mode || dir.uid != shown.uid || dir.gid != shown.gid {
			return false, err
		}
		known[name] = dir.stamp
	}
	dirs := &dirSet{root: d.parent, top: former, made: map[string]bool{former: true}}
	for _, name := range s.Stale {
		if err := dirs.remove(path.Join(former, name)); err != nil {
			return false, err
		}
	}
	if s.Dirs, err = d.stamps(former, known, dirs); err != nil {
		return false, err
	}
	text := s.encode()
	if strings.Contains(text, `\ufffd`) { // a name that JSON cannot hold
		return false, nil
	}
	d.step("keep")
	d.spare = s
	return true, d.parent.WriteFile(path.Join(former, sparePath), []byte(text), fileMode)
}

// rescue shows the files that others have added or replaced in the former tree since the plan was made.
func (d *Dir) rescue(former string, p *Plan) error {
	if err := errors.Join(d.was.load(), p.manifest.load()); err != nil {
		return err
	}
	root, err := d.parent.OpenRoot(former)
	if err != nil {
		return err
	}
	defer root.Close()
	late, err := scan(root, len(d.was.files))
	if err != nil {
		return err
	}
	dirs := &dirSet{root: d.parent, top: d.base, made: map[string]bool{d.base: true}}
	for name, theirs := range late.files {
		_, was := d.was.files[name]
		_, is := p.manifest.files[name]
		to := path.Join(d.base, name)
		if shown, err := d.stat(to); was || is || err == nil && shown.Inode == theirs.Inode {
			continue
		}
		if err := dirs.remove(to); err != nil {
			return err
		}
		if err := errors.Join(dirs.make(path.Dir(to)), d.parent.Link(path.Join(former, name), to)); err != nil {
			return err
		}
	}
	return dirs.sync()
}

// stamps returns what the disk says of the directories below top: those that are known, with what
// was changed.
func (d *Dir) stamps(top string, known map[string]stamp, changed *dirSet) (map[string]stamp, error) {
	out := maps.Clone(known)
	if out == nil {
		out = map[string]stamp{}
	}
	for dir, there := range changed.made {
		name := cmp.Or(strings.TrimPrefix(strings.TrimPrefix(dir, top), "/"), ".")
		switch {
		case name == manifestDir:
			continue
		case !there:
			delete(out, name)
			continue
		}
		found, err := d.stat(dir)
		if err != nil {
			return nil, err
		}
		out[name] = found.stamp
	}
	return out, nil
}

// changes returns the files that the plan changes.
func (p *Plan) changes() []string {
	names := slices.Clone(p.Removed)
	for _, f := range slices.Concat(p.Added, p.Changed) {
		names = append(names, f.Path)
	}
	return names
}

// discard removes a directory beside the target, and with it links to its files. That changes what
// the disk says of them: those that were as the manifest m says are so afterwards.
func (d *Dir) discard(name string, m *manifest) error {
	if d.spare != nil && d.spare.name == name {
		d.spare = nil
	}
	if err := m.load(); err != nil {
		return err
	}
	if d.old == nil || len(m.files) == 0 {
		return d.parent.RemoveAll(name)
	}
	before, err := scan(d.old, len(m.files))
	if err != nil {
		return err
	}
	d.step("discard")
	if err := d.parent.RemoveAll(name); err != nil {
		return err
	}
	after, err := scan(d.old, len(m.files))
	if err != nil {
		return err
	}
	now, changed := time.Now(), false
	for name, e := range m.files {
		found := after.files[name] // with another time of change it was edited meanwhile
		if e.at == before.files[name].stamp && e.at != found.stamp && e.at.MTime == found.MTime {
			e.at, changed = found.trusted(now), true
			m.files[name] = e
		}
	}
	if !changed {
		return nil
	}
	return d.writeManifest(m)
}
