package sink

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// writers is how many files are written at a time: each waits for the disk.
const writers = 8

// ErrLeftOut is the error of a reader for a file that is not added after all.
var ErrLeftOut = errors.New("the file is left out")

// Write carries out a plan. read opens the content of a file, one after the other in the order of
// the tree, before those opened earlier are closed, and none of a file that was written ahead; Write
// calls done after each written file. After an error the directory is unchanged. The end of ctx stops Write until the tree is complete; from
// then on it finishes.
func (d *Dir) Write(ctx context.Context, p *Plan, read func(context.Context, File) (io.ReadCloser, error), done func(File)) error {
	if p.manifest.Hidden = p.Hidden; p.manifest.list == "" {
		p.manifest.Count = len(p.manifest.files)
	}
	if p.Empty() && d.old != nil && d.was.same(&p.manifest) {
		return nil
	}
	if p.Empty() && d.old != nil && d.was.Repository != "" { // else it has no place for a manifest
		d.step("note")
		return d.writeManifest(&p.manifest)
	}
	stage, err := d.fill(ctx, p, read, done)
	if err != nil {
		return errors.Join(fmt.Errorf("write the tree for %s: %w", d.target, err), d.discard(stage, &d.was))
	}
	if err := d.exchange(stage, p); err != nil {
		return errors.Join(fmt.Errorf("put the new tree in the place of %s: %w", d.target, mountHint(err)), d.discard(stage, &d.was))
	}
	return nil
}

// writeManifest replaces the manifest of the present directory.
func (d *Dir) writeManifest(m *manifest) error {
	dirs := &dirSet{root: d.old, top: ".", made: map[string]bool{manifestDir: true}}
	_ = dirs.remove(newManifest) // of a process that was killed
	_, err := dirs.write(newManifest, m.encode(), fileMode)
	if err == nil {
		err = d.old.Rename(newManifest, manifestPath)
	}
	if err == nil {
		err = dirs.sync()
	}
	if err != nil {
		_ = dirs.remove(newManifest) // else it keeps the space that was not enough
		return fmt.Errorf("write manifest of %s: %w", d.target, err)
	}
	return nil
}

// stage makes a directory for the new tree with all that stays: the spare generation, or a new
// directory. It returns the files that it has linked.
func (d *Dir) stage(p *Plan) (dirs *dirSet, linked []string, err error) {
	if d.ahead != nil {
		if dirs, err = d.ahead.take(p); err != nil {
			return dirs, nil, err
		}
		linked = slices.Concat(p.kept, p.foreign) // of a writer that came meanwhile
		return dirs, linked, d.link(dirs, dirs.top, linked)
	}
	if d.spare != nil {
		dirs = &dirSet{root: d.parent, top: d.spare.name, made: map[string]bool{d.spare.name: true}}
		if linked, err = d.level(dirs, p); err == nil {
			return dirs, linked, nil
		}
		if p.amends {
			return dirs, nil, err
		}
		if err := d.discard(d.spare.name, &d.was); err != nil {
			return dirs, nil, err
		}
	}
	d.step("stage")
	stage := d.stagePrefix() + unique()
	dirs = &dirSet{root: d.parent, top: stage, made: map[string]bool{stage: true}}
	err = d.parent.Mkdir(stage, dirMode)
	if err == nil {
		err = d.parent.Chmod(stage, dirMode)
	}
	if err != nil {
		return dirs, nil, fmt.Errorf("make a directory beside %s: %w", d.target, err)
	}
	linked = slices.Concat(p.kept, p.foreign)
	return dirs, linked, d.link(dirs, stage, linked)
}

