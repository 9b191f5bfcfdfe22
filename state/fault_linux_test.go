package state

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// faultInMap returns a function that reads behind the end of a mapped file, which the kernel answers with SIGBUS.
func faultInMap(t *testing.T) func() error {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "map"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	data, err := syscall.Mmap(int(f.Fd()), 0, 1<<16, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(data); err != nil {
			t.Error(err)
		}
	})
	return func() error {
		if data[1<<15] == 1 {
			return nil
		}
		return nil
	}
}
