package state

import (
	"context"
	"fmt"
	"io"
)

// Backup writes a consistent copy of the file to w and returns its size. Writers are not held up.
func (s *Store) Backup(ctx context.Context, w io.Writer) (int64, error) {
	var n int64
	err := s.view(ctx, func(v view) (err error) {
		n, err = v.tx.WriteTo(contextWriter{ctx, w})
		return err
	})
	if err != nil {
		return n, fmt.Errorf("back up state: %w", err)
	}
	return n, nil
}

// contextWriter ends a long copy with its context.
type contextWriter struct {
	ctx context.Context // of the one call that copies
	w   io.Writer
}

func (c contextWriter) Write(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.w.Write(p)
}
