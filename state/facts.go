package state

import (
	"bytes"
	"context"
	"fmt"
	"time"
)

// PutSnapshot keeps the last known objects of a kind for the dashboard while the API cannot be reached.
func (s *Store) PutSnapshot(ctx context.Context, kind string, data []byte) error {
	return s.write(ctx, func(t *txn) error { return t.put(snapBucket, []byte(kind), data) })
}

// Snapshot returns what was kept last and when; ErrNotFound when nothing was.
func (s *Store) Snapshot(ctx context.Context, kind string) (data []byte, at time.Time, err error) {
	f, err := s.copyOf(ctx, snapBucket, kind)
	if err != nil {
		return nil, time.Time{}, err
	}
	return f.body, time.UnixMilli(int64(f.stamp)), nil
}

// PutFact keeps a small local fact.
func (s *Store) PutFact(ctx context.Context, key string, data []byte) error {
	return s.write(ctx, func(t *txn) error { return t.put(factBucket, []byte(key), data) })
}

// Fact returns a fact, or ErrNotFound.
func (s *Store) Fact(ctx context.Context, key string) ([]byte, error) {
	f, err := s.copyOf(ctx, factBucket, key)
	return f.body, err
}

// Facts returns the facts whose keys begin with prefix.
func (s *Store) Facts(ctx context.Context, prefix string) (map[string][]byte, error) {
	var out map[string][]byte
	err := s.view(ctx, func(v view) error {
		out = map[string][]byte{}
		return v.scan(ctx, factBucket, []byte(prefix), nil, func(k []byte, f frame) (bool, error) {
			out[string(k)] = bytes.Clone(f.body)
			return true, nil
		})
	})
	return out, err
}

// DeleteFact forgets a fact; one that is not there is no error.
func (s *Store) DeleteFact(ctx context.Context, key string) error {
	return s.write(ctx, func(t *txn) error {
		_, err := t.remove(factBucket, []byte(key))
		return err
	})
}

// copyOf returns a frame with a body of its own, or ErrNotFound.
func (s *Store) copyOf(ctx context.Context, b bucket, key string) (frame, error) {
	var out frame
	err := s.view(ctx, func(v view) error {
		f, ok, err := v.get(b, []byte(key))
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%s %q: %w", b, key, ErrNotFound)
		}
		out = frame{stamp: f.stamp, sum: f.sum, body: append([]byte{}, f.body...)}
		return nil
	})
	return out, err
}

// ChangeFacts keeps the facts of put and forgets those of forget, all in one transaction. A fact to forget that is not
// there is no error.
func (s *Store) ChangeFacts(ctx context.Context, put map[string][]byte, forget []string) error {
	return s.write(ctx, func(t *txn) error {
		for _, key := range forget {
			if _, err := t.remove(factBucket, []byte(key)); err != nil {
				return err
			}
		}
		for key, data := range put {
			if err := t.put(factBucket, []byte(key), data); err != nil {
				return err
			}
		}
		return nil
	})
}
