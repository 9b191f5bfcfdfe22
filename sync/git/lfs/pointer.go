package lfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"limpet/sync/text"
)

// Pointer stands in a tree for a file that Git LFS keeps elsewhere.
type Pointer struct {
	OID  string // SHA-256 of the content, 64 hex digits
	Size int64  // of the content, in bytes
}

// MaxPointer is the size up to which a file may be a pointer, in bytes. Source: git-lfs, which reads no more to decide.
const MaxPointer = 1024

// specs begins the first line of a pointer, and versions are those that are the same but for their names: since
// the launch of git-lfs, before it, and of its alpha. Source: git-lfs lfs/pointer.go.
const specs = "https://git-lfs.github.com/spec/"

var versions = []string{specs + "v1", "https://hawser.github.com/spec/v1", "http://git-media.io/v/2"}

// ParsePointer reports whether a file is a pointer of Git LFS, and reads it. An error says that it is one which
// cannot be used; it must not be taken for the content. Source: git-lfs docs/spec.md.
func ParsePointer(data []byte) (p Pointer, is bool, err error) {
	first, _, _ := strings.Cut(string(data[:min(len(data), MaxPointer)]), "\n")
	version, named := strings.CutPrefix(first, "version ")
	known := slices.Contains(versions, version)
	switch {
	case len(data) > MaxPointer, !named, !known && !strings.HasPrefix(version, specs):
		return p, false, nil
	case !known:
		err = fmt.Errorf("version %q is not known here", text.Line(version, 80))
	default:
		p, err = parsePointer(string(data))
	}
	if err != nil {
		return Pointer{}, true, fmt.Errorf("unusable pointer of Git LFS: %w", err)
	}
	return p, true, nil
}

func parsePointer(data string) (p Pointer, err error) {
	body, ended := strings.CutSuffix(data, "\n")
	if !ended {
		return p, errors.New("its last line has no end")
	}
	lines := strings.Split(body, "\n")
	sized := false
	for i, line := range lines[1:] {
		key, value, ok := strings.Cut(line, " ")
		if !ok || key == "" || strings.ContainsFunc(key, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '.' && r != '-'
		}) {
			return p, fmt.Errorf("line %d is not of the form \"key value\"", i+2)
		}
		if before, _, _ := strings.Cut(lines[i], " "); i > 0 && before >= key {
			return p, fmt.Errorf("unsorted keys: %s before %s", before, key)
		}
		switch {
		case key == "oid":
			sum, is := strings.CutPrefix(value, "sha256:")
			if raw, err := hex.DecodeString(sum); !is || err != nil || len(raw) != 32 || strings.ToLower(sum) != sum {
				return p, fmt.Errorf("oid %q is not sha256: and 64 hex digits", text.Line(value, 80))
			}
			p.OID = sum
		case key == "size":
			if p.Size, err = strconv.ParseInt(value, 10, 64); err != nil || strconv.FormatInt(p.Size, 10) != value || p.Size < 0 {
				return p, fmt.Errorf("size %q is not a number of bytes", text.Line(value, 40))
			}
			sized = true
		case strings.HasPrefix(key, "ext-"):
			return p, errors.New("it was made with an extension of Git LFS, which only git-lfs can undo")
		}
	}
	if p.OID == "" || !sized {
		return p, errors.New("oid or size is missing")
	}
	return p, nil
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
