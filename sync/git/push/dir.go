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
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"limpet/state/atomicfile"
	"limpet/sync/failpoint"
	"limpet/sync/git/giterr"
	"limpet/sync/git/pack"
	"limpet/sync/git/transport"
)

// A directory of plain files has no history: the edits of a commit are made to its files. Each one
// is replaced whole and is durable before a file is deleted, so that no content is lost on the way,
// and all of it may be done twice. The commit itself is kept nowhere: it is transport.DirCommit, so
// that the directory has it when all is written.

// Dir makes the edits of a commit in the directory of a call, if its files are those of u.Old.
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
	w := &dirWriter{ctx: c.Ctx, root: root, was: was, files: was.Contents(), removed: map[string]bool{}}
	for _, e := range u.Edits {
		if err := w.plan(e); err != nil {
			return err
		}
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

// dirWriter makes edits in a directory.
type dirWriter struct {
	ctx     context.Context // run-scope: of the call
	root    *os.Root
	was     *transport.Dir
	files   map[string]pack.ID // contents by path, as they are on disk after the changes so far
	writes  []dirChange        // that are independent of moves
	changes []dirChange        // moves, and the writes that follow from them
	removed map[string]bool    // paths of files, which are deleted when all else is done
	done    int                // changes
}

// dirChange is a change of a directory.
type dirChange struct {
	from, to string       // "" = nothing is there before, or after
	before   pack.ID      // at from
	replaced pack.ID      // at to; zero = nothing
	blob     *pack.Packed // nil = what is at from is moved or deleted
}

// plan adds an edit. What is in its way is found before the first change is made.
func (w *dirWriter) plan(e Edit) error {
	from, to := strings.TrimSuffix(e.Path, "/"), strings.TrimSuffix(e.To, "/")
	switch {
	case e.Blob != nil:
		return w.planWrite(from, e.Blob)
	case to != "":
		return w.planMove(from, to)
	}
	for _, at := range w.below(from) {
		w.removed[at] = true
		if err := w.first(at); err != nil {
			return err
		}
	}
	return nil
}

func (w *dirWriter) planWrite(at string, blob *pack.Packed) error {
	if w.files[at] == blob.ID {
		delete(w.removed, at)
		return nil
	}
	if err := w.first(at); err != nil {
		return err
	}
	change := dirChange{to: at, replaced: w.files[at], blob: blob}
	moved := slices.ContainsFunc(w.changes, func(m dirChange) bool { return inside(at, m.from) || inside(at, m.to) })
	if moved {
		w.changes = append(w.changes, change)
	} else {
		w.writes = append(w.writes, change)
	}
	w.files[at] = blob.ID
	delete(w.removed, at)
	return nil
}

// planMove moves a file or a directory. A rename has no moment at which a crash leaves both, and a
// directory that is renamed is not half here and half there.
func (w *dirWriter) planMove(from, to string) error {
	if err := cmp.Or(w.first(from), w.first(to)); err != nil {
		return err
	}
	w.changes = append(w.changes, dirChange{from: from, to: to, before: w.files[from], replaced: w.files[to]})
	delete(w.removed, to)
	for _, at := range w.below(from) {
		now := to + strings.TrimPrefix(at, from)
		w.files[now] = w.files[at]
		delete(w.files, at)
		if w.removed[at] {
			w.removed[now] = true
			delete(w.removed, at)
		}
	}
	return nil
}

// below returns the file at a path, or the files of a directory, sorted.
func (w *dirWriter) below(dir string) (paths []string) {
	for at := range w.files {
		if inside(at, dir) {
			paths = append(paths, at)
		}
	}
	slices.Sort(paths)
	return paths
}

// inside reports whether a path is another one or below it.
func inside(at, dir string) bool { return dir != "" && strings.HasPrefix(at+"/", dir+"/") }

// first is ready for a path that no change before has altered.
func (w *dirWriter) first(at string) error {
	if before := w.was.Content(at); before != w.files[at] {
		return nil
	}
	return w.ready(at, w.files[at])
}

// ready is called just before a path is replaced or removed: it returns an error if the call has
// ended, or if the path has not the content that it is to have. Zero = absent, or a directory.
func (w *dirWriter) ready(at string, id pack.ID) error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	if !w.was.Same(w.root, at, id) {
		return overtaken(at + " has changed")
	}
	return nil
}

