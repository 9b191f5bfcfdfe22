package state

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestReserve(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limpet.db")
	size := func() int64 {
		info, err := os.Stat(path + reserve)
		if errors.Is(err, os.ErrNotExist) {
			return -1
		}
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	at := time.Now()
	b := newBallast(path)
	steps := []struct {
		name string
		do   func() bool
		ok   bool
		size int64
	}{
		{"nothing yet", func() bool { return b.release(at.Add(-time.Hour)) }, false, -1},
		{"made", func() bool { b.restore(at); return b.have }, true, reserveSize},
		{"kept", func() bool { b.restore(at); return b.have }, true, reserveSize},
		{"found by the next owner", func() bool { b = newBallast(path); return b.have }, true, reserveSize},
		{"given up", func() bool { return b.release(at) }, true, -1},
		{"not at once again", func() bool { b.restore(at.Add(reserveRetry / 2)); return b.have }, false, -1},
		{"later again", func() bool { b.restore(at.Add(reserveRetry)); return b.have }, true, reserveSize},
		{"cut short", func() bool { return os.Truncate(path+reserve, 3) != nil }, false, 3},
		{"found short", func() bool { b = newBallast(path); return b.have }, false, 3},
		{"mended", func() bool { b.restore(at); return b.have }, true, reserveSize},
	}
	for _, step := range steps {
		if got := step.do(); got != step.ok || size() != step.size {
			t.Errorf("%s: %v and %d bytes, want %v and %d", step.name, got, size(), step.ok, step.size)
		}
	}
	gone := newBallast(filepath.Join(t.TempDir(), "no", "such", "limpet.db"))
	if gone.restore(at); gone.have {
		t.Error("a reserve in a directory that is not there")
	}
}

// TestReserveIsMadeByWriting: a command that only reads leaves nothing behind.
func TestReserveIsMadeByWriting(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limpet.db")
	s := opened(t, Options{Path: path})
	if _, err := s.Claims(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + reserve); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after a read: %v", err)
	}
	if err := s.PutFact(context.Background(), "k", nil); err != nil {
		t.Fatal(err)
	}
	Closed(t, s)
	if info, err := os.Stat(path + reserve); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("after a write: %v", err)
	}
}
