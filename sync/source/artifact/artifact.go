// Package artifact stores the archives of sources and serves them. The files are below a directory, named by their
// digests; the index of them is in the state file. A file is whole and durable before the index names it.
package artifact

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"limpet/state"
	"limpet/state/atomicfile"
	"limpet/sync/source/archive"
)

// Artifact is a packed revision of a source.
type Artifact = state.Artifact

// Options of Open.
type Options struct {
	Dir    string // of the files; it is made when it is missing
	Store  *state.Store
	URL    string        // of the server, for status
	Keep   int           // revisions of a source; 0 = DefaultKeep
	MaxAge time.Duration // of a revision that is not the newest; 0 = any
	Logger *slog.Logger
}

// DefaultKeep is how many revisions of a source stay.
const DefaultKeep = 10

// Kind is the first part of a path.
const Kind = "gitrepository"

// ErrNotFound is returned for an artifact that is not in the store.
var ErrNotFound = errors.New("there is no such artifact")

// Reasons of an Error, those of Flux.
const (
	ReasonDirectory = "DirectoryCreationFailed"
	ReasonStat      = "StatOperationFailed"
	ReasonArchive   = "ArchiveOperationFailed"
	ReasonPath      = "IllegalPath"
)

// Error is one of the disk. errors.Is tells syscall.ENOSPC and syscall.EROFS.
type Error struct {
	Reason string // one of the Reason constants
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Store keeps artifacts. It is safe for concurrent use by one process.
type Store struct {
	o     Options
	locks [64]sync.Mutex // of sources by hash: guard the step from a renamed file to the index, and the removal of files
}

// Open brings files and index into accord: what was killed half-way is removed.
func Open(ctx context.Context, o Options) (*Store, error) {
	o.Keep = cmp.Or(max(o.Keep, 0), DefaultKeep)
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make artifacts directory: %w", err)
	}
	return &Store{o: o}, nil
}

// dir of the files of a source. Names are those of Kubernetes objects, and nothing else is let through.
func (s *Store) dir(namespace, name string) (string, error) {
	rel := filepath.Join(Kind, namespace, name)
	if !fs.ValidPath(filepath.ToSlash(rel)) || strings.Count(rel, string(filepath.Separator)) != 2 {
		return "", &Error{ReasonPath, fmt.Errorf("%q cannot be a path of an artifact", namespace+"/"+name)}
	}
	return filepath.Join(s.o.Dir, rel), nil
}

func (s *Store) lock(namespace, name string) *sync.Mutex {
	n := 0
	for _, c := range []byte(namespace + "/" + name) {
		n = n*31 + int(c)
	}
	return &s.locks[uint(n)%uint(len(s.locks))]
}

// fileName is the name of a file on disk.
func fileName(digest string) (string, error) {
	_, sum, _ := strings.Cut(digest, ":")
	if raw, err := hex.DecodeString(sum); err != nil || len(raw) != 32 {
		return "", &Error{ReasonPath, fmt.Errorf("%q is no digest of an artifact", digest)}
	}
	return sum + ".tar.gz", nil
}

// Commit is the commit of a revision, as in main@sha1:HASH.
func Commit(revision string) string { return revision[strings.LastIndexByte(revision, ':')+1:] }

// Version is the name in a revision, "" where it has none.
func Version(revision string) string {
	name, _, _ := cutLast(revision, "@")
	return name
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return "", s, false
}

// Put stores what write packs as the newest revision of a source. a names the source and the revision; Path, Digest,
// TarDigest, Size, Files and Updated are filled in. Of a Put that fails nothing stays, and the artifacts before it are
// served on. An error of write is returned as it is, one of the disk as an *Error.
func (s *Store) Put(ctx context.Context, a Artifact, write func(io.Writer) (archive.Digests, error)) (Artifact, error) {
	dir, err := s.dir(a.Namespace, a.Name)
	if err != nil {
		return Artifact{}, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Artifact{}, &Error{ReasonDirectory, err}
	}
	var d archive.Digests
	temp, err := atomicfile.Stage(filepath.Join(dir, "artifact"), 0o600, func(w io.Writer) (err error) { d, err = write(w); return err })
	if err != nil {
		return Artifact{}, err
	}
	defer os.Remove(temp) // after the rename it is gone
	a.Digest, a.TarDigest, a.Size, a.Files = d.Digest, d.TarDigest, d.Size, d.Files
	a.Path, a.Updated = Kind+"/"+a.Namespace+"/"+a.Name+"/"+Commit(a.Revision)+".tar.gz", time.Now().UTC().Truncate(time.Second)
	name, err := fileName(a.Digest)
	if err != nil {
		return Artifact{}, err
	}
	lock := s.lock(a.Namespace, a.Name)
	lock.Lock()
	defer lock.Unlock()
	if err := os.Rename(temp, filepath.Join(dir, name)); err != nil {
		return Artifact{}, &Error{ReasonArchive, err}
	}
	if err := atomicfile.SyncDir(dir); err != nil {
		return Artifact{}, &Error{ReasonArchive, err}
	}
	before, now, err := s.o.Store.ChangeArtifacts(ctx, a.Namespace, a.Name, func(list []Artifact) []Artifact { return s.retain(a, list) })
	if err != nil {
		return Artifact{}, err
	}
	for _, old := range before {
		if name, err := fileName(old.Digest); err == nil && !slices.ContainsFunc(now, func(b Artifact) bool { return b.Digest == old.Digest }) {
			_ = os.Remove(filepath.Join(dir, name))
		}
	}
	return a, nil
}

