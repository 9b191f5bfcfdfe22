package dependency

import (
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// racy is how young a file or directory must be to be read although its stat is
	// as before: within the granularity of its time stamp it may have changed twice.
	// Twice the coarsest in use (2 s, FAT).
	racy = 4 * time.Second
	// mostRead is how much of a file counts, as much as is ever used of one. Unit: bytes.
	mostRead = 1 << 20
)

// files tells which version there is of files: of single ones, and of the credentials
// in a directory, as they are for each object: <namespace>.<name>/<key> or
// <namespace>.<name>_<key>. The version
// follows from the content and the rights of the files, so that a swap of links that
// changes nothing is none. A look at unchanged files costs one stat each.
type files struct {
	dir  string // "" = none
	seed maphash.Seed

	mu      sync.Mutex          // guards what follows
	visit   func(path string)   // in a look at everything; else nil
	looks   int                 // at everything
	flat    map[string][]string // files in the directory itself, by what is before the first _
	listed  map[string]listing  // by directory
	content map[string]content  // by file
}

// listing is what a directory holds.
type listing struct {
	info   fs.FileInfo
	looked time.Time
	look   int // the last one that it was needed in
	names  []string
}

// content is what was found in a file.
type content struct {
	info   fs.FileInfo
	looked time.Time
	look   int // the last one that it was needed in
	sum    uint64
}

func newFiles(dir string) *files {
	return &files{dir: dir, seed: maphash.MakeSeed(), listed: map[string]listing{}, content: map[string]content{}}
}

// look returns the version of the files of each thing, "" for none, and forgets the
// files of all others. visit is called before it looks at a path.
func (f *files) look(things []Thing, visit func(path string)) map[Thing]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.visit = visit
	defer func() { f.visit = nil }()
	f.looks++
	f.lookFlat()
	versions := map[Thing]string{}
	for _, t := range things {
		versions[t] = f.version(t)
	}
	maps.DeleteFunc(f.listed, func(_ string, l listing) bool { return l.look != f.looks })
	maps.DeleteFunc(f.content, func(_ string, c content) bool { return c.look != f.looks })
	return versions
}

// lookAt is look at one more.
func (f *files) lookAt(t Thing) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lookFlat()
	return f.version(t)
}

// lookFlat lists the files in the directory itself. f.mu is held.
func (f *files) lookFlat() {
	if f.dir == "" {
		return
	}
	names, news := f.list(f.dir)
	if !news {
		return
	}
	f.flat = map[string][]string{}
	for _, name := range names {
		if of, key, ok := strings.Cut(name, "_"); ok && key != webhookSecret {
			f.flat[of] = append(f.flat[of], name)
		}
	}
}

// version is that of the files of one thing. f.mu is held.
func (f *files) version(t Thing) string {
	if t.Kind == Path {
		sum, ok := f.read(t.Name)
		if !ok {
			return ""
		}
		return fmt.Sprintf("%x", sum)
	}
	base := t.Namespace + "." + t.Name
	if f.dir == "" || strings.ContainsAny(base, "/\\\x00") || strings.HasPrefix(base, ".") {
		return ""
	}
	var sum maphash.Hash
	sum.SetSeed(f.seed)
	found := false
	add := func(name string) {
		if c, ok := f.read(filepath.Join(f.dir, name)); ok {
			fmt.Fprintf(&sum, "%s\x00%x\x00", name, c)
			found = true
		}
	}
	names, _ := f.list(filepath.Join(f.dir, base))
	for _, name := range names {
		if name != webhookSecret {
			add(filepath.Join(base, name))
		}
	}
	for _, name := range f.flat[base] {
		add(name)
	}
	if !found {
		return ""
	}
	return fmt.Sprintf("%x", sum.Sum64())
}

// list names the files of a directory, in order. Names that begin with a dot are
// editors' and Kubernetes' own. news says that they were read anew. f.mu is held.
func (f *files) list(dir string) (names []string, news bool) {
	if f.visit != nil {
		f.visit(dir)
	}
	info, err := os.Stat(dir)
	if err != nil {
		delete(f.listed, dir)
		return nil, true
	}
	l := f.listed[dir]
	if news = l.info == nil || !same(info, l.info) || l.looked.Sub(info.ModTime()) <= racy; news {
		l = listing{info: info, looked: time.Now()}
		entries, err := os.ReadDir(dir) // in order
		if err != nil {
			delete(f.listed, dir)
			return nil, true
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), ".") {
				l.names = append(l.names, e.Name())
			}
		}
	}
	l.look = f.looks
	f.listed[dir] = l
	return l.names, news
}

// read is a number that changes with a file, and whether there is one. f.mu is held.
func (f *files) read(path string) (sum uint64, ok bool) {
	if f.visit != nil {
		f.visit(path)
	}
	info, err := os.Stat(path)
	if err != nil || info.IsDir() {
		return 0, false
	}
	c := f.content[path]
	if c.info == nil || !same(info, c.info) || c.looked.Sub(info.ModTime()) <= racy {
		c = content{looked: time.Now()}
		var h maphash.Hash
		h.SetSeed(f.seed)
		fmt.Fprintf(&h, "%s\x00", info.Mode())
		if info.Mode().IsRegular() && digest(&h, path) == nil {
			c.info = info
		}
		c.sum = h.Sum64()
	}
	c.look = f.looks
	f.content[path] = c
	return c.sum, true
}

func digest(h *maphash.Hash, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(h, io.LimitReader(file, mostRead))
	return err
}

// same says that a file, or what a link leads to, is as it was.
func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && a.Mode() == b.Mode()
}
