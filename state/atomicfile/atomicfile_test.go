package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := Create(path, 0o600, Data([]byte("one"))); err != nil {
		t.Fatal(err)
	}
	if err := Create(path, 0o600, Data([]byte("two"))); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file is created over another: %v", err)
	}
	if err := Write(path, 0o644, Data([]byte("three"))); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, 0o600, func(w io.Writer) error { _, _ = w.Write([]byte("half")); return io.ErrUnexpectedEOF }); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an incomplete file: %v", err)
	}
	data, err := os.ReadFile(path)
	info, statErr := os.Stat(path)
	if err != nil || statErr != nil || string(data) != "three" || info.Mode().Perm() != 0o644 {
		t.Errorf("%q %v %v %v", data, info, err, statErr)
	}
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(filepath.Join(dir, "d"), 0o600, Data(nil)); err == nil {
		t.Error("a file over a directory is written")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("left behind by a failure: %v %v", entries, err)
	}
}

// TestTemporaryNames: each temporary file is known by its name, and nothing else is.
func TestTemporaryNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"limpet.db.key", "*", strings.Repeat("n", 250)} {
		err := Write(filepath.Join(dir, name), 0o600, func(io.Writer) error {
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != 1 || !IsTemporary(entries[0].Name()) {
				t.Errorf("beside %s: %v %v", name, entries, err)
			}
			return io.ErrUnexpectedEOF
		})
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{".limpet-site.db", ".limpet-site-1", ".limpet-site.tmp", ".limpet-1.tmp", "x.limpet-site-1.tmp", ".limpet-site-1.tmp.key"} {
		if IsTemporary(name) {
			t.Errorf("%s is taken for a temporary file", name)
		}
	}
}
