package state

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestLinksAreNotFollowed: a link in the place of a file beside the state file leads to nothing
// being written or read at its target.
func TestLinksAreNotFollowed(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{".owner", ".reserve", ".key"} {
		t.Run(suffix, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path, precious := filepath.Join(dir, "l.db"), filepath.Join(t.TempDir(), "precious")
			const text = "a file of somebody else, long enough for a key"
			must(t, errors.Join(os.WriteFile(precious, []byte(text), 0o644), os.Symlink(precious, path+suffix)))
			s, _, err := Open(context.Background(), Options{Path: path})
			if suffix == ".owner" {
				if !errors.Is(err, syscall.ELOOP) {
					t.Errorf("open: %v", err)
				}
			} else {
				must(t, err)
				err = s.PutSecret(context.Background(), "x", []byte("y"))
				if suffix == ".key" && !errors.Is(err, syscall.ELOOP) {
					t.Errorf("a key behind a link: %v", err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
			info, statErr := os.Stat(precious)
			if got, err := os.ReadFile(precious); err != nil || statErr != nil || string(got) != text || info.Mode().Perm() != 0o644 {
				t.Errorf("the target was changed: %q %v %v", got, info.Mode(), err)
			}
		})
	}
}

// TestSharedDirectory: a state file is not kept where others may replace it.
func TestSharedDirectory(t *testing.T) {
	t.Parallel()
	for _, mode := range []os.FileMode{0o775, 0o757, 0o777 | os.ModeSticky} {
		dir := filepath.Join(t.TempDir(), "d")
		must(t, errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, mode)))
		_, _, err := Open(context.Background(), Options{Path: filepath.Join(dir, "l.db")})
		var shared *SharedDirectoryError
		if !errors.As(err, &shared) || shared.Dir != dir {
			t.Errorf("%v: %v", mode, err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			t.Errorf("%v: %v was written: %v", mode, entries, err)
		}
	}
}
