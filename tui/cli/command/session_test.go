package command

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestStatePath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	file := filepath.Join(dir, "real.db")
	link := filepath.Join(dir, "link.db")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink("real.db", link),
		os.Symlink("nowhere/x.db", filepath.Join(dir, "dangling.db"))); err != nil {
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
		{"systemd first", "", map[string]string{"STATE_DIRECTORY": "/var/lib/limpet", "XDG_STATE_HOME": "/x", "HOME": "/h"},
			"/var/lib/limpet/limpet.db"},
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
		e := &Env{Flags: &Flags{State: tt.flag}, Streams: Streams{Lookup: func(name string) (string, bool) { v, ok := tt.env[name]; return v, ok }}}
		got, err := e.StatePath()
		var f *Error
		if got != tt.want || (err != nil) != (tt.want == "") || err != nil && (!errors.As(err, &f) || f.Code != ExitUsage || f.Hint == "") {
			t.Errorf("%s: %q %v", tt.name, got, err)
		}
	}
}
