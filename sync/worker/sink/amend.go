package sink

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// maxAmended is the number of changed files up to which a manifest is not read whole.
const maxAmended = 50

// Amend plans the changes from the commit last, which the directory has from the same source, in the
// time of the changes. A file that stays and that another program has changed in place is the same in
// both generations, and is left to Check. ok is false where Plan has to find out more: another
// program has added, deleted or replaced files, two files have one UID, or no generation is there.
func (d *Dir) Amend(last, commit, source string, written []File, removed []string) (p *Plan, ok bool, err error) {
	p = &Plan{manifest: d.was, amends: true, Hidden: d.was.Hidden, here: new(listing)}
	p.manifest.Commit = commit
	p.manifest.changed = map[string]entry{}
	maps.Copy(p.manifest.changed, d.was.changed)
	if d.was.list == "" || d.spare == nil || d.was.Commit != last || d.was.Source != source ||
		!d.was.Based && strings.Contains(d.was.list, SHA256) || // what is in Git LFS may follow from more than changes
		len(written)+len(removed)+len(d.spare.Stale) > maxAmended {
		return nil, false, nil
	}
	if p.here.dirs, ok = d.unchanged(d.base, d.spare.Seen); ok {
		_, ok = d.unchanged(d.spare.name, d.spare.Dirs)
	}
	if !ok {
		return nil, false, nil
	}
	for _, name := range removed {
		if _, ours := d.was.get(name); ours {
			p.Removed = append(p.Removed, name)
			p.manifest.set(name, entry{})
		}
	}
	for i, f := range written {
		found, err := d.stat(path.Join(d.base, f.Path))
		_, ours := d.was.get(f.Path)
		f.at = i
		switch {
		case p.manifest.hasUID(f) || strings.HasPrefix(f.Path+"/", manifestDir+"/"):
			return nil, false, nil
		case ours && err == nil && found.mode&unix.S_IFMT == unix.S_IFREG:
			p.Changed = append(p.Changed, f)
		case !ours && errors.Is(err, fs.ErrNotExist):
			p.Added = append(p.Added, f)
		default:
			return nil, false, nil
		}
		p.manifest.set(f.Path, entry{hash: f.Hash, size: f.Size, exec: f.Exec, uid: f.UID})
	}
	p.foreign = d.spare.Foreign
	return p, p.manifest.Count > 0, d.addStale(p)
}

// hasUID reports whether another file has the UID of f.
func (m *manifest) hasUID(f File) bool {
	if f.UID == "" {
		return false
	}
	for name, e := range m.changed {
		if e.uid == f.UID && name != f.Path {
			return true
		}
	}
	text := string(appendText([]byte{','}, f.UID)) + ","
	for rest := m.list; ; {
		before, after, found := strings.Cut(rest, text)
		if !found {
			return false
		}
		name, _, err := parseRow(before[strings.LastIndexByte(before, '\n')+1:] + text + "0,0,0]")
		if _, changed := m.changed[name]; err != nil || name != f.Path && !changed {
			return true
		}
		rest = after
	}
}

// addStale adds to a plan the files that stay and that the spare generation lacks.
func (d *Dir) addStale(p *Plan) error {
	changed := map[string]bool{}
	for _, name := range p.changes() {
		changed[name] = true
	}
	for _, name := range d.spare.Stale {
		e, ours := p.manifest.get(name)
		if changed[name] || !ours {
			continue
		}
		found, err := d.stat(path.Join(d.base, name))
		if err != nil {
			return err
		}
		if e.at != found.stamp {
			p.manifest.set(name, entry{hash: e.hash, size: e.size, exec: e.exec, uid: e.uid}) // not trusted
		}
		p.kept = append(p.kept, name)
	}
	return nil
}

// unchanged returns what the disk says of directories below one beside the target. same is false when
// it is not what it said of them before.
func (d *Dir) unchanged(top string, before map[string]stamp) (now map[string]inode, same bool) {
	now = make(map[string]inode, len(before))
	for name, was := range before {
		found, err := d.stat(path.Join(top, name))
		if err != nil || found.stamp != was {
			return nil, false
		}
		now[name] = found
	}
	return now, len(before) > 0
}
