package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
