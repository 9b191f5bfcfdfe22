package git

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Usage counts the mirrors and the bytes that they take on disk, with the files of
// Git LFS. What goes while it looks is not counted. It reads directories only.
func (m *Mirrors) Usage(ctx context.Context) (mirrors int, bytes int64, err error) {
	err = filepath.WalkDir(m.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			err = context.Cause(ctx)
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if d.IsDir() {
			if filepath.Dir(path) == m.dir && len(d.Name()) == mirrorName {
				mirrors++
			}
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	return mirrors, bytes, err
}
