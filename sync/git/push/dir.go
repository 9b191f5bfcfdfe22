package push

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"limpet/state/atomicfile"
	"limpet/sync/failpoint"
	"limpet/sync/git/giterr"
	"limpet/sync/git/pack"
	"limpet/sync/git/transport"
)

// A directory of plain files has no history: what a commit changes is written to its files. Each
// one is replaced whole and is durable before a file is deleted, so that no content is lost on the
// way, and all of it may be done twice. The commit itself is kept nowhere: it is
// transport.DirCommit, so that the directory has it when all is written.

// Dir makes the files of the directory of a call those of a commit, if they are those of u.Old.
func Dir(c *transport.Call, u Update) error {
	root, err := c.OpenDir()
	if err != nil {
		return err
	}
	defer root.Close()
	self, err := root.Open(".")
	if err != nil {
		return err
	}
	defer self.Close()
	if err := atomicfile.Lock(c.Ctx, self); err != nil {
		return err
	}
	was, err := c.ReadDir(root)
	if err != nil && (giterr.KindOf(err) != giterr.Empty || !u.Old.IsZero()) {
		return err
	}
	for _, stray := range was.Strays {
		_ = root.Remove(stray) // of a writer that was killed
	}
	switch {
	case u.Branch != transport.DirBranch:
		return declined("a directory has no branches")
	case was.Commit == u.New:
		return nil
	case was.Commit != u.Old:
		return overtaken("its files have changed")
	}
	w := &dirWriter{ctx: c.Ctx, root: root, was: was, objects: maps.Clone(was.Made), write: map[string]pack.TreeEntry{},
		old: map[string]pack.ID{}, blobs: map[pack.ID]pack.Packed{}, added: map[string]pack.TreeEntry{}, removed: map[string]pack.TreeEntry{}}
	for _, o := range u.Objects {
		if o.Kind == pack.BlobKind {
			w.blobs[o.ID] = o
			continue
		}
		data, err := o.Unpack()
		if err != nil {
			return err
		}
		w.objects[o.ID] = pack.Object{ID: o.ID, Kind: o.Kind, Data: data}
	}
	commit, err := pack.ParseCommit(w.objects[u.New].Data)
	if err == nil {
		err = w.compare("", was.Tree, commit.Tree)
	}
	if err != nil {
		return err
	}
	return w.run()
}

// checkDir returns an error of kind ReadOnly for a directory that cannot be written to.
func checkDir(c *transport.Call) error {
	root, err := c.OpenDir()
	if err != nil {
		return err
	}
	defer root.Close()
	const write = 2 // of access(2)
	if err := syscall.Access(root.Name(), write); err != nil {
		return giterr.Wrap(giterr.ReadOnly, fmt.Errorf("the directory is not writable: %w", err), "give this user the right to write")
	}
	return nil
}

// dirWriter writes the difference of two trees to a directory.
type dirWriter struct {
	ctx     context.Context // run-scope: of the call
	root    *os.Root
	was     *transport.Dir
	objects map[pack.ID]pack.Object // trees, and the files that are read before
	blobs   map[pack.ID]pack.Packed // new contents
	// write are files with another content, added and removed whole entries; all by path.
	write, added, removed map[string]pack.TreeEntry
	old                   map[string]pack.ID // the contents that are replaced or moved, by path
	done                  int                // changes
}

// ready is called just before a path is replaced or removed: it returns an error if the call has
// ended, or if the path has not the content that was read there. Zero = absent.
func (w *dirWriter) ready(at string, id pack.ID) error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	if !w.was.Same(w.root, at, id) {
		return overtaken(at + " has changed")
	}
	return nil
}

func (w *dirWriter) entries(tree pack.ID) (map[string]pack.TreeEntry, error) {
	all, err := pack.ParseTree(w.objects[tree].Data)
	out := map[string]pack.TreeEntry{}
	for _, e := range all {
		out[e.Name] = e
	}
	return out, err
}

