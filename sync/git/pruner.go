package git

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"limpet/sync/auth"
)

// Prune deletes the mirrors of remotes that are neither in keep nor submodules of those, and into
// which nothing was fetched for the time of rest, and returns how many there were. One that is
// being fetched into is left for the next time.
func (m *Mirrors) Prune(keep []Remote, rest time.Duration) (removed int, err error) {
	wanted := make(map[string]bool)
	for _, r := range keep {
		wanted[m.dirOf(r)] = true
	}
	dirs, err := os.ReadDir(m.dir)
	if err != nil {
		return 0, err
	}
	for _, d := range dirs {
		dir := filepath.Join(m.dir, d.Name())
		if !d.IsDir() || len(d.Name()) != mirrorName || wanted[dir] || m.inParent(dir, wanted, rest) || time.Since(fetchedAt(dir)) < rest {
			continue
		}
		n, _ := readNote(dir)
		if a, perr := auth.ParseAddress(n.URL); perr == nil && m.mirror(a).dir == dir { // else nothing can be fetched into it
			mi := m.mirror(a)
			select {
			case mi.turn <- struct{}{}:
				defer mi.unlock()
				defer mi.changed()
			default:
				continue
			}
		}
		err = errors.Join(err, os.RemoveAll(dir), os.RemoveAll(filepath.Join(m.dir, largeDir, d.Name())))
		removed++
	}
	return removed, err
}

// inParent reports whether a mirror is that of a submodule of a wanted repository: it was pulled
// with it last, or at most the time of rest before something came into that one.
func (m *Mirrors) inParent(dir string, wanted map[string]bool, rest time.Duration) bool {
	note := filepath.Join(dir, parentFile)
	name, err := os.ReadFile(note)
	parent := filepath.Join(m.dir, string(name))
	if err != nil || !wanted[parent] {
		return false
	}
	info, err := os.Stat(note)
	return err == nil && info.ModTime().After(fetchedAt(parent).Add(-rest))
}

// fetchedAt is when something came into a mirror last.
func fetchedAt(dir string) time.Time {
	var last time.Time
	for _, d := range []string{dir, filepath.Join(dir, "objects", "pack")} {
		if info, err := os.Stat(d); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}

// Usage counts the mirrors and the bytes that they take on disk, with the files of
// Git LFS. What goes while it looks is not counted. It reads directories only.
func (m *Mirrors) Usage(ctx context.Context) (mirrors int, bytes int64, err error) {
	err = filepath.WalkDir(m.dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil && !d.IsDir():
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				bytes += info.Size()
			}
		case err == nil && filepath.Dir(path) == m.dir && len(d.Name()) == mirrorName:
			mirrors++
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return mirrors, bytes, err
}
