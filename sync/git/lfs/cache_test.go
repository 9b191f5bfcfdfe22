package lfs

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestCacheIsBounded: what was used longest ago leaves first, and what was used a moment ago stays.
func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := NewCache(filepath.Join(t.TempDir(), "state [1]", "lfs")) // a name that is also a pattern
	add := func(oid string, age time.Duration) string {
		path := filepath.Join(c.dir, "site", oid)
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
	oldest, older, newest := add("a", 3*time.Hour), add("b", 2*time.Hour), add("c", time.Minute)
	if c.trim(12); there(oldest) || !there(older) || !there(newest) {
		t.Errorf("oldest %t, older %t, newest %t", there(oldest), there(older), there(newest))
	}
	// What a pull may be using stays, up to a multiple of the bound.
	if c.trim(1); there(older) || !there(newest) {
		t.Errorf("older %t, newest %t", there(older), there(newest))
	}
	newer := add("d", time.Second)
	if c.trim(1); there(newest) || !there(newer) {
		t.Errorf("beyond the multiple: older %t, newest %t", there(newest), there(newer))
	}
}