// compare finds what has to change below a directory.
func (w *dirWriter) compare(dir string, from, to pack.ID) error {
	old, err := w.entries(from)
	next, nerr := w.entries(to)
	if err := errors.Join(err, nerr); err != nil {
		return err
	}
	for name, e := range next {
		at, o := path.Join(dir, name), old[name]
		switch {
		case o.ID == e.ID && o.Mode == e.Mode:
		case o.Name == "":
			w.added[at] = e
		case o.Mode == pack.ModeTree && e.Mode == pack.ModeTree:
			if err := w.compare(at, o.ID, e.ID); err != nil {
				return err
			}
		case o.Mode == pack.ModeTree || e.Mode == pack.ModeTree:
			return declined(at + " is a directory here and a file there")
		default:
			w.write[at], w.old[at] = e, o.ID
		}
	}
	for name, e := range old {
		if _, stays := next[name]; !stays {
			w.removed[path.Join(dir, name)] = e
		}
	}
	return nil
}

// moves returns the removed entries that are added at another path: a rename has no moment at which
// a crash leaves both, and a directory that is renamed is not half here and half there. Of added
// only files are left, and of removed the directories among dirs are replaced by their entries.
func (w *dirWriter) moves() (out [][2]string, dirs []string, err error) {
	from := map[pack.TreeEntry][]string{} // by all but the name
	all := maps.Clone(w.removed)
	for open := slices.Sorted(maps.Keys(all)); len(open) > 0; open = open[1:] {
		e := pack.TreeEntry{Mode: all[open[0]].Mode, ID: all[open[0]].ID}
		from[e] = append(from[e], open[0])
		below, err := w.expand(all, open[0])
		if err != nil {
			return nil, nil, err
		}
		open = append(open, below...)
	}
	take := func(e pack.TreeEntry) string {
		for _, old := range from[pack.TreeEntry{Mode: e.Mode, ID: e.ID}] {
			for at := old; at != "."; at = path.Dir(at) {
				if _, is := w.removed[at]; is && at == old {
					return old
				} else if is {
					_, _ = w.expand(w.removed, at) // it was parsed above
					dirs, at = append(dirs, at), old+"/"
				}
			}
		}
		return ""
	}
	for _, kind := range []bool{true, false} { // directories first
		for open := slices.Sorted(maps.Keys(w.added)); len(open) > 0; open = open[1:] {
			at, e := open[0], w.added[open[0]]
			if (e.Mode == pack.ModeTree) != kind {
				continue
			}
			if old := take(e); old != "" {
				out = append(out, [2]string{old, at})
				w.old[old] = e.ID
				delete(w.removed, old)
				delete(w.added, at)
				continue
			}
			below, err := w.expand(w.added, at)
			if err != nil {
				return nil, nil, err
			}
			open = append(open, below...)
		}
	}
	return out, dirs, nil
}

// expand replaces a directory among some entries by its entries, and returns these.
func (w *dirWriter) expand(entries map[string]pack.TreeEntry, dir string) (below []string, err error) {
	if entries[dir].Mode != pack.ModeTree {
		return nil, nil
	}
	all, err := w.entries(entries[dir].ID)
	for name, e := range all {
		entries[path.Join(dir, name)] = e
		below = append(below, path.Join(dir, name))
	}
	delete(entries, dir)
	slices.Sort(below)
	return below, err
}

// run writes and moves, and deletes afterwards. It begins when nothing has changed of all that it
// is to change.
func (w *dirWriter) run() error {
	moves, dirs, err := w.moves()
	if err != nil {
		return err
	}
	for open := slices.Collect(maps.Keys(w.removed)); len(open) > 0; open = open[1:] {
		if w.removed[open[0]].Mode == pack.ModeTree {
			dirs = append(dirs, open[0])
		}
		below, err := w.expand(w.removed, open[0])
		if err != nil {
			return err
		}
		open = append(open, below...)
	}
	slices.SortFunc(dirs, func(a, b string) int { return strings.Compare(b, a) }) // the deepest first
	maps.Copy(w.write, w.added)
	for at, e := range w.write {
		if err := cmp.Or(w.load(at, e), w.ready(at, w.old[at])); err != nil {
			return err
		}
	}
	for _, move := range moves {
		if err := cmp.Or(w.ready(move[0], w.old[move[0]]), w.free(move)); err != nil {
			return err
		}
	}
	for at, e := range w.removed {
		if err := w.ready(at, e.ID); err != nil {
			return err
		}
	}
	err = w.change(moves, dirs)
	if e, is := errors.AsType[*giterr.Error](err); is && w.done > 0 {
		e.Err = fmt.Errorf("%d of %d changes are made: %w", w.done, len(w.write)+len(moves)+len(w.removed)+len(dirs), e.Err)
	}
	return err
}

