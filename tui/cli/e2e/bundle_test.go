package e2e

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// TestKillDuringImport: whenever an import is killed, the directory has the whole file or none.
func TestKillDuringImport(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t, "--local-git-prefix", "/")
	inbox := filepath.Join(h.dir, "carried")
	if err := os.Mkdir(inbox, 0o700); err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, 16<<20)
	rand.NewChaCha8([32]byte{}).Read(noise)
	repo := testenv.Repo(t, 1, 1)
	repo.Commit(t, "Noise", testenv.Change{Path: "noise", Data: noise})
	file := filepath.Join(h.dir, "x.bundle")
	repo.Git(t, "bundle", "create", "-q", file, "main", "HEAD")
	h.must(t, 0, "repo", "create", "boards", "--url", "bundle://"+inbox)
	whole, killed := read(t, file), 0
	for range 8 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.command(ctx, t, "repo", "import", file).Run() }()
		for len(ended) == 0 {
			if copies, _ := filepath.Glob(filepath.Join(inbox, ".limpet-*.tmp")); len(copies) > 0 {
				break // the copy has begun
			}
		}
		cancel()
		if <-ended != nil {
			killed++
		}
		if data, err := os.ReadFile(filepath.Join(inbox, "x.bundle")); err == nil && !bytes.Equal(data, whole) {
			t.Fatalf("%d bytes of %d", len(data), len(whole))
		}
		os.Remove(filepath.Join(inbox, "x.bundle"))
	}
	if killed == 0 {
		t.Error("no import was killed while it copied")
	}
	h.must(t, 0, "repo", "import", file)
	if !bytes.Equal(read(t, filepath.Join(inbox, "x.bundle")), whole) {
		t.Error("another file")
	}
	if left, _ := filepath.Glob(filepath.Join(inbox, ".limpet-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
