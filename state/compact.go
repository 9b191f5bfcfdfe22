package state

import (
	"context"
	"errors"
	"fmt"
	"os"

	"go.etcd.io/bbolt"
)

// Compact rewrites the file without its free space and returns the sizes before and after, in bytes. Writers wait,
// readers do not. The new file is durable before it takes the place of the old one by rename.
func (s *Store) Compact(ctx context.Context) (before, after int64, err error) {
	err = s.submit(ctx, &request{done: make(chan struct{}), alone: func(s *Store) error {
		before, after, err = s.compact(ctx)
		return err
	}})
	return before, after, err
}

func (s *Store) compact(ctx context.Context) (before, after int64, err error) {
	old := s.cur
	fresh, err := copyFile(ctx, old, s.path+".compact", s.maxSize)
	if err != nil {
		return 0, 0, fmt.Errorf("compact state: %w", err)
	}
	before, after = sizeOf(old), sizeOf(fresh)
	if err := replaceFile(s.path+".compact", s.path); err != nil {
		_ = os.Remove(s.path + ".compact")
		return 0, 0, errors.Join(fmt.Errorf("compact state: %w", err), fresh.close())
	}
	s.mu.Lock()
	s.cur = fresh
	s.mu.Unlock()
	s.release(old)
	return before, after, nil
}

func sizeOf(f *file) int64 {
	info, err := f.handle.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// replaceFile renames a durable file over another and makes the rename durable.
func replaceFile(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return classify(err)
	}
	return syncDir(to)
}

// copyBatch is how many bytes of records one transaction of a copy takes.
const copyBatch = 4 << 20

// copyFile writes every record of src into a new file at path, verifying each, and returns it open. Nobody may write to
// src meanwhile. After an error there is no file at path.
func copyFile(ctx context.Context, src *file, path string, maxSize int64) (dst *file, err error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, classify(err)
	}
	dst, err = openBolt(path, boltOptions(maxSize))
	if err != nil {
		_ = os.Remove(path)
		return nil, err
	}
	err = guard(func() error {
		return src.db.View(func(tx *bbolt.Tx) error {
			v := view{tx}
			m, err := v.meta()
			if err != nil {
				return err
			}
			b := newBuilder(dst, m)
			for _, name := range dataBuckets {
				if err := v.whole(ctx, name, func(k []byte, f frame) error { return b.add(name, k, f) }); err != nil {
					return errors.Join(err, b.abort())
				}
			}
			return b.finish()
		})
	})
	if err != nil {
		err = errors.Join(err, dst.close())
		_ = os.Remove(path)
		return nil, err
	}
	return dst, nil
}