// run makes the changes: it writes, moves, and deletes afterwards.
func (w *dirWriter) run() error {
	slices.SortFunc(w.writes, func(a, b dirChange) int { return strings.Compare(a.to, b.to) })
	all := slices.Concat(w.writes, w.changes)
	for _, at := range slices.Sorted(maps.Keys(w.removed)) {
		all = append(all, dirChange{from: at, before: w.files[at]})
	}
	for _, dir := range w.emptied(all) {
		all = append(all, dirChange{from: dir})
	}
	for _, c := range all {
		err := w.change(c)
		if e, is := errors.AsType[*giterr.Error](err); is && w.done > 0 {
			e.Err = fmt.Errorf("%d of %d changes are made: %w", w.done, len(all), e.Err)
		}
		if err != nil {
			return err
		}
		w.done++
		if err := failpoint.Pass(failpoint.Written); err != nil {
			return err
		}
	}
	return nil
}

// emptied returns the directories that no file is left in, the deepest first.
func (w *dirWriter) emptied(changes []dirChange) []string {
	live, left := map[string]bool{".": true}, map[string]bool{}
	for at := range w.files {
		for dir := path.Dir(at); !w.removed[at] && !live[dir]; dir = path.Dir(dir) {
			live[dir] = true
		}
	}
	for _, c := range changes {
		for dir := path.Dir(c.from); c.from != "" && !live[dir]; dir = path.Dir(dir) {
			left[dir] = true
		}
	}
	return slices.SortedFunc(maps.Keys(left), func(a, b string) int { return strings.Compare(b, a) })
}

// change makes one change durable.
func (w *dirWriter) change(c dirChange) error {
	switch {
	case c.blob != nil:
		if err := w.write(c); err != nil {
			return fmt.Errorf("write %s: %w", c.to, err)
		}
		return nil
	case c.to != "":
		if err := w.move(c); err != nil {
			return fmt.Errorf("move %s: %w", c.from, err)
		}
		return nil
	}
	if err := w.ready(c.from, c.before); err != nil {
		return err
	}
	// A directory may have got files meanwhile, or have some that are left out of trees.
	if err := w.root.Remove(c.from); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return fmt.Errorf("delete %s: %w", c.from, err)
	}
	return w.sync(path.Dir(c.from))
}

func (w *dirWriter) move(c dirChange) error {
	err := cmp.Or(w.makeDir(path.Dir(c.to)), w.ready(c.to, c.replaced), w.ready(c.from, c.before))
	if err == nil {
		err = w.root.Rename(c.from, c.to)
	}
	if errors.Is(err, fs.ErrNotExist) { // of a directory
		err = overtaken(c.from + " is gone")
	}
	return errors.Join(err, w.sync(path.Dir(c.to)), w.sync(path.Dir(c.from)))
}

// write writes a file whole. One that is there keeps its permissions.
func (w *dirWriter) write(c dirChange) error {
	data, err := c.blob.Unpack()
	if err != nil {
		return err
	}
	dir := path.Dir(c.to)
	if err := w.makeDir(dir); err != nil {
		return err
	}
	temp := path.Join(dir, fmt.Sprintf(".limpet-%s-%d.tmp", rand.Text()[:8], os.Getpid()))
	f, err := w.root.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if old, serr := w.root.Stat(c.to); serr == nil {
		err = f.Chmod(old.Mode().Perm())
	}
	if err == nil {
		_, err = f.Write(data)
	}
	if err = cmp.Or(errors.Join(err, f.Sync(), f.Close()), w.ready(c.to, c.replaced)); err == nil {
		err = w.root.Rename(temp, c.to)
	}
	if err != nil {
		return errors.Join(err, w.root.Remove(temp))
	}
	return w.sync(dir)
}

// makeDir makes a directory and those above it durable.
func (w *dirWriter) makeDir(dir string) error {
	if _, err := w.root.Stat(dir); err == nil {
		return nil
	}
	if err := w.root.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for dir != "." {
		dir = path.Dir(dir)
		if err := w.sync(dir); err != nil {
			return err
		}
	}
	return nil
}

// sync makes the names in a directory durable, if it was neither deleted nor moved.
func (w *dirWriter) sync(dir string) error {
	err := atomicfile.SyncDir(filepath.Join(w.root.Name(), filepath.FromSlash(dir)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
