package sink

import (
	"bytes"
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
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// writers is how many files are written at a time: each waits for the disk.
const writers = 8

// Write carries out a plan. read opens the content of a file, one after the other in the order of
// the tree, before those opened earlier are closed; Write calls done after each written file. After
// an error the directory is unchanged. The end of ctx stops Write until the tree is complete; from
// then on it finishes.
func (d *Dir) Write(ctx context.Context, p *Plan, read func(context.Context, File) (io.ReadCloser, error), done func(File)) error {
	if p.Empty() && d.old != nil {
		if err := p.manifest.stamp(d.old, "."); err != nil {
			return fmt.Errorf("look at %s: %w", d.target, err)
		}
		if reflect.DeepEqual(d.was, p.manifest) {
			return nil
		}
		d.step("note")
		dirs := &dirSet{root: d.old, made: map[string]bool{".": true, manifestDir: true}}
		temporary := manifestPath + "." + unique()
		err := dirs.write(temporary, bytes.NewReader(p.manifest.encode()), fileMode)
		if err == nil {
			err = d.old.Rename(temporary, manifestPath)
		}
		if err == nil {
			err = dirs.sync()
		}
		if err != nil {
			return fmt.Errorf("write manifest of %s: %w", d.target, err)
		}
		return nil
	}
	d.step("stage")
	stage := d.stagePrefix() + unique()
	err := d.parent.Mkdir(stage, dirMode)
	if err == nil {
		err = d.parent.Chmod(stage, dirMode)
	}
	if err != nil {
		return fmt.Errorf("make a directory beside %s: %w", d.target, err)
	}
	if err := d.fill(ctx, stage, p, read, done); err != nil {
		return errors.Join(fmt.Errorf("write the tree for %s: %w", d.target, err), d.parent.RemoveAll(stage))
	}
	if err := d.exchange(stage); err != nil {
		return errors.Join(fmt.Errorf("put the new tree in the place of %s: %w", d.target, mountHint(err)), d.parent.RemoveAll(stage))
	}
	return nil
}

// fill makes the tree of the plan in the directory stage and syncs it.
func (d *Dir) fill(
	ctx context.Context, stage string, p *Plan, read func(context.Context, File) (io.ReadCloser, error), done func(File),
) error {
	dirs := &dirSet{root: d.parent, made: map[string]bool{stage: true}}
	for _, f := range p.kept {
		if err := d.link(dirs, stage, f.Path); err != nil {
			return err
		}
	}
	for _, name := range p.foreign {
		if err := d.link(dirs, stage, name); err != nil {
			return err
		}
	}
	g, group := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	files := slices.Concat(p.Added, p.Changed)
	slices.SortFunc(files, func(a, b File) int { return a.at - b.at })
	for _, f := range files {
		if group.Err() != nil {
			break
		}
		from, err := read(group, f)
		if err != nil {
			g.Go(func() error { return fmt.Errorf("read %s: %w", f.Path, err) })
			break
		}
		g.Go(func() error {
			defer from.Close()
			d.step("file")
			mode := fs.FileMode(fileMode)
			if f.Exec {
				mode = execMode
			}
			if err := dirs.write(path.Join(stage, f.Path), from, mode); err != nil {
				return err
			}
			done(f)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	d.step("manifest")
	if err := p.manifest.stamp(d.parent, stage); err != nil {
		return err
	}
	if err := dirs.write(path.Join(stage, manifestPath), bytes.NewReader(p.manifest.encode()), fileMode); err != nil {
		return err
	}
	if d.Exec {
		if err := dirs.write(path.Join(stage, execPath), strings.NewReader(unique()), fileMode); err != nil {
			return err
		}
	}
	d.step("sync")
	return dirs.sync()
}

// link links a file of the present directory into the new one.
func (d *Dir) link(dirs *dirSet, stage, name string) error {
	to := path.Join(stage, name)
	if err := dirs.make(path.Dir(to)); err != nil {
		return err
	}
	if err := d.parent.Link(path.Join(d.base, name), to); err != nil {
		return fmt.Errorf("keep %s: %w", name, err)
	}
	return nil
}

// exchange replaces the target by the directory stage.
func (d *Dir) exchange(stage string) error {
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
		return d.settle(old)
	}
	if err != nil {
		return err
	}
	d.step("switched")
	return d.settle(stage)
}

// settle syncs the switch and removes the former tree. If that fails, the next writer removes it.
func (d *Dir) settle(former string) error {
	if err := d.self.Sync(); err != nil {
		return err
	}
	d.old.Close()
	d.old = nil
	_ = d.parent.RemoveAll(former)
	return nil
}

// mountHint adds a hint to the error of renaming a mount point.
func mountHint(err error) error {
	if errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.EXDEV) {
		return fmt.Errorf("%w (is it a mount point? mount the directory above it instead)", err)
	}
	return err
}

// dirSet creates directories and records them. It is safe for concurrent use.
type dirSet struct {
	root *os.Root
	mu   sync.Mutex // guards made, and the creation of directories
	made map[string]bool
}

func (s *dirSet) make(dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var missing []string
	for ; !s.made[dir]; dir = path.Dir(dir) {
		missing = append(missing, dir)
	}
	for _, dir := range slices.Backward(missing) {
		if err := errors.Join(s.root.Mkdir(dir, dirMode), s.root.Chmod(dir, dirMode)); err != nil { // whatever the umask is
			return err
		}
		s.made[dir] = true
	}
	return nil
}

// write makes a new file and syncs it.
func (s *dirSet) write(name string, from io.Reader, mode fs.FileMode) error {
	if err := s.make(path.Dir(name)); err != nil {
		return err
	}
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// sync syncs the directories, the deepest first.
func (s *dirSet) sync() error {
	dirs := slices.Collect(maps.Keys(s.made))
	slices.SortFunc(dirs, func(a, b string) int {
		return cmp.Or(strings.Count(b, "/")-strings.Count(a, "/"), strings.Compare(a, b))
	})
	for _, dir := range dirs {
		f, err := s.root.Open(filepath.FromSlash(dir))
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
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
	err := unix.Renameat2(fd, a, fd, b, unix.RENAME_EXCHANGE)
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOTSUP):
		return fmt.Errorf("exchange directories: %w", errors.ErrUnsupported)
	case err != nil:
		return fmt.Errorf("exchange directories: %w", err)
	}
	return nil
}
