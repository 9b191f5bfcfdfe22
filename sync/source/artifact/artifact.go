// Package artifact stores the archives of sources and serves them. The files are below a directory,
// named by their digests; the index of them is in the state file. A file is whole and durable
// before the index names it. A download may take leastTime, and beyond that as long as leastSpeed
// needs.
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
	"limpet/sync/api"
	"limpet/sync/source/archive"
)

// Artifact is a packed revision of a source.
type Artifact = state.Artifact

// Options of Open.
type Options struct {
	Dir    string // of the files; it is made when it is missing
	Store  *state.Store
	URL    string        // of the server, for status; "" = none
	Keep   int           // revisions of a source; 0 = DefaultKeep
	MaxAge time.Duration // since a revision was replaced by the next one; 0 = any. The newest always stays
	Logger *slog.Logger
}

// DefaultKeep is how many revisions of a source stay.
const DefaultKeep = 10

// Key names a source; its kind is the first part of a path.
type Key = state.SourceKey

// KeyOf returns the key of a source of a kind, as OCIRepository; "" stands for GitRepository.
func KeyOf(kind, namespace, name string) Key {
	return Key{Kind: strings.ToLower(cmp.Or(kind, "GitRepository")), Namespace: namespace, Name: name}
}

// ErrNotFound is returned for an artifact that is not in the store, or whose file is gone.
var ErrNotFound = errors.New("there is no such artifact")

// CorruptError reports a file that is not what was stored. It was put aside.
type CorruptError struct{ Want, Got string }

func (e *CorruptError) Error() string {
	return fmt.Sprintf("the stored artifact has the digest %s, and was stored with %s", e.Got, e.Want)
}

// Reasons of an Error, those of Flux.
const (
	ReasonDirectory = "DirectoryCreationFailed"
	ReasonStat      = "StatOperationFailed"
	ReasonArchive   = "ArchiveOperationFailed"
	ReasonPath      = "IllegalPath"
)

// Error is one of the disk or of the state file. errors.Is tells syscall.ENOSPC and syscall.EROFS,
// state.ErrFull and state.ErrReadOnly.
type Error struct {
	Reason string // one of the Reason constants
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Store keeps artifacts. It is safe for concurrent use by one process.
type Store struct {
	o     Options
	locks [64]sync.Mutex // of sources by hash: each guards the names in the directories of its sources, and their index
	lost  chan Artifact
	step  func(name string) error // called before each step of a Put; tests stop it there

	mu       sync.Mutex       // guards verified
	verified map[string]proof // by path
}

// Open brings files and index into accord: what a power cut left behind is removed.
func Open(ctx context.Context, o Options) (*Store, error) {
	o.Keep = cmp.Or(max(o.Keep, 0), DefaultKeep)
	if err := makeDir(o.Dir); err != nil {
		return nil, fmt.Errorf("make artifacts directory: %w", err)
	}
	s := &Store{o: o, lost: make(chan Artifact, 64), verified: map[string]proof{}, step: func(string) error { return nil }}
	return s, s.scrub(ctx)
}

// kinds are the first parts of paths.
var kinds = func() (names []string) {
	for _, k := range api.SourceKinds() {
		names = append(names, k.Singular)
	}
	return names
}()

// makeDir makes a directory and those above it, durably.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := makeDir(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(dir))
}

// dir of the files of a source. Names are those of Kubernetes objects, and nothing else is let
// through.
func (s *Store) dir(of Key) (string, error) {
	rel := filepath.Join(of.Kind, of.Namespace, of.Name)
	if !fs.ValidPath(filepath.ToSlash(rel)) || strings.Count(rel, string(filepath.Separator)) != 2 ||
		!slices.Contains(kinds, of.Kind) {
		return "", &Error{ReasonPath, fmt.Errorf("%q cannot be a path of an artifact", of.String())}
	}
	return filepath.Join(s.o.Dir, rel), nil
}

func (s *Store) lock(of Key) *sync.Mutex {
	n := 0
	for _, c := range []byte(of.String()) {
		n = n*31 + int(c)
	}
	return &s.locks[uint(n)%uint(len(s.locks))]
}