// free returns an error if something is where an entry moves to.
func (w *dirWriter) free(move [2]string) error {
	if strings.EqualFold(move[0], move[1]) { // in some file systems these are one file
		return nil
	}
	return w.ready(move[1], pack.ID{})
}

// step counts a change that is durable, or returns its error.
func (w *dirWriter) step(err error) error {
	if err != nil {
		return err
	}
	w.done++
	return failpoint.Pass(failpoint.Written)
}

// change makes the changes.
func (w *dirWriter) change(moves [][2]string, dirs []string) error {
	for _, at := range slices.Sorted(maps.Keys(w.write)) {
		if err := w.step(w.file(at, w.write[at])); err != nil {
			return fmt.Errorf("write %s: %w", at, err)
		}
	}
	for _, move := range moves {
		err := cmp.Or(w.makeDir(path.Dir(move[1])), w.free(move), w.ready(move[0], w.old[move[0]]))
		if err == nil {
			err = w.root.Rename(move[0], move[1])
		}
		err = errors.Join(err, w.sync(path.Dir(move[1])), w.sync(path.Dir(move[0])))
		if err = w.step(err); err != nil {
			return fmt.Errorf("move %s: %w", move[0], err)
		}
	}
	for _, at := range slices.Concat(slices.Sorted(maps.Keys(w.removed)), dirs) {
		if err := w.ready(at, w.removed[at].ID); err != nil {
			return err
		}
		// A directory may have got files meanwhile, or have some that are left out of trees.
		if err := w.root.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
			return fmt.Errorf("delete %s: %w", at, err)
		}
		if err := w.step(w.sync(path.Dir(at))); err != nil {
			return err
		}
	}
	return nil
}

// load reads a content that is elsewhere in the directory, before that is written to.
func (w *dirWriter) load(at string, e pack.TreeEntry) error {
	if e.Mode == pack.ModeLink {
		return declined(at + " would be a link")
	}
	if _, made := w.blobs[e.ID]; made {
		return nil
	}
	data, err := w.root.ReadFile(w.was.Files[e.ID])
	if err == nil && pack.IDOf(pack.BlobKind, data) != e.ID {
		err = overtaken("its files have changed")
	}
	w.objects[e.ID] = pack.Object{ID: e.ID, Kind: pack.BlobKind, Data: data}
	return err
}

// file writes a file whole. One that is there keeps its permissions.
func (w *dirWriter) file(at string, e pack.TreeEntry) error {
	dir, data := path.Dir(at), w.objects[e.ID].Data
	err := w.makeDir(dir)
	if o, made := w.blobs[e.ID]; made && err == nil {
		data, err = o.Unpack()
	}
	if err != nil {
		return err
	}
	temp := path.Join(dir, fmt.Sprintf(".limpet-%s-%d.tmp", rand.Text()[:8], os.Getpid()))
	f, err := w.root.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fs.FileMode(e.Mode&0o777))
	if err != nil {
		return err
	}
	if old, serr := w.root.Stat(at); serr == nil {
		err = f.Chmod(old.Mode().Perm())
	}
	if err == nil {
		_, err = f.Write(data)
	}
	if err = cmp.Or(errors.Join(err, f.Sync(), f.Close()), w.ready(at, w.old[at])); err == nil {
		err = w.root.Rename(temp, at)
	}
	if err != nil {
		return errors.Join(err, w.root.Remove(temp))
	}
	return w.sync(dir)
}

// makeDir makes a directory and those above it durable.
func (w *dirWriter) makeDir(dir string) error {
	if dir == "." {
		return nil
	}
	if _, err := w.root.Stat(dir); err == nil {
		return nil
	}
	if err := w.makeDir(path.Dir(dir)); err != nil {
		return err
	}
	if err := w.root.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return w.sync(path.Dir(dir))
}

func (w *dirWriter) sync(dir string) error {
	if dir == "." {
		return atomicfile.SyncDir(w.root.Name())
	}
	d, err := w.root.Open(dir)
	if errors.Is(err, fs.ErrNotExist) { // it was deleted or moved
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}
