package sink

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"limpet/state/atomicfile"
)

const (
	fileMode = 0o644
	execMode = 0o755
	dirMode  = 0o755
)

// Dir is a directory that is being written. It is locked against other writers on the host until
// Close.
type Dir struct {
	target Target
	owner  string
	base   string // name in parent
	parent *os.Root
	self   *os.File // parent, for its lock and its sync
	old    *os.Root // the directory as it is; nil when there is none
	was    manifest
	spare  *spare // the other generation; nil when there is none that can be used
	ahead  *Ahead // files that were written before they were planned; nil = none
	// Exec marks a directory that is switched, for RunExec.
	Exec bool
	// Thorough has Plan read every file, whatever the disk says of it.
	Thorough bool
	// KeepEdits leaves files that others have changed as they are, until they change in Git.
	KeepEdits bool

	// step is called before each step that changes the disk; tests stop the write there.
	step func(name string)
	// noSwap disables the atomic exchange; for tests.
	noSwap bool
	// basedFrom is the size of a list from which on the changes to it are written; tests lower it.
	basedFrom int
}

// ForeignError is the error for a directory with another owner.
type ForeignError struct{ text string }

func (e *ForeignError) Error() string { return e.text }

func foreign(t Target, owner string) error {
	if strings.Count(owner, "/") < 2 { // a Repository; others have their kind before their name
		owner = "repository " + owner
	}
	return &ForeignError{fmt.Sprintf("%s belongs to %s; name another directory, or remove this one if its owner is gone", t, owner)}
}

// Open locks the directory, removes the remains of an interrupted writer and checks that the
// directory is empty or belongs to owner ("namespace/name" of a Repository, "Kind/namespace/name"
// of others), else the error is a *ForeignError. It waits for another writer until ctx ends. The
// caller must close the Dir.
func Open(ctx context.Context, t Target, owner string) (*Dir, error) { return open(ctx, t, owner, nil) }

func open(ctx context.Context, t Target, owner string, ahead *Ahead) (*Dir, error) {
	parent, err := t.parent()
	if err != nil {
		return nil, err
	}
	d := &Dir{target: t, owner: owner, base: path.Base(t.rel), parent: parent, ahead: ahead, step: func(string) {},
		basedFrom: basedFrom}
	if err := d.begin(ctx); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Look opens the directory for a Plan alone: it takes no lock and changes nothing. A directory that
// does not exist is empty.
func Look(_ context.Context, t Target, owner string) (*Dir, error) {
	root, err := openPrefix(t.prefix)
	if err != nil {
		return nil, err
	}
	d := &Dir{target: t, owner: owner, base: t.rel, parent: root}
	if err := d.inspect(); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// openPrefix opens a directory below which limpet may write. It does not create it.
func openPrefix(dir string) (*os.Root, error) {
	if err := CheckPrefix(dir); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open sink prefix: %w", err)
	}
	return root, nil
}

// CheckPrefix returns an error for a missing directory of --sink-prefix.
func CheckPrefix(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--sink-prefix %s does not exist; run: mkdir -p %s", dir, dir)
	}
	return nil
}

// Close unlocks the directory. It is safe to call more than once.
func (d *Dir) Close() error {
	if d.old != nil {
		d.old.Close()
		d.old = nil
	}
	var err error
	if d.self != nil {
		err = d.self.Close() // which unlocks it
		d.self = nil
	}
	if d.parent != nil {
		d.parent.Close()
		d.parent = nil
	}
	return err
}

// Release removes the manifest and the other generation: from then on the files belong to the host.
// It succeeds for a directory that does not exist.
func (d *Dir) Release() error {
	if d.spare != nil {
		if err := d.parent.RemoveAll(d.spare.name); err != nil {
			return fmt.Errorf("release %s: %w", d.target, err)
		}
	}
	err := d.parent.Remove(path.Join(d.base, manifestPath)) // which cannot be read without the rest
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = d.parent.RemoveAll(path.Join(d.base, manifestDir))
	}
	if err != nil {
		return fmt.Errorf("release %s: %w", d.target, err)
	}
	return nil
}