// suffix of the names on disk and on the wire.
const suffix = ".tar.gz"

// fileName is the name of a file on disk.
func fileName(digest string) (string, error) {
	_, sum, _ := strings.Cut(digest, ":")
	if raw, err := hex.DecodeString(sum); err != nil || len(raw) != 32 {
		return "", &Error{ReasonPath, fmt.Errorf("%q is no digest of an artifact", digest)}
	}
	return sum + suffix, nil
}

// path is where the file of an artifact is.
func (s *Store) path(a Artifact) (string, error) {
	dir, err := s.dir(a.Source())
	if err != nil {
		return "", err
	}
	name, err := fileName(a.Digest)
	return filepath.Join(dir, name), err
}

// Commit is the commit of a revision, as in main@sha1:HASH.
func Commit(revision string) string { return revision[strings.LastIndexByte(revision, ':')+1:] }

// Version is the name in a revision, "" where it has none.
func Version(revision string) string { return revision[:max(strings.LastIndexByte(revision, '@'), 0)] }

// Put stores what write packs as the newest revision of a source. a names the source, the
// revision, and where it is served if not at SOURCE/COMMIT.tar.gz; Digest, TarDigest, Size, Files and Updated are filled in. Of a Put that fails
// nothing is served, and what was before it is served on.
func (s *Store) Put(ctx context.Context, a Artifact, write func(io.Writer) (archive.Digests, error)) (Artifact, error) {
	return s.put(ctx, a, func(path string) (temp string, d archive.Digests, err error) {
		temp, err = atomicfile.Stage(path, 0o600, func(w io.Writer) (err error) {
			d, err = write(w)
			return err
		})
		return temp, d, err
	})
}

// PutFile is Put of a file with the bytes of an artifact, which d describes. It loses its name when the
// index has the artifact, and no sooner.
func (s *Store) PutFile(ctx context.Context, a Artifact, file string, d archive.Digests) (Artifact, error) {
	made, err := s.put(ctx, a, func(path string) (string, archive.Digests, error) {
		temp, err := atomicfile.Adopt(file, path)
		return temp, d, err
	})
	if err != nil {
		return Artifact{}, err
	}
	path, err := s.path(made)
	if err == nil {
		err = os.Remove(file)
	}
	if info, gone := os.Stat(path); err == nil && gone == nil { // a name less is a change of the inode
		s.prove(path, info)
	}
	if err != nil {
		s.o.Logger.Warn("remove what was stored", "file", file, "err", err)
	}
	return made, nil
}

func (s *Store) put(
	ctx context.Context, a Artifact, stage func(path string) (temp string, d archive.Digests, err error),
) (Artifact, error) {
	dir, err := s.dir(a.Source())
	if err != nil {
		return Artifact{}, err
	}
	if err := makeDir(dir); err != nil {
		return Artifact{}, &Error{ReasonDirectory, err}
	}
	temp, d, err := stage(filepath.Join(dir, "artifact"))
	if err != nil {
		return Artifact{}, &Error{ReasonArchive, err}
	}
	defer os.Remove(temp) // after the rename it is gone
	a.Digest, a.TarDigest, a.Size, a.Files = d.Digest, d.TarDigest, d.Size, d.Files
	a.Path, a.Updated = cmp.Or(a.Path, a.Source().String()+"/"+Commit(a.Revision)+suffix), time.Now().UTC().Truncate(time.Second)
	path, err := s.path(a)
	if err != nil {
		return Artifact{}, err
	}
	lock := s.lock(a.Source())
	lock.Lock()
	defer lock.Unlock()
	if err := s.publish(temp, path, a.Size); err != nil {
		return Artifact{}, &Error{ReasonArchive, err}
	}
	if err := s.step("index"); err != nil {
		return Artifact{}, err
	}
	// With a context that ends here, it would not be known whether the index has the artifact.
	var before []Artifact
	list, err := s.o.Store.ChangeArtifacts(context.WithoutCancel(ctx), a.Source(), func(list []Artifact) []Artifact {
		before = slices.Clone(list)
		list = slices.DeleteFunc(list, func(b Artifact) bool {
			return b.UID != a.UID || b.Revision == a.Revision && b.Digest == a.Digest
		})
		return s.retain(append([]Artifact{a}, list...), a.Updated)
	})
	if err != nil {
		return Artifact{}, &Error{ReasonArchive, fmt.Errorf("write index of artifacts: %w", err)}
	}
	if err := s.step("tidy"); err != nil {
		return Artifact{}, err
	}
	if err := s.tidy(dir, list, before); err != nil {
		s.o.Logger.Warn("remove old artifacts", "dir", dir, "err", err)
	}
	return a, nil
}

