package state

import (
	"context"
	"fmt"
	"io"
)

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
