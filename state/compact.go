package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"limpet/state/atomicfile"
	"limpet/state/frame"
	"limpet/state/repair"
)

// Compact rewrites the file without its free space and returns the sizes before and after, in
// bytes. Writers wait, readers do not. The new file is durable before it takes the place of the old
// one by rename, so that a power cut leaves one or the other.
func (s *Store) Compact(ctx context.Context) (before, after int64, err error) {
	err = s.submit(ctx, &request{done: make(chan struct{}), alone: func() error {
		if s.readOnly {
			return ErrReadOnly
		}
		old := s.cur
		fresh, err := compactInto(ctx, old, s.path, s.maxSize, true)
		if err != nil {
			return fmt.Errorf("compact state: %w", err)
		}
		before, after = old.size(), fresh.size()
		if fresh == old {
			return nil
		}
		s.files.Add(1)
		s.mu.Lock()
		s.cur = fresh
		s.mu.Unlock()
		s.release(old)
		return nil
	}})
	return before, after, err
}

// compactInto writes the records of src into a new file that takes the place of the one at path,
// and returns it open. src stays open and must not be written to meanwhile. With smaller it returns
// src where the new file is not smaller.
func compactInto(ctx context.Context, src *file, path string, maxSize int64, smaller bool) (*file, error) {
	name := path + suffixCompacting
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, frame.Classify(err)
	}
	dst, err := openBolt(name, boltOptions(maxSize))
	if err == nil {
		err = src.copyTo(ctx, dst)
		if err == nil && smaller && dst.size() >= src.size() {
			return src, errors.Join(dst.close(), os.Remove(name))
		}
		if err == nil {
			err = frame.Classify(os.Rename(name, path))
		}
		if err != nil {
			err = errors.Join(err, dst.close())
		}
	}
	if err != nil {
		_ = os.Remove(name)
		return nil, err
	}
	// With the rename the new file is the one, also when its directory cannot be synced: what is
	// written to the old one from here on would be lost for sure, not only after a power cut.
	_ = atomicfile.SyncDir(filepath.Dir(path))
	return dst, nil
}

// copyTo copies all records, verifying each frame and counter.
func (f *file) copyTo(ctx context.Context, dst *file) error {
	return repair.Guard(func() error {
		return f.db.View(func(tx *bbolt.Tx) error {
			v := view{tx: tx}
			m, err := v.meta()
			if err != nil {
				return err
			}
			b := newBuilder(dst, m)
			for _, name := range frame.DataBuckets {
				err := v.scanVerified(ctx, name, func(k []byte, f frame.Frame) error { return b.add(name, k, f) })
				if err != nil {
					return errors.Join(err, b.abort())
				}
			}
			return b.finish()
		})
	})
}

// size of the file in bytes.
func (f *file) size() int64 {
	info, err := f.handle.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// free is how many bytes of the file are pages without records.
func (f *file) free() int64 {
	stats := f.db.Stats()
	return int64(stats.FreePageN+stats.PendingPageN) * int64(f.db.Info().PageSize)
}

// replaceFile renames a durable file over another and makes the rename durable.
func replaceFile(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return frame.Classify(err)
	}
	return atomicfile.SyncDir(filepath.Dir(to))
}
