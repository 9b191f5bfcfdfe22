package artifact_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"limpet/state"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
	"limpet/sync/testenv"
)

func TestMain(m *testing.M) {
	if state.RunProbe() {
		return
	}
	os.Exit(testenv.Main(m))
}

// TestPut: a tree of a mirror becomes an artifact that all its keys find.
func TestPut(t *testing.T) {
	t.Parallel()
	repo := testenv.Repo(t, 1, 5)
	mirrors, err := git.Open(t.TempDir(), git.Options{AllowLocal: []string{repo.Dir}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mirrors.Close() })
	remote := git.Remote{URL: repo.Dir}
	ref, err := mirrors.Resolve(t.Context(), remote, gitref.Selector{Branch: testenv.Branch})
	if err == nil {
		_, err = mirrors.Fetch(t.Context(), remote, ref)
	}
	if err != nil {
		t.Fatal(err)
	}
	store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(t.TempDir(), "limpet.db"), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	s, err := artifact.Open(t.Context(), artifact.Options{Dir: t.TempDir(), Store: store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	put := func(ctx context.Context) (artifact.Artifact, error) {
		return s.Put(ctx, artifact.Artifact{Namespace: "flux-system", Name: "site", Revision: "main@sha1:" + ref.Hash},
			func(w io.Writer) (archive.Digests, error) {
				return archive.Write(ctx, w, archive.Tree{Mirrors: mirrors, Remote: remote, Commit: ref.Hash}, archive.Options{})
			})
	}
	a, err := put(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"latest", ref.Hash, "main", a.Digest, a.Digest[7:], a.Updated.Format("2006-01-02T15:04:05Z07:00")} {
		if b, err := s.Find(t.Context(), "flux-system", "site", key); err != nil || b != a {
			t.Errorf("%s: %v, %+v, want %+v", key, err, b, a)
		}
	}
	f, err := s.OpenFile(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := s.Find(t.Context(), "flux-system", "site", "other"); !errors.Is(err, artifact.ErrNotFound) {
		t.Errorf("another: %v", err)
	}
	if err := s.Remove(t.Context(), "flux-system", "site"); err != nil {
		t.Fatal(err)
	}
	if list, err := s.List(t.Context(), "flux-system", "site"); err != nil || len(list) > 0 {
		t.Errorf("after the removal: %v, %v", list, err)
	}
}
