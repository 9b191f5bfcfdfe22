package git

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	count, before, err := m.Usage(t.Context())
	if err != nil || count != 0 {
		t.Fatalf("empty: %d mirrors, %v", count, err)
	}
	name := strings.Repeat("a", mirrorName)
	for path, size := range map[string]int{filepath.Join(name, "objects", "pack", "x"): 1000, filepath.Join(name, "HEAD"): 20, filepath.Join(largeDir, name, "y"): 300} {
		path = filepath.Join(m.dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, make([]byte, size), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if count, bytes, err := m.Usage(t.Context()); err != nil || count != 1 || bytes != before+1320 {
		t.Errorf("%d mirrors, %d bytes more, %v", count, bytes-before, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := m.Usage(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}
