package webhook

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"limpet/state"
)

func TestMain(m *testing.M) {
	if state.RunProbe() {
		return
	}
	os.Exit(m.Run())
}

// opened opens a state file that is checked at the end of the test.
func opened(t testing.TB, path string) *state.Store {
	t.Helper()
	s, _, err := state.Open(t.Context(), state.Options{Path: path, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if rep, err := s.Check(context.Background()); err != nil && !errors.Is(err, state.ErrClosed) || len(rep.Problems) > 0 {
			t.Errorf("state file: %v %v", err, rep.Problems)
		}
		s.Close()
	})
	return s
}

func numbered(n int) (d digest) {
	binary.BigEndian.PutUint64(d[:], uint64(n))
	return d
}

func recalled(t *testing.T, s *state.Store) *memory {
	t.Helper()
	m, err := loadMemory(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMemoryAcrossRestart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limpet.db")
	s := opened(t, path)
	m, now := recalled(t, s), time.Now()
	for n := range 3 {
		if m.has(numbered(n), now) {
			t.Errorf("%d is known before it was kept", n)
		}
		if err := m.add(t.Context(), numbered(n), now); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	s = opened(t, path)
	m = recalled(t, s)
	for n := range 3 {
		if !m.has(numbered(n), now.Add(rememberFor-time.Minute)) || m.has(numbered(n), now.Add(rememberFor+time.Minute)) {
			t.Errorf("%d is not remembered for %s", n, rememberFor)
		}
	}
	if m.has(numbered(3), now) {
		t.Error("knows what it never saw")
	}
}

func TestMemoryForgetsInBatches(t *testing.T) {
	t.Parallel()
	s := opened(t, filepath.Join(t.TempDir(), "limpet.db"))
	m, start := recalled(t, s), time.Now()
	const old = 40
	for n := range old {
		if err := m.add(t.Context(), numbered(n), start); err != nil {
			t.Fatal(err)
		}
	}
	later := start.Add(rememberFor + time.Minute)
	for n, want := range []int{old + 1 - forgetBatch, old + 2 - 2*forgetBatch, 3, 4} {
		if err := m.add(t.Context(), numbered(old+n), later); err != nil {
			t.Fatal(err)
		}
		facts, err := s.Facts(t.Context(), memoryPrefix)
		if err != nil || len(facts) != want || len(m.order) != want || len(m.known) != want {
			t.Fatalf("after %d: %d facts, %d and %d in memory, want %d; %v", n, len(facts), len(m.order), len(m.known), want, err)
		}
	}
}

// TestMemoryIsBounded fills it beyond its bound, without waiting for a disk each
// time.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	s := opened(t, filepath.Join(t.TempDir(), "limpet.db"))
	m, now := recalled(t, s), time.Now()
	put := map[string][]byte{}
	for n := range maxRemembered + 20 {
		m.last++
		r := remembered{m.last + now.UnixMilli(), numbered(n)}
		put[r.key()] = r.digest[:]
	}
	if err := s.ChangeFacts(t.Context(), put, nil); err != nil {
		t.Fatal(err)
	}
	m = recalled(t, s)
	for n := range 3 {
		if err := m.add(t.Context(), numbered(-n-1), now); err != nil {
			t.Fatal(err)
		}
	}
	facts, err := s.Facts(t.Context(), memoryPrefix)
	if err != nil || len(facts) != maxRemembered || len(m.known) != maxRemembered {
		t.Errorf("%d facts, %d in memory, %v", len(facts), len(m.known), err)
	}
	if m.has(numbered(0), now) || !m.has(numbered(maxRemembered), now) || !m.has(numbered(-1), now) {
		t.Error("not the oldest went")
	}
}

// TestMemoryWithoutDisk keeps what it was told for the life of the process.
func TestMemoryWithoutDisk(t *testing.T) {
	t.Parallel()
	s := opened(t, filepath.Join(t.TempDir(), "limpet.db"))
	m, now := recalled(t, s), time.Now()
	s.Close()
	for n := range 2*maxRemembered + 100 {
		if err := m.add(context.Background(), numbered(n), now); !errors.Is(err, state.ErrClosed) {
			t.Fatal(err)
		}
	}
	if !m.has(numbered(2*maxRemembered+99), now) || len(m.order) > 2*maxRemembered+1 {
		t.Errorf("%d are remembered", len(m.order))
	}
}
