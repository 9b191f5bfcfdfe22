package state

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"limpet/state/frame"
)

// PutFact keeps a small local fact.
func (s *Store) PutFact(ctx context.Context, key string, data []byte) error {
	return s.ChangeFacts(ctx, map[string][]byte{key: data}, nil)
}

// Fact returns a fact, or ErrNotFound.
func (s *Store) Fact(ctx context.Context, key string) ([]byte, error) {
	f, err := s.copyOf(ctx, frame.Facts, key)
	return f.Body, err
}

// Facts returns the facts whose keys begin with prefix.
func (s *Store) Facts(ctx context.Context, prefix string) (map[string][]byte, error) {
	return read(ctx, s, func(v view) (map[string][]byte, error) {
		out := map[string][]byte{}
		return out, v.scan(ctx, frame.Facts, []byte(prefix), nil, func(k []byte, f frame.Frame) (bool, error) {
			out[string(k)] = bytes.Clone(f.Body)
			return true, nil
		})
	})
}

// DeleteFact forgets a fact; one that is not there is no error.
func (s *Store) DeleteFact(ctx context.Context, key string) error {
	return s.ChangeFacts(ctx, nil, []string{key})
}

// copyOf returns a frame with a body of its own, or ErrNotFound.
func (s *Store) copyOf(ctx context.Context, b frame.Bucket, key string) (frame.Frame, error) {
	return read(ctx, s, func(v view) (frame.Frame, error) {
		f, ok, err := v.get(b, []byte(key))
		switch {
		case err != nil:
			return frame.Frame{}, err
		case !ok:
			return frame.Frame{}, fmt.Errorf("%s %q: %w", b, key, ErrNotFound)
		}
		f.Body = append([]byte{}, f.Body...)
		return f, nil
	})
}

// ChangeFacts keeps the facts of put and forgets those of forget, all in one transaction. A fact to
// forget that is not there is no error.
func (s *Store) ChangeFacts(ctx context.Context, put map[string][]byte, forget []string) error {
	return s.write(ctx, func(t *txn) error {
		for _, key := range forget {
			if err := t.remove(frame.Facts, []byte(key)); err != nil {
				return err
			}
		}
		for key, data := range put {
			if err := t.put(frame.Facts, []byte(key), data); err != nil {
				return err
			}
		}
		return nil
	})
}

// PutSnapshot keeps the last known objects of a kind for the dashboard while the API cannot be
// reached.
func (s *Store) PutSnapshot(ctx context.Context, kind string, data []byte) error {
	return s.write(ctx, func(t *txn) error { return t.put(frame.Snapshots, []byte(kind), data) })
}

// Snapshot returns what was kept last and when; ErrNotFound when nothing was.
func (s *Store) Snapshot(ctx context.Context, kind string) (data []byte, at time.Time, err error) {
	f, err := s.copyOf(ctx, frame.Snapshots, kind)
	return f.Body, time.UnixMilli(int64(f.Stamp)), err
}