// fill makes the tree of the plan in a directory beside the target and syncs it.
func (d *Dir) fill(
	ctx context.Context, p *Plan, read func(context.Context, File) (io.ReadCloser, error), done func(File),
) (stage string, err error) {
	dirs, linked, err := d.stage(p)
	stage = dirs.top
	if err != nil {
		return stage, err
	}
	g, group := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	files := p.Added
	if len(p.Changed) > 0 {
		files = slices.Concat(p.Added, p.Changed)
		slices.SortFunc(files, func(a, b File) int { return a.at - b.at })
	}
	var mu sync.Mutex // guards written
	written, left := map[string]stamp{}, map[string]bool{}
	for _, f := range files {
		if group.Err() != nil {
			break
		}
		from, err := read(group, f)
		if errors.Is(err, ErrLeftOut) {
			left[f.Path] = true
			continue
		}
		if err != nil {
			g.Go(func() error { return fmt.Errorf("read %s: %w", f.Path, err) })
			break
		}
		if _, there := d.ahead.file(f); there {
			done(f)
			continue
		}
		g.Go(func() error {
			defer from.Close()
			d.step("file")
			mode := fs.FileMode(fileMode)
			if f.Exec {
				mode = execMode
			}
			at, err := dirs.write(path.Join(stage, f.Path), from, mode)
			if err != nil {
				return err
			}
			mu.Lock()
			written[f.Path] = at.stamp
			mu.Unlock()
			done(f)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return stage, err
	}
	if ctx.Err() != nil {
		return stage, context.Cause(ctx)
	}
	if err := d.ahead.drop(left); err != nil {
		return stage, err
	}
	p.leave(left)
	d.step("manifest")
	if err := d.stamp(p, stage, linked, written); err != nil {
		return stage, err
	}
	if err := d.linkBase(&p.manifest, dirs); err != nil {
		return stage, err
	}
	if _, err := dirs.write(path.Join(stage, manifestPath), p.manifest.encode(), fileMode); err != nil {
		return stage, err
	}
	if d.Exec {
		if _, err := dirs.write(path.Join(stage, execPath), strings.NewReader(unique()), fileMode); err != nil {
			return stage, err
		}
	}
	d.step("sync")
	if err := dirs.sync(); err != nil {
		return stage, err
	}
	var known map[string]stamp
	if d.spare != nil && d.spare.name == stage {
		known = d.spare.Dirs
	}
	p.seen, err = d.stamps(stage, known, dirs)
	return stage, err
}

// linkBase links the base of a manifest of the new tree, where it is to have one: that of the present
// manifest, or that one itself.
func (d *Dir) linkBase(m *manifest, dirs *dirSet) error {
	if m.rebase(d.basedFrom); !m.Based {
		return nil
	}
	from := manifestPath
	if d.was.Based {
		from = basePath
	}
	to := path.Join(dirs.top, basePath)
	if err := dirs.make(path.Dir(to)); err != nil {
		return err
	}
	return d.parent.Link(path.Join(d.base, from), to)
}

// link links files of the present directory into the new one.
func (d *Dir) link(dirs *dirSet, stage string, names []string) error {
	for _, name := range names {
		to := path.Join(stage, name)
		if err := dirs.make(path.Dir(to)); err != nil {
			return err
		}
		if err := d.parent.Link(path.Join(d.base, name), to); err != nil {
			return fmt.Errorf("keep %s: %w", name, err)
		}
	}
	return nil
}

// stamp notes in the manifest what the disk says of the files that were written or linked, but for
// those that are not trusted.
func (d *Dir) stamp(p *Plan, stage string, linked []string, written map[string]stamp) error {
	for _, name := range linked {
		e, ours := p.manifest.get(name)
		if !ours || e.at.MTime == 0 {
			continue
		}
		found, err := d.stat(path.Join(stage, name))
		if err != nil {
			return err
		}
		if found.MTime == e.at.MTime { // else it was edited since the plan
			written[name] = found.stamp
		}
	}
	now := time.Now()
	note := func(name string, found stamp) {
		if e, has := p.manifest.get(name); has {
			e.at = found.trusted(now)
			p.manifest.set(name, e)
		}
	}
	for name, found := range written {
		note(name, found)
	}
	if d.ahead != nil {
		for name, w := range d.ahead.files {
			note(name, w.at)
		}
	}
	return nil
}

// exchange replaces the target by the directory stage.
func (d *Dir) exchange(stage string, p *Plan) error {
	d.step("switch")
	if d.old == nil {
		if err := d.parent.Rename(stage, d.base); err != nil {
			return err
		}
		return d.self.Sync()
	}
	err := errors.ErrUnsupported
	if !d.noSwap {
		err = swap(d.self, stage, d.base)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		old := d.oldPrefix() + unique() // after a crash between the two renames recover restores the old directory
		if err := d.parent.Rename(d.base, old); err != nil {
			return err
		}
		d.step("between")
		if err := d.parent.Rename(stage, d.base); err != nil {
			return errors.Join(err, d.parent.Rename(old, d.base))
		}
		d.step("switched")
		return d.settle(old, p, false)
	}
	if err != nil {
		return err
	}
	d.step("switched")
	return d.settle(stage, p, true)
}

// settle syncs the switch and keeps the former tree as the spare generation, or removes it. If that
// fails, the next writer removes it.
func (d *Dir) settle(former string, p *Plan, swapped bool) error {
	if err := d.self.Sync(); err != nil {
		return err
	}
	d.old.Close()
	var err error
	if d.old, err = d.parent.OpenRoot(d.base); err != nil {
		d.old = nil
		return nil
	}
	if swapped {
		kept, err := d.keep(former, p)
		if kept || err != nil {
			return nil
		}
	}
	if d.rescue(former, p) == nil {
		_ = d.discard(former, &p.manifest)
	}
	return nil
}

// mountHint adds a hint to the error of renaming a mount point.
func mountHint(err error) error {
	if errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.EXDEV) {
		return fmt.Errorf("%w (is it a mount point? mount the directory above it instead)", err)
	}
	return err
}

// dirSet creates and changes directories and records them. It is safe for concurrent use, but for
// remove.
type dirSet struct {
	root *os.Root
	top  string          // all are in it
	mu   sync.Mutex      // guards made, and the creation of directories
	made map[string]bool // false = removed
}

func (s *dirSet) make(dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var missing []string
	for ; !s.made[dir]; dir = path.Dir(dir) {
		missing = append(missing, dir)
	}
	for _, dir := range slices.Backward(missing) {
		err := s.root.Mkdir(dir, dirMode)
		if err == nil {
			err = s.root.Chmod(dir, dirMode) // whatever the umask is
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		s.made[dir] = true
	}
	return nil
}

// remove removes a file if it is there, and the directories that are empty without it.
func (s *dirSet) remove(name string) error {
	err := s.root.Remove(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	for dir := path.Dir(name); err == nil && dir != s.top; dir = path.Dir(dir) {
		s.made[dir] = true
		if s.root.Remove(dir) != nil {
			return nil
		}
		s.made[dir] = false
		s.made[path.Dir(dir)] = true
	}
	return err
}

// write makes a new file and syncs it. It returns what the disk says of the file.
func (s *dirSet) write(name string, from io.Reader, mode fs.FileMode) (at inode, err error) {
	if err := s.make(path.Dir(name)); err != nil {
		return at, err
	}
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return at, err
	}
	_, err = io.Copy(f, from)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		var st unix.Stat_t
		err = retry(func() error { return unix.Fstat(int(f.Fd()), &st) })
		at = inodeOf(&st)
	}
	return at, errors.Join(err, f.Close())
}

// backdated is more than a step of the clock of any file system.
const backdated = 3 * time.Second

// sync syncs the directories, the deepest first. It has them look older than they are: a change that
// follows at once has another time then.
func (s *dirSet) sync() error {
	dirs := slices.DeleteFunc(slices.Collect(maps.Keys(s.made)), func(dir string) bool { return !s.made[dir] })
	slices.SortFunc(dirs, func(a, b string) int {
		return cmp.Or(strings.Count(b, "/")-strings.Count(a, "/"), strings.Compare(a, b))
	})
	for _, dir := range dirs {
		f, err := s.root.Open(filepath.FromSlash(dir))
		if err != nil {
			return err
		}
		err = s.root.Chtimes(dir, time.Time{}, time.Now().Add(-backdated))
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// unique returns a name that no other writer uses.
func unique() string { return rand.Text() }

// swap exchanges two names of a directory in one step. The error is errors.ErrUnsupported if the
// file system or the kernel does not support it.
func swap(dir *os.File, a, b string) error {
	fd := int(dir.Fd())
	err := exchange(fd, a, b)
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOTSUP):
		return fmt.Errorf("exchange directories: %w", errors.ErrUnsupported)
	case err != nil:
		return fmt.Errorf("exchange directories: %w", err)
	}
	return nil
}
