package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// TestAirGap carries commits from a site to another one that has no network, by files.
func TestAirGap(t *testing.T) {
	t.Parallel()
	repo := testenv.Repo(t, 3, 6)
	from, to, other := newHome(t), newHome(t), newHome(t)
	inbox := filepath.Join(to.dir, "carried")
	for _, dir := range []string{inbox, filepath.Join(other.dir, "carried")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	from.daemon(t, "--local-git-prefix", filepath.Dir(repo.Dir))
	from.must(t, 0, "repo", "create", "boards", "--url", "file://"+repo.Dir, "--interval", "1h")
	from.must(t, 0, "repo", "pull", "boards", "--wait")
	whole, thin := filepath.Join(from.dir, "whole.bundle"), filepath.Join(from.dir, "thin")
	export := func(args ...string) (made struct{ Commit, Ref string }) {
		t.Helper()
		r := from.must(t, 0, append([]string{"repo", "export", "boards", "-o", "json"}, args...)...)
		if err := json.Unmarshal([]byte(r.out), &made); err != nil {
			t.Fatal(err)
		}
		return made
	}
	first := export("--file", whole)
	if stdout := from.must(t, 0, "repo", "export", "boards", "--file", "-").out; stdout != string(read(t, whole)) {
		t.Error("stdout has another bundle")
	}
	names := func(h *home) (out []string) {
		for _, o := range h.objects(t, "default", "dashboards") {
			out = append(out, o.Metadata.Name)
		}
		slices.Sort(out)
		return out
	}

	to.daemon(t, "--local-git-prefix", to.dir)
	to.must(t, 0, "repo", "create", "boards", "--url", "bundle://"+inbox, "--interval", "1h")
	to.must(t, exitUsage, "repo", "import", whole, "absent")
	pipe := filepath.Join(to.dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	to.must(t, exitUsage, "repo", "import", pipe)
	to.must(t, 0, "repo", "import", whole)
	to.must(t, 0, "repo", "pull", "boards", "--wait")
	if got, want := names(to), names(from); len(want) != 6 || !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}

	repo.Commit(t, "Add one", testenv.Change{Path: "grafana/new.json",
		Data: []byte(`{"uid":"brought","title":"New","tags":[],"panels":[],"schemaVersion":41}`)})
	from.must(t, 0, "repo", "pull", "boards", "--wait")
	second := export("--file", thin, "--since", first.Commit)
	if second.Commit == first.Commit {
		t.Fatalf("%+v", second)
	}
	from.must(t, exitError, "repo", "export", "boards", "--file", thin+"-2", "--since", second.Commit)
	other.must(t, 0, "repo", "create", "boards", "--url", "bundle://"+filepath.Join(other.dir, "carried"))
	if r := other.must(t, exitError, "repo", "import", thin, "boards"); !strings.Contains(r.err, first.Commit) {
		t.Errorf("%s", r.err)
	}
	other.must(t, 0, "repo", "create", "boards", "-n", "team", "--url", "bundle://"+other.dir)
	other.must(t, exitUsage, "repo", "import", whole, "boards")
	other.must(t, 0, "repo", "import", whole, "default/boards")
	other.must(t, 0, "repo", "import", thin, "default/boards") // before the one that it builds on is synced
	other.daemon(t, "--local-git-prefix", other.dir)
	other.must(t, 0, "repo", "pull", "boards", "-n", "default", "--wait")
	if got, want := names(other), names(from); !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
	if r := other.must(t, 0, "repo", "import", whole, "default/boards", "-o", "json"); !strings.Contains(r.out, `"known": true`) {
		t.Errorf("a rollback is not told: %s", r.out)
	}
	if err := os.WriteFile(filepath.Join(inbox, "half.bundle"), read(t, thin)[:300], 0o600); err != nil {
		t.Fatal(err)
	}
	to.must(t, exitError, "repo", "import", filepath.Join(inbox, "half.bundle"))
	to.must(t, 0, "repo", "import", thin)
	to.must(t, 0, "repo", "pull", "boards", "--wait")
	if got, want := names(to), names(from); len(want) != 7 || !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
}

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
