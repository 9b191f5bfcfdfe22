package dependency

import (
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// racy is how young a file must be to be read although its stat is as before: within
	// the granularity of its time stamp it may have changed twice. Twice the coarsest in
	// use (2 s, FAT).
	racy = 4 * time.Second
	// maxFile is how much of a file counts, as much as is ever used of one, in bytes.
	maxFile = 1 << 20
)

// files finds the version of files: of single ones, and of the credentials in a
// directory, as they are for each object: <namespace>.<name>/<key> or
// <namespace>.<name>_<key>. The version follows from the content and the mode of the
// files, so that a swap of links that changes nothing is no change. A file whose stat is
// as before is not read again.
type files struct {
	dir  string // "" = none
	seed maphash.Seed

	mu   sync.Mutex         // guards sums
	sums map[string]fileSum // by path
}

type fileSum struct {
	info fs.FileInfo // nil = read it again
	read time.Time
	sum  uint64
}

func newFiles(dir string) *files {
	return &files{dir: dir, seed: maphash.MakeSeed(), sums: map[string]fileSum{}}
}

// versions returns the version of the files of each ref, "" for none, and forgets the
// files of all others.
func (f *files) versions(refs []Ref) map[Ref]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	flat, used := f.flat(), map[string]fileSum{}
	versions := map[Ref]string{}
	for _, ref := range refs {
		versions[ref] = f.version(ref, flat, used)
	}
	f.sums = used
	return versions
}

// versionOf returns the version of one ref.
func (f *files) versionOf(ref Ref) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.version(ref, f.flat(), f.sums)
}

// flat returns the names in the directory itself, by what is before the first "_".
func (f *files) flat() map[string][]string {
	if f.dir == "" {
		return nil
	}
	flat := map[string][]string{}
	for _, name := range names(f.dir) {
		if of, key, ok := strings.Cut(name, "_"); ok && key != webhookSecret {
			flat[of] = append(flat[of], name)
		}
	}
	return flat
}

// version returns the version of the files of one ref, and notes their sums. f.mu is held.
func (f *files) version(ref Ref, flat map[string][]string, sums map[string]fileSum) string {
	if ref.Kind == Path {
		if sum, ok := f.sum(ref.Name, sums); ok {
			return fmt.Sprintf("%x", sum)
		}
		return ""
	}
	base := ref.Namespace + "." + ref.Name
	if f.dir == "" || strings.ContainsAny(base, "/\\\x00") || strings.HasPrefix(base, ".") {
		return ""
	}
	var hash maphash.Hash
	hash.SetSeed(f.seed)
	found := false
	add := func(name string) {
		if sum, ok := f.sum(filepath.Join(f.dir, name), sums); ok {
			fmt.Fprintf(&hash, "%s\x00%x\x00", name, sum)
			found = true
		}
	}
	for _, name := range names(filepath.Join(f.dir, base)) {
		if name != webhookSecret {
			add(filepath.Join(base, name))
		}
	}
	for _, name := range flat[base] {
		add(name)
	}
	if !found {
		return ""
	}
	return fmt.Sprintf("%x", hash.Sum64())
}

// names returns the names in a directory, in order. Names that begin with a dot are
// editors' and Kubernetes' own.
func names(dir string) (out []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			out = append(out, e.Name())
		}
	}
	return out
}

// sum returns a number that changes with a file, and reports whether the file exists.
func (f *files) sum(path string, sums map[string]fileSum) (uint64, bool) {
	info, err := os.Stat(path)
	if err != nil || info.IsDir() {
		return 0, false
	}
	s := f.sums[path]
	if s.info == nil || !same(info, s.info) || s.read.Sub(info.ModTime()) <= racy {
		s = fileSum{read: time.Now()}
		var hash maphash.Hash
		hash.SetSeed(f.seed)
		fmt.Fprintf(&hash, "%s\x00", info.Mode())
		if info.Mode().IsRegular() && digest(&hash, path) == nil {
			s.info = info
		}
		s.sum = hash.Sum64()
	}
	sums[path] = s
	return s.sum, true
}

func digest(h *maphash.Hash, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(h, io.LimitReader(file, maxFile))
	return err
}

// same reports whether a file, or what a link leads to, is as it was.
func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && a.Mode() == b.Mode()
}
