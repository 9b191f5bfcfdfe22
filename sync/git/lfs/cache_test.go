package lfs

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestCacheIsBounded: what was used longest ago leaves first, and what a pull uses stays.
func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := NewCache(filepath.Join(t.TempDir(), "lfs"))
	add := func(oid string, age time.Duration) string {
		path := filepath.Join(c.Dir("site"), oid)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("sixsix"), 0o600); err != nil {
			t.Fatal(err)
		}
		used := time.Now().Add(-age)
		if err := os.Chtimes(path, used, used); err != nil {
			t.Fatal(err)
		}
		return path
	}
	there := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	oldest, older, newest := add("a", 3*time.Hour), add("b", 2*time.Hour), add("c", time.Hour)
	c.pin(oldest)
	if c.trim(12); !there(oldest) || there(older) || !there(newest) {
		t.Errorf("oldest %t, older %t, newest %t", there(oldest), there(older), there(newest))
	}
	c.unpin(oldest)
	if c.trim(7); there(oldest) || !there(newest) || len(c.pins) != 0 {
		t.Errorf("oldest %t, newest %t, pinned %v", there(oldest), there(newest), c.pins)
	}
}
