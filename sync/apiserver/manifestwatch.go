package apiserver

import (
	"crypto/sha256"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// manifestRacy is the age below which a file is read although its stat is
// unchanged: two writes may fall within the granularity of its time stamp. It is
// twice the coarsest granularity in use (2 s, FAT).
const manifestRacy = 4 * time.Second

// manifestFile is the last state of one file.
type manifestFile struct {
	watched map[string]watchedFile // the file itself and those that it refers to
	content parsed
	unread  error // of reading the file; permanent until the file changes
	err     error // of applying its objects
	done    bool  // applied, or failed until something changes
}

// watchedFile is the last seen state of a file.
type watchedFile struct {
	info   fs.FileInfo // nil = stat failed
	sum    [sha256.Size]byte
	looked time.Time
}

// list returns the names of the manifest files. Names that begin with a dot
// belong to editors and Kubernetes.
func (m *Manifests) list() ([]string, error) {
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, ".") || !slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name))) {
			continue
		}
		if info, err := os.Stat(filepath.Join(m.dir, name)); err == nil && info.IsDir() {
			continue
		}
		names = append(names, name)
	}
	return names, nil // ReadDir sorts
}

// poll parses new and changed files and forgets deleted ones.
func (m *Manifests) poll(names []string, r *manifestPass) (changed bool) {
	for name := range m.files {
		if !slices.Contains(names, name) {
			delete(m.files, name)
			changed = true
		}
	}
	for _, name := range names {
		if f := m.files[name]; f == nil || f.changed() {
			f = m.read(name)
			r.Warnings = append(r.Warnings, f.content.Warnings...)
			m.files[name] = f
			changed = true
		}
	}
	return changed
}

func (m *Manifests) read(name string) *manifestFile {
	path := filepath.Join(m.dir, name)
	x := &expander{lookup: m.lookup, dir: m.dir}
	f := &manifestFile{watched: map[string]watchedFile{path: watch(path)}}
	data, err := readBounded(path, maxManifest)
	if err != nil {
		f.unread = &manifestError{File: name, Err: err}
	} else {
		f.content, f.unread = parseManifest(name, data, manifestNamespace, x)
	}
	for _, named := range x.files {
		f.watched[named] = watch(named)
	}
	return f
}

// changed reports whether the file, or one that it refers to, has changed.
func (f *manifestFile) changed() bool {
	for path, before := range f.watched {
		info, err := os.Stat(path)
		if (err != nil) != (before.info == nil) {
			return true
		}
		if err != nil {
			continue
		}
		same := os.SameFile(info, before.info) && info.Size() == before.info.Size() && info.ModTime().Equal(before.info.ModTime())
		if same && before.looked.Sub(info.ModTime()) > manifestRacy {
			continue
		}
		now := watch(path)
		if now.sum != before.sum {
			return true
		}
		f.watched[path] = now
	}
	return false
}

func watch(path string) watchedFile {
	w := watchedFile{looked: time.Now()}
	info, err := os.Stat(path)
	if err != nil {
		return w
	}
	w.info = info
	if data, err := readBounded(path, maxManifest); err == nil {
		w.sum = sha256.Sum256(data)
	}
	return w
}
