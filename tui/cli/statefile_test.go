package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"limpet/state"
)

func TestStatePath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	file := filepath.Join(dir, "real.db")
	link := filepath.Join(dir, "link.db")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink("real.db", link), os.Symlink("nowhere/x.db", filepath.Join(dir, "dangling.db"))); err != nil {
		t.Fatal(err)
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, flag string
		env        map[string]string
		want       string // "" = refused
	}{
		{"systemd first", "", map[string]string{"STATE_DIRECTORY": "/var/lib/limpet", "XDG_STATE_HOME": "/x", "HOME": "/h"}, "/var/lib/limpet/limpet.db"},
		{"then XDG", "", map[string]string{"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/limpet/limpet.db"},
		{"then HOME", "", map[string]string{"HOME": "/h"}, "/h/.local/state/limpet/limpet.db"},
		{"a relative place does not count", "", map[string]string{"XDG_STATE_HOME": "x", "HOME": "/h"}, "/h/.local/state/limpet/limpet.db"},
		{"no place at all", "", map[string]string{"HOME": "relative"}, ""},
		{"relative flag", "a/b.db", nil, filepath.Join(wd, "a/b.db")},
		{"link", link, nil, file},
		{"dangling link", filepath.Join(dir, "dangling.db"), nil, filepath.Join(dir, "dangling.db")},
		{"directory", dir, nil, ""},
	}
	for _, tt := range tests {
		r := &run{g: &Globals{State: tt.flag}, World: World{Lookup: func(name string) (string, bool) { v, ok := tt.env[name]; return v, ok }}}
		got, err := r.statePath()
		var f *Failure
		if got != tt.want || (err != nil) != (tt.want == "") || err != nil && (!errors.As(err, &f) || f.Code != ExitUsage || f.Hint == "") {
			t.Errorf("%s: %q %v", tt.name, got, err)
		}
	}
}

// TestUnusableStateFiles: each is exit code 9 with a hint, and nothing is left.
func TestUnusableStateFiles(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	file := filepath.Join(s.dir, "file")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink("nowhere/x.db", filepath.Join(s.dir, "dangling.db"))); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(file, "limpet.db"), filepath.Join(s.dir, "dangling.db"), "/proc/limpet.db", os.DevNull} {
		code, out, errs := s.call("--state", path, "repo", "list")
		if code != ExitStore || out != "" || !strings.Contains(errs, path) && !strings.Contains(errs, filepath.Dir(path)) || !strings.Contains(errs, "--state FILE") {
			t.Errorf("%s: exit %d: %s%s", path, code, out, errs)
		}
	}
}

func TestLockedByACommand(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.store(t, func(*state.Store) {
		_, errs := s.must(t, ExitStore, "repo", "list")
		if !strings.Contains(errs, "wait until process") {
			t.Errorf("a holder without a socket cannot be asked: %s", errs)
		}
	})
}

func TestBackup(t *testing.T) {
	t.Parallel()
	s := seeded(t)
	file := filepath.Join(s.dir, "copy")
	for range 2 { // the second replaces the first
		s.must(t, 0, "store", "backup", file)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if _, errs := s.must(t, ExitUsage, "store", "backup", filepath.Join(s.dir, "no", "such", "place")); !strings.Contains(errs, "no such file or directory") {
		t.Errorf("%s", errs)
	}
	left, err := filepath.Glob(filepath.Join(s.dir, ".limpet-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if out, _ := s.must(t, 0, "--state", file, "history", "list", "-o", "name"); out != "u1\nu2\n" {
		t.Errorf("the copy: %s", out)
	}
}
