package lfs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// Pointer stands in a tree for a file that Git LFS keeps elsewhere.
type Pointer struct {
	OID  string // SHA-256 of the content, 64 hex digits
	Size int64  // of the content, in bytes
}

// MaxPointer is the size up to which a file may be a pointer, in bytes. Source: git-lfs, which reads no more to decide.
const MaxPointer = 1024

// pointer is the form of a pointer without spaces around it and empty lines: the versions that are the same but for their
// names, since the launch of git-lfs, before it, and of its alpha, extensions, name and size. Source: git-lfs lfs/pointer.go.
var pointer = regexp.MustCompile(`^version (?:https://(?:git-lfs|hawser)\.github\.com/spec/v1|http://git-media\.io/v/2)\n` +
	`((?:ext-\d-\w+ .*\n)*)oid sha256:([0-9a-f]{64})\nsize (\d+)$`)

var lineEnds = regexp.MustCompile(`(?:\r?\n)+`)

// ParsePointer reports whether a file is a pointer to git-lfs, and reads it. An error says that it is one which
// cannot be used; it must not be taken for the content. What git-lfs does not understand is no pointer: it stays as it is.
func ParsePointer(data []byte) (p Pointer, is bool, err error) {
	if len(data) > MaxPointer {
		return p, false, nil
	}
	parts := pointer.FindSubmatch(lineEnds.ReplaceAll(bytes.TrimSpace(data), []byte("\n")))
	if parts == nil {
		return p, false, nil
	}
	p.OID = string(parts[2])
	if p.Size, err = strconv.ParseInt(string(parts[3]), 10, 64); err != nil {
		return Pointer{}, false, nil
	}
	if len(parts[1]) > 0 {
		return p, true, errors.New("it was made with an extension of Git LFS, which only git-lfs can undo")
	}
	return p, true, nil
}

// The cache of contents from Git LFS: a file per content, below a directory per remote beside the mirrors. What
// was used longest ago leaves first. Nothing is synced to the disk: a content is checked when it is used again.

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

// spared is how many times the bound the files of running pulls may take, which are those used lately.
const spared = 8

// trim deletes what was used longest ago, until the cache has at most bound bytes or the rest is in use.
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
