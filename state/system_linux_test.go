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

// quickDir returns a directory in memory where there is room, so that hundreds of small cases do not wait for the disk.
func quickDir(t testing.TB) string {
	t.Helper()
	const shm, room = "/dev/shm", 256 << 20
	var fs syscall.Statfs_t
	if err := syscall.Statfs(shm, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < room {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(shm, "limpet-state-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