// retain puts the newest artifact before those that stay.
func (s *Store) retain(newest Artifact, list []Artifact) []Artifact {
	out := []Artifact{newest}
	for _, a := range list {
		old := s.o.MaxAge > 0 && newest.Updated.Sub(a.Updated) > s.o.MaxAge
		if a.UID == newest.UID && (a.Revision != newest.Revision || a.Digest != newest.Digest) && len(out) < s.o.Keep && !old {
			out = append(out, a)
		}
	}
	return out
}

// Latest returns the newest artifact of a source, or ErrNotFound.
func (s *Store) Latest(ctx context.Context, namespace, name string) (Artifact, error) {
	return s.Find(ctx, namespace, name, "latest")
}

// List returns the artifacts of a source, the newest first; none is no error.
func (s *Store) List(ctx context.Context, namespace, name string) ([]Artifact, error) {
	return s.o.Store.Artifacts(ctx, namespace, name)
}

// Find returns the newest artifact of a source that a key names: "latest", a digest with or without "sha256:", a commit,
// the branch or tag of the revision, or a time (RFC 3339 or seconds since 1970), which names what was the newest then.
func (s *Store) Find(ctx context.Context, namespace, name, key string) (Artifact, error) {
	list, err := s.List(ctx, namespace, name)
	if err != nil {
		return Artifact{}, err
	}
	at, isTime := parseTime(key)
	for _, is := range []func(Artifact) bool{
		func(Artifact) bool { return key == "latest" },
		func(a Artifact) bool { return a.Digest == key || strings.TrimPrefix(a.Digest, "sha256:") == key },
		func(a Artifact) bool { return Commit(a.Revision) == key },
		func(a Artifact) bool { return key != "" && Version(a.Revision) == key },
		func(a Artifact) bool { return isTime && !a.Updated.After(at) },
	} {
		if i := slices.IndexFunc(list, is); i >= 0 {
			return list[i], nil
		}
	}
	return Artifact{}, ErrNotFound
}

func parseTime(key string) (time.Time, bool) {
	if n, err := strconv.ParseInt(key, 10, 64); err == nil && len(key) <= 12 {
		return time.Unix(n, 0), true
	}
	t, err := time.Parse(time.RFC3339, key)
	return t, err == nil
}

// OpenFile opens the file of an artifact, whose digest is checked before.
func (s *Store) OpenFile(ctx context.Context, a Artifact) (*os.File, error) {
	dir, err := s.dir(a.Namespace, a.Name)
	if err != nil {
		return nil, err
	}
	name, err := fileName(a.Digest)
	if err != nil {
		return nil, err
	}
	return os.Open(filepath.Join(dir, name))
}

// Verify checks that the file of an artifact is there and has its digest.
func (s *Store) Verify(ctx context.Context, a Artifact) error {
	f, err := s.OpenFile(ctx, a)
	if err != nil {
		return err
	}
	return f.Close()
}

// Remove forgets all artifacts of a source and removes their files; none is no error.
func (s *Store) Remove(ctx context.Context, namespace, name string) error {
	dir, err := s.dir(namespace, name)
	if err != nil {
		return err
	}
	lock := s.lock(namespace, name)
	lock.Lock()
	defer lock.Unlock()
	if _, _, err := s.o.Store.ChangeArtifacts(ctx, namespace, name, func([]Artifact) []Artifact { return nil }); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return &Error{ReasonStat, err}
	}
	return nil
}

// URL of an artifact for status, "" where nothing serves it.
func (s *Store) URL(a Artifact) string {
	if s.o.URL == "" {
		return ""
	}
	return strings.TrimSuffix(s.o.URL, "/") + "/" + a.Path
}
