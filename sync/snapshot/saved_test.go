package snapshot

import (
	"path/filepath"
	"testing"
	"time"

	"limpet/state"
)

// newStore opens a state file that is closed when the test ends.
func newStore(t *testing.T) *state.Store {
	t.Helper()
	s, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(t.TempDir(), "limpet.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestSaverWritesOnlyChanges: each save costs a write to flash.
func TestSaverWritesOnlyChanges(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	saver := &Saver{Store: store}
	at := time.Now().Round(0)
	at = time.UnixMilli(at.UnixMilli())
	made := func(age time.Duration, state string) *Snapshot {
		return &Snapshot{At: at.Add(age), API: API{Up: true, Synced: true}, Repos: []Repo{{Name: "r", SyncState: state, Next: at.Add(age)}}}
	}
	check := func(what string, s *Snapshot, want time.Duration) {
		t.Helper()
		if err := saver.Save(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		saved, err := Saved(t.Context(), store, "v2")
		if err != nil || saved.AsOf.Sub(at) != want || len(saved.Repos) != 1 || saved.API.Up || saved.Problem != "" {
			t.Errorf("%s: as of %s, want %s; %v", what, saved.AsOf.Sub(at), want, err)
		}
	}
	if none, err := Saved(t.Context(), store, "v2"); err != nil || none.AsOf.IsZero() || none.Problem == "" || len(none.Repos) != 0 {
		t.Errorf("new file: %+v, %v", none, err)
	}
	check("first", made(0, "success"), 0)
	check("unchanged", made(time.Minute, "success"), 0)
	check("changed", made(2*time.Minute, "error"), 2*time.Minute)
	down := made(time.Hour, "warning")
	down.API.Up, down.API.Since = false, at.Add(5*time.Minute)
	check("API away", down, 5*time.Minute)
	down.API.Synced = false
	check("not synced", down, 5*time.Minute)
}
