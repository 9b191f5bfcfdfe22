package e2e

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"limpet/sync/testenv/suite"

	"limpet/state"
	"limpet/sync/testenv"
)

// TestFallback: a site whose host is away is pulled from its fallback URL, also after a power cut that leaves half of
// a pack. The fallback is not asked while the host answers or refuses, one that is behind is not believed, and each
// host sees only its own credentials.
func TestFallback(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	const first, second = "canary-41-first", "canary-42-second"
	repo := testenv.Repo(t, 2, 30)
	copied := filepath.Join(t.TempDir(), "copy.git")
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	run("clone", "-q", "--mirror", repo.Dir, copied)
	one, two := testenv.Git(t, testenv.GitOptions{User: "git", Password: first}),
		testenv.Git(t, testenv.GitOptions{User: "bob", Password: second})
	one.Serve("boards.git", repo.Dir)
	two.Serve("copy.git", copied)
	own, other := newRecordingProxy(t, one), newRecordingProxy(t, two)
	h := newHome(t)
	h.file(t, "credentials/default.site/token", first)
	h.file(t, ".config/limpet/config.yaml", fmt.Sprintf("git-credentials:\n- url: %s\n  values: {username: bob}\n  files: {password: %s}\n",
		other.URL, h.file(t, "second", second)))
	start := func() *daemon {
		return h.daemon(t, "--allow-insecure-git", "--credentials-dir", filepath.Join(h.dir, "credentials"))
	}
	d := start()
	if r := h.must(t, 1, "repo", "create", "site", "--url", own.URL+"/boards.git", "--mirror", "http://ann:"+second+
		"@x/y"); strings.Contains(r.err, second) {
		t.Errorf("the password is in %s", r.err)
	}
	h.must(t, 0, "repo", "create", "site", "--url", own.URL+"/boards.git", "--branch", testenv.Branch, "--path", testenv.Directory,
		"--mirror", other.URL+"/copy.git", "--interval", "10s")
	pulled := func(commit string) {
		t.Helper()
		until(t, "the pull of "+commit, func() bool {
			return slices.ContainsFunc(h.history(t), func(r state.Record) bool { return r.RefTo == commit && r.State == "success" })
		})
		boardsMatch(t, h, "default", "site", repo)
	}
	asked := func(f *recordingProxy, want ...string) {
		t.Helper()
		if got := f.take(); !slices.Equal(got, want) {
			t.Errorf("asked with %q, want %q", got, want)
		}
	}
	edit := func() string {
		var paths []string
		for _, b := range repo.Dashboards() {
			paths = append(paths, b.Path)
		}
		commit := repo.Edit(t, paths...)
		run("-C", copied, "fetch", "-q")
		return commit
	}
	pulled(repo.Head(t))
	asked(other)
	h.must(t, 0, "repo", "test", "site")

	own.status.Store(http.StatusBadGateway)
	pulled(edit())
	asked(other, "bob:"+second)

	halves := func() []string {
		found, err := filepath.Glob(filepath.Join(filepath.Dir(h.state()), "mirrors", "*", "objects", "pack", "tmp_*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	other.half.Store(true)
	next := edit()
	<-other.asked
	until(t, "half of the pack is on disk", func() bool { return len(halves()) > 0 })
	d.kill()
	other.half.Store(false)
	d = start()
	pulled(next)
	if left := halves(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}

	// A fallback that is behind is not believed.
	run("-C", copied, "update-ref", "refs/heads/"+testenv.Branch, testenv.Branch+"~1")
	other.take()
	until(t, "the fallback is asked again", func() bool { return len(other.take()) > 0 })
	h.run(t, "repo", "pull", "site", "--wait")
	boardsMatch(t, h, "default", "site", repo)

	// A host that refuses is not asked about elsewhere.
	d.kill()
	own.status.Store(http.StatusUnauthorized)
	own.take()
	other.take()
	d = start()
	until(t, "it is refused", func() bool {
		return strings.Contains(h.must(t, 0, "repo", "show", "site", "-o", "json").out, "AuthenticationFailed")
	})
	asked(other)
	asked(own, "git:"+first)
	if code := d.stop(t); code != 0 || strings.Contains(d.log.String(), "canary") {
		t.Errorf("exit %d, or a secret is in the log: %s", code, d.log)
	}
}
