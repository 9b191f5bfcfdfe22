package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"limpet/state/atomicfile"
	"limpet/sync/fileid"
)

// corruptSuffix is at the end of the name of a file that was put aside, until the next start.
const corruptSuffix = ".corrupt"

// proof is what of a file was verified, and when.
type proof struct {
	stamp fileid.Stamp
	at    time.Time
}

// verifyEvery is how long a proof holds: a disk may lose bytes of a file that did not change.
const verifyEvery = time.Hour

func (s *Store) prove(path string, info fs.FileInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.verified[path] = proof{fileid.Of(info), time.Now()}
}

func (s *Store) proven(path string, info fs.FileInfo) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.verified[path]
	return time.Since(p.at) < verifyEvery && p.stamp == fileid.Of(info)
}

// OpenFile opens the file of an artifact. Its bytes are verified at the first time, when it has
// changed, and each hour: an artifact without its file is ErrNotFound, one whose bytes are others a
// *CorruptError.
func (s *Store) OpenFile(ctx context.Context, a Artifact) (_ *os.File, err error) {
	path, err := s.path(a)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			s.tellLost(a)
			return nil, fmt.Errorf("%w: its file is gone", ErrNotFound)
		}
		return nil, &Error{ReasonStat, err}
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, &Error{ReasonStat, err}
	}
	if s.proven(path, info) {
		return f, nil
	}
	got := "other"
	if info.Mode().IsRegular() {
		if got, err = digest(ctx, f); err != nil {
			return nil, &Error{ReasonStat, err}
		}
	}
	if got != a.Digest {
		s.putAside(a, path, info)
		return nil, &CorruptError{a.Digest, got}
	}
	s.prove(path, info)
	return f, nil
}

// digest reads a file, and leaves it at its begin. It closes it when ctx ends.
func digest(ctx context.Context, f *os.File) (string, error) {
	sum := sha256.New()
	stop := context.AfterFunc(ctx, func() { _ = f.Close() })
	_, err := io.Copy(sum, f)
	if !stop() {
		return "", context.Cause(ctx)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), err
}

// putAside takes a corrupt file off its name, unless another one got the name meanwhile.
func (s *Store) putAside(a Artifact, path string, bad fs.FileInfo) {
	lock := s.lock(a.Source())
	lock.Lock()
	defer lock.Unlock()
	now, err := os.Lstat(path)
	if err != nil || !os.SameFile(now, bad) {
		return
	}
	err = os.Rename(path, path+corruptSuffix)
	s.o.Logger.Error("artifact damaged", "namespace", a.Namespace, "name", a.Name, "revision", a.Revision, "aside",
		path+corruptSuffix, "err", err)
	s.tellLost(a)
}

func (s *Store) tellLost(a Artifact) {
	select {
	case s.lost <- a:
	default: // it is found again by the next one who asks
	}
}

// Lost delivers the artifacts whose file was found missing or corrupt: their sources are to be
// reconciled.
func (s *Store) Lost() <-chan Artifact { return s.lost }

// Verify checks that the file of an artifact is there and has its digest, as OpenFile does.
func (s *Store) Verify(ctx context.Context, a Artifact) error {
	if path, err := s.path(a); err == nil {
		if info, err := os.Lstat(path); err == nil && s.proven(path, info) {
			return nil
		}
	}
	f, err := s.OpenFile(ctx, a)
	if err != nil {
		return err
	}
	return f.Close()
}

// tidy removes the files of a source that no artifact of the list has. The caller holds the lock.
// Behind a link there may be files of others: there it removes only those of before.
func (s *Store) tidy(dir string, list, before []Artifact) error {
	wanted, own := map[string]bool{}, map[string]bool{}
	for _, a := range list {
		name, _ := fileName(a.Digest)
		wanted[name] = true
	}
	for _, a := range before {
		name, _ := fileName(a.Digest)
		own[name] = true
	}
	linked := s.linked(dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), indexSuffix)
		if strings.HasSuffix(name, suffix) && !wanted[name] && (!linked || own[name]) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
			s.mu.Lock()
			delete(s.verified, filepath.Join(dir, e.Name()))
			s.mu.Unlock()
		}
	}
	if len(list) == 0 && !linked {
		_ = os.Remove(dir) // if it is empty
	}
	return err
}

