package git

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"limpet/sync/git/gitref"
	"limpet/sync/testenv/gittest"
)

// Tests run against real git: its http-backend behind net/http/cgi, its
// upload-pack behind an ssh server of the tests, its fsck over every mirror.

func openMirrors(t testing.TB, o Options) *Mirrors {
	t.Helper()
	m, err := Open(filepath.Join(t.TempDir(), "mirrors"), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// syncRef resolves branch and fetches it.
func syncRef(t testing.TB, m *Mirrors, r Remote, branch string) (Ref, Stats) {
	t.Helper()
	return syncSelected(t, m, r, gitref.Branch(branch))
}

// syncSelected resolves what is selected and fetches it.
func syncSelected(t testing.TB, m *Mirrors, r Remote, sel gitref.Selector) (Ref, Stats) {
	t.Helper()
	ref, err := m.Resolve(t.Context(), r, sel)
	if err != nil {
		t.Fatal(err)
	}
	st, err := m.Fetch(t.Context(), r, ref)
	if err != nil {
		t.Fatal(err)
	}
	return ref, st
}

// fsck runs git's own check over the mirror of r.
func fsck(t testing.TB, m *Mirrors, r Remote) {
	t.Helper()
	dir := mirrorDir(t, m, r)
	out := gittest.Git(t, dir, nil, "fsck", "--full", "--strict", "--no-dangling")
	if out != "" {
		t.Fatalf("git fsck: %s", out)
	}
	for _, f := range gittest.Glob(t, dir, "objects/pack/*") {
		if strings.HasPrefix(filepath.Base(f), "tmp_") {
			t.Fatalf("left behind: %s", f)
		}
	}
}

func mirrorDir(t testing.TB, m *Mirrors, r Remote) string {
	t.Helper()
	c, err := m.begin(context.Background(), "test", r)
	if err != nil {
		t.Fatal(err)
	}
	defer c.End()
	return m.mirror(c.Addr).dir
}

// paths are the paths of a tree with their content.
func content(t testing.TB, m *Mirrors, r Remote, commit, dir string) map[string]string {
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

// remoteAt is a repository of a server.
func remoteAt(s *gittest.Server, name string) Remote { return Remote{URL: s.URL + "/" + name} }

func TestMain(m *testing.M) { os.Exit(gittest.Main(m)) }
