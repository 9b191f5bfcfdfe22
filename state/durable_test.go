package state

import (
	"context"
	"path/filepath"
	"testing"
)

// TestEveryCommitIsSynced: what the tests of power cuts take for granted, that
// bbolt waits for the disk twice in each transaction, is on in every file that the
// store works with: a new one, one that is opened again, one that was compacted,
// one that was rebuilt.
func TestEveryCommitIsSynced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limpet.db")
	waits := func(what string, f *file) {
		t.Helper()
		if f.db.NoSync || f.db.NoGrowSync {
			t.Errorf("%s: a commit does not wait for the disk", what)
		}
	}
	s := opened(t, Options{Path: path})
	waits("a new file", s.cur)
	if err := s.PutFact(context.Background(), "agent", []byte("edge-07")); err != nil {
		t.Fatal(err)
	}
	Closed(t, s)
	s, _ = reopened(t, Options{Path: path})
	waits("opened again", s.cur)
	if _, _, err := s.Compact(context.Background()); err != nil {
		t.Fatal(err)
	}
	waits("compacted", s.cur)
	Closed(t, s)
	f, err := openBolt(filepath.Join(t.TempDir(), "rebuilt.db"), boltOptions(0))
	if err != nil {
		t.Fatal(err)
	}
	waits("rebuilt", f)
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
}