// Leave releases a directory whose owner is deleted, with remove after the files of the manifest
// are removed, and returns their number. A directory with another owner stays as it is.
func Leave(ctx context.Context, t Target, owner string, remove bool) (int, error) {
	dir, err := Open(ctx, t, owner)
	if err != nil {
		if errors.As(err, new(*ForeignError)) {
			return 0, nil // it never belonged to the owner, or is released already
		}
		return 0, err
	}
	defer dir.Close()
	files := dir.Files()
	if remove && files > 0 {
		plan, err := dir.Plan("", "", nil)
		if err != nil {
			return 0, err
		}
		if err := dir.Write(ctx, plan, nil, func(File) {}); err != nil {
			return 0, err
		}
	}
	return files, dir.Release()
}

func (d *Dir) begin(ctx context.Context) (err error) {
	if d.self, err = d.parent.Open("."); err != nil {
		return fmt.Errorf("open directory %s: %w", filepath.Dir(d.target.String()), err)
	}
	if err := atomicfile.Lock(ctx, d.self); err != nil {
		return fmt.Errorf("lock directory %s: %w", filepath.Dir(d.target.String()), err)
	}
	left, err := d.recover()
	if err != nil {
		return fmt.Errorf("clean up beside %s: %w", d.target, err)
	}
	if err := d.inspect(); err != nil {
		return err
	}
	if !slices.Contains(left, d.ahead.stage()) || !d.IsFirst() {
		d.ahead = nil
	}
	for _, name := range left {
		if name == d.ahead.stage() {
			continue
		}
		if d.spare = d.findSpare(name); d.spare != nil {
			continue
		}
		if err := d.discard(name, &d.was); err != nil {
			return fmt.Errorf("clean up beside %s: %w", d.target, err)
		}
	}
	return nil
}

// Names of the directories that a writer makes beside its target.
func (d *Dir) stagePrefix() string { return stagePrefix(d.base) }
func (d *Dir) oldPrefix() string   { return "." + d.base + ".limpet-old-" }

func stagePrefix(base string) string { return "." + base + ".limpet-new-" }

// recover returns the directories of former writes. Only a crash between the two renames of a switch
// without exchange leaves no directory in place; then recover restores the old one, and the write
// starts over.
func (d *Dir) recover() (left []string, err error) {
	entries, err := fs.ReadDir(d.parent.FS(), ".")
	if err != nil {
		return nil, err
	}
	_, missing := d.parent.Lstat(d.base)
	for _, e := range entries {
		name := e.Name()
		old := strings.HasPrefix(name, d.oldPrefix())
		switch {
		case old && errors.Is(missing, fs.ErrNotExist):
			if missing = d.parent.Rename(name, d.base); missing != nil {
				return nil, missing
			}
		case old, strings.HasPrefix(name, d.stagePrefix()):
			left = append(left, name)
		}
	}
	return left, nil
}

// inspect opens the directory and reads its manifest.
func (d *Dir) inspect() error {
	info, err := d.parent.Lstat(d.base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look at %s: %w", d.target, err)
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link; name the directory itself", d.target)
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", d.target)
	}
	if d.old, err = d.parent.OpenRoot(d.base); err != nil {
		return fmt.Errorf("open %s: %w", d.target, err)
	}
	m, err := readManifest(d.old)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", d.target, err)
	case m == nil:
		entries, err := fs.ReadDir(d.old.FS(), ".")
		if err != nil {
			return fmt.Errorf("look at %s: %w", d.target, err)
		}
		if len(entries) > 0 {
			return &ForeignError{fmt.Sprintf(
				"%s is not empty and was not made by limpet; empty it or name another directory", d.target)}
		}
	case m.Repository != d.owner:
		return foreign(d.target, m.Repository)
	default:
		d.was = *m
	}
	return nil
}

// Files returns the number of files in the manifest.
func (d *Dir) Files() int {
	if d.was.list != "" {
		return d.was.Count
	}
	return len(d.was.files)
}
