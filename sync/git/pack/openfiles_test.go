package pack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"limpet/sync/testenv/gittest"
)

// descriptors counts the open files of packs of a directory.
func descriptors(t *testing.T, dir string) (n int) {
	t.Helper()
	const open = "/proc/self/fd"
	for _, f := range gittest.Must[[]os.DirEntry](t)(os.ReadDir(open)) {
		if to, err := os.Readlink(filepath.Join(open, f.Name())); err == nil && strings.HasPrefix(to, dir) {
			n++
		}
	}
	return n
}

// TestOpenFiles reads a mirror of more packs than may be open, by several readers at once.
func TestOpenFiles(t *testing.T) {
	dir := emptyMirror(t)
	var blobs [][]byte
	for i := range maxOpen + 20 {
		b := fmt.Appendf(nil, "text %d", i)
		blobs = append(blobs, b)
		s, err := Spool(dir, strings.NewReader(string(gittest.Pack(whole(b)))), DefaultLimits, nil, nil)
		err = errors.Join(err, s.Resolve(t.Context(), nil, DefaultLimits), s.WriteIndex(dir), s.Publish(dir))
		if s.Discard(); err != nil {
			t.Fatal(err)
		}
	}
	s := gittest.Must[*Store](t)(Open(dir, DefaultLimits.ObjectBytes, nil))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, b := range blobs {
				if _, got, err := s.Read(IDOf(BlobKind, b), s.Limit); err != nil || string(got) != string(b) {
					t.Errorf("%q is read as %q, %v", b, got, err)
				}
				if n, err := s.Size(IDOf(BlobKind, b)); err != nil || n != int64(len(b)) {
					t.Errorf("the size of %q is %d, %v", b, n, err)
				}
			}
		})
	}
	wg.Wait()
	if n := descriptors(t, dir); n > maxOpen+4 || n < maxOpen/2 {
		t.Errorf("%d files are open", n)
	}
	if err := Consolidate(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.Read(IDOf(BlobKind, blobs[0]), s.Limit)
	if !errors.Is(err, ErrGone) || !errors.Is(err, ErrDamaged) {
		t.Errorf("of a file that was closed and is gone: %v", err)
	}
	if s.Close(); descriptors(t, dir) != 0 {
		t.Error("files stay open")
	}
	readable(t, dir, blobs)
}
