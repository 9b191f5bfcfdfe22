package lfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// The cache of contents from Git LFS: a file per content, below a directory per remote beside the
// mirrors. What was used longest ago leaves first. Nothing is synced to the disk: a content is
// checked when it is used again.

const (
	maxCache = 512 << 20 // bytes that stay
	inUse    = time.Hour // since its last use: it may be read by a pull that still runs
)

// Cache keeps contents on disk. It is safe for concurrent use by one process.
type Cache struct{ dir string }

// NewCache is a cache in dir, which need not exist.
func NewCache(dir string) *Cache { return &Cache{dir: dir} }

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

// spared is how many times the bound the files of running pulls may take, which are those used
// lately.
const spared = 8

// trim deletes what was used longest ago, until the cache has at most bound bytes or the rest is in
// use.
func (m *Cache) trim(bound int64) {
	names, _ := fs.Glob(os.DirFS(m.dir), "*/*") // fails for a malformed pattern only
	infos, sum := map[string]fs.FileInfo{}, int64(0)
	for _, name := range names {
		path := filepath.Join(m.dir, name)
		if info, err := os.Stat(path); err == nil { // else it has gone
			infos[path] = info
			sum += info.Size()
		}
	}
	byUse := func(a, b string) int { return infos[a].ModTime().Compare(infos[b].ModTime()) }
	for _, path := range slices.SortedFunc(maps.Keys(infos), byUse) {
		if sum <= bound || time.Since(infos[path].ModTime()) < inUse && sum <= spared*bound {
			return
		}
		if os.Remove(path) == nil {
			sum -= infos[path].Size()
		}
	}
}
