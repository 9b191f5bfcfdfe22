package fileid_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"limpet/sync/fileid"
)

// TestRead: what is not a regular file within the bound is refused, and nothing is waited for.
func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string, size int) error { return os.WriteFile(at(name), make([]byte, size), 0o600) }
	if err := errors.Join(write("empty", 0), write("whole", 8), write("large", 9), syscall.Mkfifo(at("pipe"), 0o600),
		os.Symlink("pipe", at("to-pipe")), os.Symlink("whole", at("to-whole"))); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		at("empty"): "", at("whole"): "", at("to-whole"): "", at("large"): "larger than 8 B",
		at("absent"): "no such file", at("pipe"): "not a regular", at("to-pipe"): "not a regular",
		dir: "not a regular", "/dev/zero": "not a regular",
	} {
		data, err := fileid.Read(path, 8)
		switch {
		case want == "" && (err != nil || len(data) != 8 && !strings.HasSuffix(path, "empty")):
			t.Errorf("%s: %d bytes, %v", path, len(data), err)
		case want != "" && (err == nil || data != nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
