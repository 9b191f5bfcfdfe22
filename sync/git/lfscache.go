package git

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"time"

	"limpet/sync/auth"
)

// The cache of contents from Git LFS: a file per content, below a directory per remote
// beside the mirrors. What a pull uses is pinned until the pull ends; of the rest
// that was used longest ago leaves first. Nothing is synced to the disk: a content is
// checked when it is used again.

// largeDir is the directory of the cache; largeCache bounds it, in bytes.
const (
	largeDir   = "lfs"
	largeCache = 512 << 20
)

// largePath is where the content of an oid of a remote is.
func (m *Mirrors) largePath(url, oid string) string {
	a, err := auth.ParseAddress(url)
	if err != nil {
		return filepath.Join(m.dir, largeDir, "none", oid)
	}
	return filepath.Join(m.dir, largeDir, filepath.Base(m.mirror(a).dir), oid)
}

// pinCached pins a content that is in the cache and is what it should be.
func (m *Mirrors) pinCached(ctx context.Context, path string, p Pointer) bool {
	m.pin(path)
	if info, err := os.Stat(path); err == nil && info.Size() == p.Size {
		if sum, err := sumOf(ctx, path); err == nil && sum == p.OID {
			os.Chtimes(path, time.Now(), time.Now())
			return true
		}
	}
	m.unpin(path)
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

func (m *Mirrors) pin(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pins[path]++
}

func (m *Mirrors) unpin(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pins[path]--; m.pins[path] <= 0 {
		delete(m.pins, path)
	}
}

// trimLarge deletes what was used longest ago until the cache has at most bound bytes.
func (m *Mirrors) trimLarge(bound int64) {
	type item struct {
		path string
		size int64
		used time.Time
	}
	var items []item
	var sum int64
	err := filepath.WalkDir(filepath.Join(m.dir, largeDir), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil // it may be gone
		}
		if info, err := e.Info(); err == nil {
			items = append(items, item{path, info.Size(), info.ModTime()})
			sum += info.Size()
		}
		return nil
	})
	if err != nil || sum <= bound {
		return
	}
	sort.Slice(items, func(i, j int) bool { return items[i].used.Before(items[j].used) })
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, it := range items {
		if sum <= bound {
			return
		}
		if m.pins[it.path] == 0 && os.Remove(it.path) == nil {
			sum -= it.size
		}
	}
}
