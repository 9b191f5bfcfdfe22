package lfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"limpet/sync/git/pack"
)

// The cache of contents from Git LFS: a file per content, below a directory per remote
// beside the mirrors. What was used longest ago leaves first, and nothing that a pull
// which still runs may need. Nothing is synced to the disk: a content is
// checked when it is used again.

const (
	maxCache = 512 << 20 // bytes that stay
	inUse    = time.Hour // since its last use: it may be read by a pull that still runs
)

// Cache keeps contents on disk. It is safe for concurrent use by one process.
type Cache struct{ dir string }

// NewCache is a cache in dir, which need not exist.
func NewCache(dir string) *Cache { return &Cache{dir: dir} }

// Dir is the directory of the contents of a repository, given the name of that.
func (m *Cache) Dir(name string) string { return filepath.Join(m.dir, name) }

// temp makes a file that becomes a content, or is removed at the next start.
func (m *Cache) temp() (*os.File, error) {
	return os.CreateTemp(filepath.Dir(m.dir), pack.TempPrefix)
}

// holds reports whether a content is in the cache and is what it should be.
func (m *Cache) holds(ctx context.Context, path string, p Pointer) bool {
	if info, err := os.Stat(path); err == nil && info.Size() == p.Size {
		if sum, err := sumOf(ctx, path); err == nil && sum == p.OID {
			os.Chtimes(path, time.Now(), time.Now())
			return true
		}
	}
	return false
}

func sumOf(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	defer context.AfterFunc(ctx, func() { f.Close() })()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
}

// spared is how many times the bound the files of running pulls may take, which are those used lately.
const spared = 8

// trim deletes what was used longest ago, until the cache has at most bound bytes or the rest is in use.
func (m *Cache) trim(bound int64) {
	type item struct {
		path string
		size int64
		used time.Time
	}
	var items []item
	var sum int64
	err := filepath.WalkDir(m.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil // it may be gone
		}
		if info, err := e.Info(); err == nil {
			items = append(items, item{path, info.Size(), info.ModTime()})
			sum += info.Size()
		}
		return nil
	})
	if err != nil {
		return
	}
	slices.SortFunc(items, func(a, b item) int { return a.used.Compare(b.used) })
	for _, it := range items {
		if sum <= bound || time.Since(it.used) < inUse && sum <= spared*bound {
			return
		}
		if os.Remove(it.path) == nil {
			sum -= it.size
		}
	}
}
