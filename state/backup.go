package state

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"limpet/state/repair"
)

// Backup writes a consistent copy of the file to w and returns its size in bytes. Neither writers
// nor Compact are held up by a slow w; Close waits for it.
func (s *Store) Backup(ctx context.Context, w io.Writer) (int64, error) {
	var n int64
	out := &copyWriter{ctx: ctx, w: w}
	err := s.view(ctx, func(v view) (err error) {
		n, err = v.tx.WriteTo(&headPlacer{w: out})
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

// headPlacer passes a copy by bbolt on with its heads in their slots. bbolt writes each of the two
// pages at once.
type headPlacer struct {
	w      io.Writer
	first  []byte // the first page, kept until the second is there
	placed bool
}

func (h *headPlacer) Write(p []byte) (int, error) {
	if h.placed {
		return h.w.Write(p)
	}
	if h.first == nil {
		h.first = bytes.Clone(p)
		return len(p), nil
	}
	h.placed = true
	_, err := h.w.Write(repair.PlaceHeads(h.first, p))
	return len(p), err
}
