// Package mirrortest opens mirrors for the tests of the parts of package git, which stand
// below it and are tested through it.
package mirrortest

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"limpet/sync/auth"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
	"limpet/sync/testenv/gittest"
)

// At is a repository of a server.
func At(s *gittest.Server, name string) git.Remote { return git.Remote{URL: s.URL + "/" + name} }

// dirs has the directory of each *git.Mirrors.
var dirs sync.Map

// Open opens mirrors in a directory of the test.
func Open(t testing.TB, o git.Options) *git.Mirrors {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "mirrors")
	m, err := git.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	dirs.Store(m, dir)
	t.Cleanup(func() {
		dirs.Delete(m)
		m.Close()
	})
	return m
}

// Dir is the directory that Open has made for m.
func Dir(m *git.Mirrors) string {
	dir, _ := dirs.Load(m)
	return dir.(string)
}

// MirrorDir is the directory of the mirror of r.
func MirrorDir(t testing.TB, m *git.Mirrors, r git.Remote) string {
	t.Helper()
	a, err := auth.ParseAddress(r.URL)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(a.Key()))
	return filepath.Join(Dir(m), hex.EncodeToString(sum[:])[:32])
}

// Sync resolves a branch and fetches it.
func Sync(t testing.TB, m *git.Mirrors, r git.Remote, branch string) (git.Ref, git.Stats) {
	t.Helper()
	ref, err := m.Resolve(t.Context(), r, gitref.Branch(branch))
	if err != nil {
		t.Fatal(err)
	}
	stats, err := m.Fetch(t.Context(), r, ref)
	if err != nil {
		t.Fatal(err)
	}
	return ref, stats
}

// Fsck runs git's own check over the mirror of r.
func Fsck(t testing.TB, m *git.Mirrors, r git.Remote) {
	t.Helper()
	dir := MirrorDir(t, m, r)
	if out := gittest.Git(t, dir, nil, "fsck", "--full", "--strict", "--no-dangling"); out != "" {
		t.Fatalf("git fsck: %s", out)
	}
	for _, f := range gittest.Glob(t, dir, "objects/pack/*") {
		if strings.HasPrefix(filepath.Base(f), "tmp_") {
			t.Fatalf("left behind: %s", f)
		}
	}
}

// Content lists the files of a tree with their content.
func Content(t testing.TB, m *git.Mirrors, r git.Remote, commit, dir string) map[string]string {
	t.Helper()
	tree, err := m.Tree(t.Context(), r, commit, dir)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for _, f := range tree.Files {
		data, err := m.Blob(t.Context(), r, f.Hash, 0)
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(data)) != f.Size {
			t.Fatalf("%s: size %d in the tree, %d bytes", f.Path, f.Size, len(data))
		}
		out[f.Path] = string(data)
	}
	return out
}
