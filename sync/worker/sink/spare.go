package sink

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"limpet/sync/api/repopath"
)

// spare is the generation of a directory that is not shown. The two take turns: a write brings the
// spare one level with the shown one, makes its changes there and exchanges them, in the time of its
// changes, whatever the size of the directory. Files are links to those of the shown one, so a spare
// needs room for its directories alone, and a file is never written in place.
//
// What is known of it stands in a file inside, which goes before the first change and comes after the
// exchange. A spare without one, or with one of an earlier start of the host, was left by a crash or
// a power cut: it is removed, and the next write makes all links.
type spare struct {
	name string // in the directory above

	Boot    string            `json:"boot"`
	Shown   uint64            `json:"shown"`   // inode of the directory that it belongs to
	Stale   []string          `json:"stale"`   // repopath.Quote of files that are others in the shown one, or are in one of both
	Foreign map[string]uint64 `json:"foreign"` // files of other writers, with their inodes
	Dirs    map[string]stamp  `json:"dirs"`    // as they were left
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

// stat returns what the disk says of a file or directory beside the target.
func (d *Dir) stat(name string) (inode, error) {
	info, err := d.parent.Lstat(name)
	if err != nil {
		return inode{}, err
	}
	st := info.Sys().(*syscall.Stat_t)
	return inode{stamp{st.Mtim.Nano(), st.Ctim.Nano(), st.Ino}, st.Size, st.Mode, st.Uid, st.Gid}, nil
}

// findSpare returns the spare generation in a directory beside the target, nil if it is none.
func (d *Dir) findSpare(name string) *spare {
	data, err := d.parent.ReadFile(path.Join(name, sparePath))
	s := &spare{name: name}
	if err != nil || d.spare != nil || d.old == nil || json.Unmarshal(data, s) != nil {
		return nil
	}
	shown, err := d.stat(d.base)
	if now := boot(); err != nil || now == "" || s.Boot != now || s.Shown != shown.Inode {
		return nil
	}
	return s
}

// level makes the spare generation equal to the shown one, but for what the plan changes. It returns
// the files that are linked again.
func (d *Dir) level(dirs *dirSet, p *Plan) (linked []string, err error) {
	d.step("level")
	s := d.spare
	if err := d.parent.Remove(path.Join(s.name, sparePath)); err != nil {
		return nil, err
	}
	for name, was := range s.Dirs {
		if found, err := d.stat(path.Join(s.name, repopath.Unquote(name))); err != nil || found.stamp != was {
			return nil, fmt.Errorf("directory %s was changed by another program: %w", path.Join(s.name, name), err)
		}
	}
	has := map[string]uint64{} // of other writers
	for name, inode := range s.Foreign {
		has[repopath.Unquote(name)] = inode
	}
	gone := map[string]bool{manifestPath: true, execPath: true}
	for _, name := range slices.Concat(s.Stale, p.Removed) {
		gone[repopath.Unquote(name)] = true
	}
	for _, f := range slices.Concat(p.Added, p.Changed) {
		gone[f.Path] = true
	}
	for _, name := range slices.Concat(p.kept, p.foreign) {
		inode := has[name]
		if e, ours := d.was.files[name]; ours {
			inode = e.at.Inode
		}
		if delete(has, name); gone[name] || inode != p.here.files[name].Inode {
			gone[name] = true
			linked = append(linked, name)
		}
	}
	for name := range has {
		gone[name] = true
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
	now := boot()
	if err != nil || now == "" || d.was.Version == 0 || p.here.empty {
		return false, err
	}
	s := &spare{name: former, Boot: now, Shown: shown.Inode, Foreign: map[string]uint64{}, Dirs: map[string]stamp{}}
	for name, dir := range p.here.dirs {
		if dir.mode != shown.mode || dir.uid != shown.uid || dir.gid != shown.gid {
			return false, nil
		}
		s.Dirs[repopath.Quote(name)] = dir.stamp
	}
	for _, name := range p.foreign {
		s.Foreign[repopath.Quote(name)] = p.here.files[name].Inode
	}
	dirs := &dirSet{root: d.parent, top: former, made: map[string]bool{former: true}}
	touched := map[string]bool{".": true} // by the exchange
	for _, name := range p.changes() {
		s.Stale = append(s.Stale, repopath.Quote(name))
		if err := dirs.remove(path.Join(former, name)); err != nil {
			return false, err
		}
		for _, dir := range above(name) {
			touched[dir] = true
		}
	}
	for dir := range touched {
		found, err := d.stat(path.Join(former, dir))
		s.Dirs[repopath.Quote(dir)] = found.stamp
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			delete(s.Dirs, repopath.Quote(dir))
		} else if err != nil {
			return false, err
		}
	}
	data, err := json.Marshal(s)
	if err != nil {
		return false, err
	}
	d.step("keep")
	d.spare = s
	return true, d.parent.WriteFile(path.Join(former, sparePath), data, fileMode)
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
	if d.old == nil || len(m.files) == 0 {
		return d.parent.RemoveAll(name)
	}
	before, err := scan(d.old, len(m.files))
	if err != nil {
		return err
	}
	if err := d.parent.RemoveAll(name); err != nil {
		return err
	}
	after, err := scan(d.old, len(m.files))
	if err != nil {
		return err
	}
	now, changed := time.Now(), false
	for name, e := range m.files {
		if found := after.files[name]; e.at == before.files[name].stamp && e.at != found.stamp {
			e.at, changed = found.trusted(now), true
			m.files[name] = e
		}
	}
	if !changed {
		return nil
	}
	return d.writeManifest(m)
}
