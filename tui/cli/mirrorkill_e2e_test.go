package cli_test

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"limpet/sync/testenv"
)

// TestKilledInAPackOfAMirror: the power goes while half of a pack of a mirror is on disk.
// Afterwards the host is still away, or back: nothing is lost, nothing is done twice, and
// nothing of the half pack stays.
func TestKilledInAPackOfAMirror(t *testing.T) {
	t.Parallel()
	repo := testenv.Repo(t, 4, 40)
	copied := filepath.Join(t.TempDir(), "copy.git")
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	run("clone", "-q", "--mirror", repo.Dir, copied)
	one, two := testenv.Git(t, testenv.GitOptions{}), testenv.Git(t, testenv.GitOptions{})
	one.Serve("boards.git", repo.Dir)
	two.Serve("copy.git", copied)
	own, other := newFacade(t, one), newFacade(t, two)
	h := newHome(t)
	d := h.daemon(t)
	h.must(t, 0, "repo", "create", "site", "--url", own.URL+"/boards.git", "--branch", testenv.Branch, "--path", testenv.Directory, "--mirror", other.URL+"/copy.git", "--interval", "10s")
	at := func(commit, words string) {
		t.Helper()
		until(t, "the pull of "+commit, func() bool {
			got := h.must(t, 0, "repo", "show", "site").out
			return strings.Contains(got, commit) && strings.Contains(got, words)
		})
	}
	halves := func() []string {
		found, err := filepath.Glob(filepath.Join(filepath.Dir(h.state()), "mirrors", "*", "objects", "pack", "tmp_*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	at(repo.Head(t), "Resource is available")
	for _, back := range []bool{false, true} {
		own.status.Store(http.StatusBadGateway)
		other.half.Store(true)
		var paths []string
		for _, board := range repo.Dashboards() {
			paths = append(paths, board.Path)
		}
		next := repo.Edit(t, paths...)
		run("-C", copied, "fetch", "-q")
		<-other.asked
		until(t, "half of the pack is on disk", func() bool { return len(halves()) > 0 })
		d.kill()
		if len(halves()) == 0 {
			t.Error("nothing of the half pack is on disk")
		}
		other.half.Store(false)
		words := "fetched from mirror " + other.URL + "/copy.git; " + own.URL + "/boards.git is unreachable: it answers 502 Bad Gateway"
		if back {
			own.status.Store(0)
			words = "Resource is available"
		}
		d = h.daemon(t)
		at(next, words)
		if left := halves(); len(left) > 0 {
			t.Errorf("back %t: left behind: %q", back, left)
		}
		boardsMatch(t, h, "default", "site", repo)
		times := 0
		for _, r := range h.history(t) {
			if r.RefTo == next {
				times++
			}
		}
		if times != 1 {
			t.Errorf("back %t: %d jobs have pulled %s: %s", back, times, next, h.must(t, 0, "history", "list", "-o", "json").out)
		}
	}
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}
