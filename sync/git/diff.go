package git

import (
	"cmp"
	"context"
	"maps"
	"path"
	"slices"
	"strings"

	"limpet/sync/git/pack"
)

// Changes compares what is below dir in two commits of the mirror, with paths relative to dir. A
// directory that one of them lacks is empty there; a deleted and an added file with the same
// content are one renamed file; links, submodules and refused names are no files. It makes no
// request. ErrUnknownCommit when a commit is not there: after a rebuild old ones are gone, and the
// whole tree has to be compared instead.
func (m *Mirrors) Changes(ctx context.Context, r Remote, from, to, dir string) (Comparison, error) {
	var d differ
	err := m.read(ctx, "compare commits", r, func(v *reading) error {
		d = differ{reading: v}
		a, err := v.treeOrEmpty(from, dir)
		if err != nil {
			return err
		}
		b, err := v.treeOrEmpty(to, dir)
		if err == nil {
			err = d.compare(a, b, "", 1)
		}
		return err
	})
	if err != nil {
		return Comparison{}, err
	}
	// Deleted files are paired with added ones of the same content, of several with that of the same
	// name.
	byHash := map[string][]Change{}
	for _, old := range d.deleted {
		byHash[old.FromHash] = append(byHash[old.FromHash], old)
	}
	paired := map[string]bool{}
	for _, c := range d.added {
		if same := byHash[c.Hash]; len(same) > 0 {
			at := max(0, slices.IndexFunc(same, func(o Change) bool { return path.Base(o.Path) == path.Base(c.Path) }))
			c.Type, c.From, c.FromHash = ChangeRenamed, same[at].Path, same[at].FromHash
			paired[c.From], byHash[c.Hash] = true, slices.Delete(same, at, at+1)
		}
		d.out.Files = append(d.out.Files, c)
	}
	for _, old := range d.deleted {
		if !paired[old.Path] {
			d.out.Files = append(d.out.Files, old)
		}
	}
	slices.SortStableFunc(d.out.Files, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return d.out, nil
}

// treeOrEmpty is the tree of dir at a commit, the zero name when there is none.
func (v *reading) treeOrEmpty(commit, dir string) (pack.ID, error) {
	_, c, err := v.commit(commit)
	if err != nil {
		return pack.ID{}, err
	}
	id, err := v.subtree(c.Tree, dir)
	if KindOf(err) == PathNotFound {
		return pack.ID{}, nil
	}
	return id, err
}

// differ descends into two trees where their names differ.
type differ struct {
	reading *reading
	out     Comparison
	added   []Change
	deleted []Change
	entries int
}

// compare compares two tree objects; the zero name is an empty tree.
func (d *differ) compare(a, b pack.ID, prefix string, depth int) error {
	if a == b {
		return nil
	}
	if err := d.reading.ctx.Err(); err != nil {
		return err
	}
	olds, refused, err := d.list(a, prefix)
	if err != nil {
		return err
	}
	news, still, err := d.list(b, prefix)
	if err != nil {
		return err
	}
	d.out.Unrefused = cmp.Or(missing(refused, still), d.out.Unrefused)
	d.out.Refused = cmp.Or(missing(still, refused), d.out.Refused)
	both := maps.Clone(olds)
	maps.Copy(both, news)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		if d.entries++; d.entries > 2*d.reading.limits.TreeEntries {
			return &TooLargeError{Count: true, What: "number of compared entries", Size: int64(d.entries), Limit: 2 * int64(d.reading.limits.TreeEntries)}
		}
		if err := d.entry(olds[name], news[name], prefix+name, depth); err != nil {
			return err
		}
	}
	return nil
}

// missing returns the path of a refusal that is not in others, "" for none.
func missing(some, others []Refusal) string {
	for _, r := range some {
		if !slices.ContainsFunc(others, func(o Refusal) bool { return o.Path == r.Path }) {
			return r.Path
		}
	}
	return ""
}

// list reads a directory by name; the zero ID is an empty one.
func (d *differ) list(id pack.ID, prefix string) (map[string]pack.TreeEntry, []Refusal, error) {
	named := map[string]pack.TreeEntry{}
	if id.IsZero() {
		return named, nil, nil
	}
	entries, refused, err := d.reading.directory(id, prefix)
	for _, e := range entries {
		named[e.Name] = e
	}
	return named, refused, err
}

// entry compares what is under one name; a zero mode is nothing.
func (d *differ) entry(old, new pack.TreeEntry, path string, depth int) error {
	if old.ID == new.ID && old.Mode == new.Mode {
		return nil
	}
	var oldTree, newTree pack.ID
	if old.Mode == pack.ModeTree {
		oldTree = old.ID
	}
	if new.Mode == pack.ModeTree {
		newTree = new.ID
	}
	appeared := oldTree.IsZero() != newTree.IsZero()
	switch {
	case depth < d.reading.limits.TreeDepth:
		d.out.Dirs = d.out.Dirs || appeared
		if err := d.compare(oldTree, newTree, path+"/", depth+1); err != nil {
			return err
		}
	case appeared && newTree.IsZero():
		d.out.Unrefused = showPath(path) // it was too deep
	case appeared:
		d.out.Refused = showPath(path)
	}
	oldFile, newFile := old.Mode != 0 && old.Mode != pack.ModeTree, new.Mode != 0 && new.Mode != pack.ModeTree
	switch {
	case oldFile && newFile:
		if old.ID != new.ID || modeText(old.Mode) != modeText(new.Mode) {
			d.out.Files = append(d.out.Files, Change{Type: ChangeModified, Path: path, Hash: new.ID.String(),
				FromHash: old.ID.String(), Mode: modeText(new.Mode)})
		}
	case oldFile:
		d.deleted = append(d.deleted, Change{Type: ChangeDeleted, Path: path, FromHash: old.ID.String()})
	case newFile:
		d.added = append(d.added, Change{Type: ChangeAdded, Path: path, Hash: new.ID.String(), Mode: modeText(new.Mode)})
	}
	return nil
}