// publish gives a synced file its name. Its bytes need no check before they are served first: they
// were counted and digested on their way.
func (s *Store) publish(temp, path string, size int64) error {
	info, err := os.Stat(temp)
	if err == nil && info.Size() != size {
		err = fmt.Errorf("%d bytes were written, and %d packed", info.Size(), size)
	}
	if err == nil {
		err = s.step("rename")
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err == nil {
		err = s.step("sync")
	}
	if err == nil {
		err = atomicfile.SyncDir(filepath.Dir(path))
	}
	if err == nil {
		info, err = os.Stat(path) // a rename is a change of the inode
	}
	if err == nil {
		s.prove(path, info)
	}
	return err
}

// retain returns which revisions stay of those of a source, the newest first. The newest always
// does.
func (s *Store) retain(list []Artifact, now time.Time) []Artifact {
	for i := range list {
		if i > 0 && (i >= s.o.Keep || s.o.MaxAge > 0 && now.Sub(list[i-1].Updated) > s.o.MaxAge) {
			return list[:i]
		}
	}
	return list
}

// Latest returns the newest artifact of a source, or ErrNotFound.
func (s *Store) Latest(ctx context.Context, of Key) (Artifact, error) {
	return s.Find(ctx, of, "latest")
}

// List returns the artifacts of a source, the newest first; none is no error.
func (s *Store) List(ctx context.Context, of Key) ([]Artifact, error) {
	return s.o.Store.Artifacts(ctx, of)
}

// All returns the artifacts of all sources.
func (s *Store) All(ctx context.Context) (map[Key][]Artifact, error) {
	return s.o.Store.AllArtifacts(ctx)
}

// Find returns the newest artifact of a source that a key names; see Choose.
func (s *Store) Find(ctx context.Context, of Key, key string) (Artifact, error) {
	list, err := s.List(ctx, of)
	if err != nil {
		return Artifact{}, err
	}
	return Choose(list, key)
}

func parseTime(key string) (time.Time, bool) {
	if n, err := strconv.ParseInt(key, 10, 64); err == nil && len(key) <= 12 {
		return time.Unix(n, 0), true
	}
	t, err := time.Parse(time.RFC3339, key)
	return t, err == nil
}

// Remove forgets all artifacts of a source and removes their files; none is no error.
func (s *Store) Remove(ctx context.Context, of Key) error {
	return s.change(ctx, of, func([]Artifact) []Artifact { return nil })
}

// Note records how the program has ended that followed a switch of a sink to an artifact.
func (s *Store) Note(ctx context.Context, a Artifact, exec string) error {
	return s.change(ctx, a.Source(), func(list []Artifact) []Artifact {
		if i := slices.IndexFunc(list, func(b Artifact) bool { return b.Revision == a.Revision && b.Digest == a.Digest }); i >= 0 {
			list[i].Exec = exec
		}
		return list
	})
}

// change changes the list of a source and removes the files that it has no more.
func (s *Store) change(ctx context.Context, of Key, to func([]Artifact) []Artifact) error {
	dir, err := s.dir(of)
	if err != nil {
		return err
	}
	lock := s.lock(of)
	lock.Lock()
	defer lock.Unlock()
	var before []Artifact
	list, err := s.o.Store.ChangeArtifacts(ctx, of, func(list []Artifact) []Artifact {
		before = slices.Clone(list)
		return to(list)
	})
	if err != nil {
		return err
	}
	if err := s.tidy(dir, list, before); err != nil && !errors.Is(err, fs.ErrNotExist) {
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
