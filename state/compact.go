package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"limpet/state/atomicfile"
	"limpet/state/frame"
	"limpet/state/repair"
)

// Compact rewrites the file without its free space and returns the sizes before and after, in bytes. Writers wait,
// readers do not. The new file is durable before it takes the place of the old one by rename, so that a power cut
// leaves one or the other.
func (s *Store) Compact(ctx context.Context) (before, after int64, err error) {
	err = s.submit(ctx, &request{done: make(chan struct{}), alone: func() error {
		old := s.cur
		fresh, err := compactInto(ctx, old, s.path, s.maxSize)
		if err != nil {
			return fmt.Errorf("compact state: %w", err)
		}
		before, after = old.size(), fresh.size()
		s.files.Add(1)
		s.mu.Lock()
		s.cur = fresh
		s.mu.Unlock()
		s.release(old)
		return nil
	}})
	return before, after, err
}

// compactInto writes the records of src into a new file that takes the place of the one at path, and returns it open.
// src stays open. Nobody may write to it meanwhile.
func compactInto(ctx context.Context, src *file, path string, maxSize int64) (*file, error) {
	name := path + suffixCompacting
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, frame.Classify(err)
	}
	dst, err := openBolt(name, boltOptions(maxSize))
	if err == nil {
		if err = src.copyTo(ctx, dst); err == nil {
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
	// With the rename the new file is the one, also when its directory cannot be synced: what is written to the old one
	// from here on would be lost for sure, not only after a power cut.
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

// Backup writes a consistent copy of the file to w and returns its size in bytes. Neither writers nor Compact are held
// up by a slow w; Close waits for it.
func (s *Store) Backup(ctx context.Context, w io.Writer) (int64, error) {
	var n int64
	out := &copyWriter{ctx: ctx, w: w}
	err := s.view(ctx, func(v view) (err error) {
		n, err = v.tx.WriteTo(out)
		return err
	})
	if out.err != nil {
		// bbolt flattens the writer's error into text.
		err = out.err
	}
	if err != nil {
		return n, fmt.Errorf("back up state: %w", err)
	}
	return n, nil
}

// copyWriter ends a long copy with its context.
type copyWriter struct {
	ctx context.Context // of the one call that copies
	w   io.Writer
	err error // first one
}

func (c *copyWriter) Write(p []byte) (n int, err error) {
	if c.err = context.Cause(c.ctx); c.err == nil {
		n, c.err = c.w.Write(p)
	}
	return n, c.err
}