// linked reports whether a directory of the store, or one above it in the store, is a link.
func (s *Store) linked(dir string) bool {
	for ; len(dir) >= len(s.o.Dir); dir = filepath.Dir(dir) {
		if info, err := os.Lstat(dir); err != nil || info.Mode().Type() == fs.ModeSymlink {
			return true
		}
	}
	return false
}

// scrub removes files that the index does not name, and artifacts of the index whose file is not in
// the directory of their source; a directory that cannot be read may be on a disk that is away, and
// loses nothing. It reads directories only, so that its time is bounded by the number of files. A
// disk that takes no writes is served as it is.
func (s *Store) scrub(ctx context.Context) error {
	all, err := s.o.Store.AllArtifacts(ctx)
	if err != nil {
		return fmt.Errorf("read index of artifacts: %w", err)
	}
	listed, there := map[Key]bool{}, map[string]bool{} // the latter by "kind/namespace/name/file size"
	sources, err := fs.Glob(os.DirFS(s.o.Dir), "*/*/*")
	if err != nil {
		return err
	}
	for _, source := range sources {
		parts := strings.Split(source, "/")
		key := Key{Kind: parts[0], Namespace: parts[1], Name: parts[2]}
		dir, err := s.dir(key)
		if err != nil { // of something else
			continue
		}
		entries, err := os.ReadDir(dir)
		listed[key] = err == nil
		for _, e := range entries {
			name := e.Name()
			if strings.HasSuffix(name, suffix+corruptSuffix) || atomicfile.IsTemporary(name) { // ours, also behind a link
				err = errors.Join(err, os.Remove(filepath.Join(dir, name)))
			} else if info, e := e.Info(); e != nil {
				listed[key] = false
			} else if info.Mode().IsRegular() {
				there[fmt.Sprintf("%s/%s %d", key, name, info.Size())] = true
			}
		}
		if err = errors.Join(err, s.tidy(dir, all[key], nil)); err != nil {
			s.o.Logger.Warn("clean artifacts directory", "dir", dir, "err", err)
		}
	}
	isGone := func(a Artifact) bool {
		name, err := fileName(a.Digest)
		return err != nil || !there[fmt.Sprintf("%s/%s %d", a.Source(), name, a.Size)]
	}
	for key, list := range all {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !listed[key] || !slices.ContainsFunc(list, isGone) {
			continue
		}
		s.o.Logger.Warn("artifacts without a file", "namespace", key.Namespace, "name", key.Name)
		if _, err := s.o.Store.ChangeArtifacts(ctx, key, func(list []Artifact) []Artifact {
			return slices.DeleteFunc(list, isGone)
		}); err != nil {
			s.o.Logger.Warn("clean index of artifacts", "namespace", key.Namespace, "name", key.Name, "err", err)
		}
	}
	return ctx.Err()
}

// pruneEvery is the period of Run.
const pruneEvery = time.Hour

// Run removes revisions that have become too old, until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	for ticker := time.Tick(pruneEvery); s.o.MaxAge > 0; {
		if err := s.prune(ctx, time.Now()); err != nil && ctx.Err() == nil {
			s.o.Logger.Warn("prune artifacts", "err", err)
		}
		select {
		case <-ticker:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

func (s *Store) prune(ctx context.Context, now time.Time) error {
	all, err := s.o.Store.AllArtifacts(ctx)
	for key, list := range all {
		if len(s.retain(list, now)) == len(list) {
			continue
		}
		err = errors.Join(err, s.change(ctx, key, func(list []Artifact) []Artifact { return s.retain(list, now) }))
	}
	return err
}
