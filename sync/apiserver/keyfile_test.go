package apiserver

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestWriteFile(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "dir")
	path := filepath.Join(dir, "f")
	if err := writeFile(path, []byte("one"), 0o600, true); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(path, []byte("two"), 0o600, true); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a fresh file over another: %v", err)
	}
	if err := writeFile(path, []byte("three"), 0o644, false); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	info, statErr := os.Stat(path)
	if err != nil || statErr != nil || string(data) != "three" || info.Mode().Perm() != 0o644 {
		t.Errorf("%q %v %v %v", data, info, err, statErr)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v %v", info, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v %v", entries, err)
	}
	if err := writeFile(filepath.Join(path, "below"), nil, 0o600, false); err == nil {
		t.Error("a file below a file is written")
	}
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(filepath.Join(dir, "d"), []byte("x"), 0o600, false); err == nil {
		t.Error("a file over a directory is written")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("left behind by a failure: %v %v", entries, err)
	}
}

// TestSignersAgree: processes that start together end up with one key.
func TestSignersAgree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	signers := make([]*Signer, 8)
	var starts sync.WaitGroup
	for i := range signers {
		starts.Go(func() {
			s, err := NewSigner(dir)
			if err != nil {
				t.Error(err)
				return
			}
			signers[i] = s
		})
	}
	starts.Wait()
	if t.Failed() {
		return
	}
	token := mustSign(t, signers[0], testClaims())
	for i, s := range signers {
		if _, err := s.verify(token, testNow); err != nil {
			t.Errorf("signer %d: %v", i, err)
		}
	}
}
