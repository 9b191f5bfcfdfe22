package git

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"limpet/sync/git/gitref"
	"limpet/sync/testenv/gittest"
)

// noGit makes sure that nothing below starts a git.
func noGit(t *testing.T) { t.Setenv("PATH", t.TempDir()) }

// sampleCommit is one commit of a sample.
type sampleCommit struct {
	message string
	files   map[string][]byte
}

// sample makes a repository in dir with one commit per step, a minute apart, on
// the branch main, and returns the hash of the last.
func sample(dir string, start time.Time, steps ...sampleCommit) (last string, err error) {
	if err := CreateRepository(dir); err != nil {
		return "", err
	}
	for i, s := range steps {
		if last, err = CommitFiles(dir, "main", s.message, s.files, start.Add(time.Duration(i)*time.Minute)); err != nil {
			return "", err
		}
	}
	return last, nil
}

func TestSampleAndLocal(t *testing.T) {
	when := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	dir := filepath.Join(t.TempDir(), "sample.git")
	files := map[string]string{}
	steps := []sampleCommit{{message: "first\n\nwith a body", files: map[string][]byte{"README.md": []byte("hi"), "empty": nil}}}
	files["README.md"], files["empty"] = "hi", ""
	for i := range 20 {
		name := fmt.Sprintf("grafana/team-%d/board-%d.json", i%3, i)
		files[name] = gittest.Dashboard(fmt.Sprint(i), i, 20)
		steps = append(steps, sampleCommit{message: "add " + name, files: map[string][]byte{name: []byte(files[name])}})
	}
	last, err := func() (string, error) {
		noGit(t)
		return sample(dir, when, steps...)
	}()
	if err != nil {
		t.Fatal(err)
	}
	m := openMirrors(t, Options{AllowLocal: []string{filepath.Dir(dir)}})
	r := Remote{URL: "file://" + dir}
	ref, st := syncRef(t, m, r, "")
	if ref.Hash != last || ref.Name != "refs/heads/main" || !st.Full || st.Bytes == 0 {
		t.Fatalf("%+v %+v, want %s", ref, st, last)
	}
	if got := content(t, m, r, ref.Hash, ""); !maps.Equal(got, files) {
		t.Fatal("content differs")
	}
	files["grafana/team-0/board-0.json"], files["a/b/c.json"] = "{}", "c"
	next, err := CommitFiles(dir, "main", "change", map[string][]byte{"grafana/team-0/board-0.json": []byte("{}"), "a/b/c.json": []byte("c")},
		when.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	ref, st = syncRef(t, m, Remote{URL: dir}, "main")
	if ref.Hash != next || st.Full || st.Rebuilt || st.Objects > 12 {
		t.Fatalf("%+v %+v", ref, st)
	}
	if got := content(t, m, r, ref.Hash, ""); !maps.Equal(got, files) {
		t.Fatalf("content differs: %v", got)
	}
	if _, st := syncRef(t, m, r, ""); st.Requests != 0 || st.Bytes != 0 {
		t.Fatalf("nothing new: %+v", st)
	}
	if _, err := CommitFiles(dir, "side/branch", "begin", map[string][]byte{"x": []byte("1")}, when); err != nil {
		t.Fatal(err)
	}
	side, _ := syncRef(t, m, r, "side/branch")
	if got := content(t, m, r, side.Hash, ""); len(got) != 1 {
		t.Fatal("a new branch holds more than was committed")
	}
	if err := os.Setenv("PATH", "/usr/bin:/bin"); err != nil { // for the check only
		t.Fatal(err)
	}
	fsck(t, m, r)
	gittest.Git(t, dir, nil, "fsck", "--full", "--strict")
	if n := len(strings.Fields(gittest.Git(t, dir, nil, "rev-list", "main"))); n != len(steps)+1 {
		t.Errorf("%d commits", n)
	}
}

func TestCommitFilesRefuses(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "x.git")
	if err := CreateRepository(dir); err != nil {
		t.Fatal(err)
	}
	if err := CreateRepository(dir); err == nil {
		t.Error("a repository was made over another")
	}
	for _, path := range []string{"", "/abs", "../x", "a/../b", ".git/config", "a//b", "a/", "nul", "\x1b"} {
		if _, err := CommitFiles(dir, "main", "m", map[string][]byte{path: nil}, time.Now()); err == nil {
			t.Errorf("%q was committed", path)
		}
	}
	if _, err := CommitFiles(dir, "../main", "m", nil, time.Now()); err == nil {
		t.Error("a branch outside was made")
	}
	if _, err := CommitFiles(t.TempDir(), "main", "m", nil, time.Now()); err == nil {
		t.Error("committed into nothing")
	}
}

func TestLocalRefuses(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	allowed, outside := filepath.Join(top, "allowed"), filepath.Join(top, "outside")
	for _, d := range []string{allowed, outside} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := sample(filepath.Join(d, "x.git"), time.Now(),
			sampleCommit{message: "m", files: map[string][]byte{"a": []byte("1")}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(allowed, "link")); err != nil {
		t.Fatal(err)
	}
	if err := CreateRepository(filepath.Join(allowed, "empty.git")); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"worktree/.git": "x.git", "parts.git/objects": "x.git/objects", "parts.git/refs": "x.git/refs"} {
		link = filepath.Join(allowed, link)
		if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(filepath.Join(outside, to), link)); err != nil {
			t.Fatal(err)
		}
	}
	m := openMirrors(t, Options{AllowLocal: []string{allowed}})
	for path, kind := range map[string]Kind{
		filepath.Join(allowed, "x.git"): "", filepath.Join(outside, "x.git"): Refused, filepath.Join(allowed, "link/x.git"): Refused,
		allowed + "/../outside/x.git": Refused, filepath.Join(allowed, "none.git"): NotFound, filepath.Join(allowed, "empty.git"): Empty,
		filepath.Join(allowed, "worktree"): Refused, filepath.Join(allowed, "parts.git"): Refused,
		"/":                     Refused,
		allowed + "-else/x.git": Refused,
	} {
		_, err := m.Resolve(t.Context(), Remote{URL: path}, gitref.Branch(""))
		if kind == "" && err != nil || kind != "" && KindOf(err) != kind {
			t.Errorf("%s: %v, want kind %q", path, err, kind)
		}
	}
	_, err := openMirrors(t, Options{}).Resolve(t.Context(), Remote{URL: filepath.Join(allowed, "x.git")}, gitref.Branch(""))
	gittest.ErrorIs(t, err, Refused, "local paths", "--local-git-prefix")
	r := Remote{URL: filepath.Join(allowed, "x.git")}
	_, err = m.Fetch(t.Context(), r, Ref{Name: "refs/heads/main", Hash: strings.Repeat("ab", 20)})
	gittest.ErrorIs(t, err, Moved)
}

// The .git of a worktree can be read as well, with packs and loose objects.
func TestLocalWorktree(t *testing.T) {
	t.Parallel()
	o := gittest.NewOrigin(t, t.TempDir(), "x.git")
	o.Commit("one", map[string]string{"a.json": gittest.Dashboard("a", 1, 30)})
	o.Git("gc", "-q")
	id := o.Commit("two", map[string]string{"a.json": gittest.Dashboard("a", 2, 30)})
	work := t.TempDir()
	gittest.Git(t, work, nil, "clone", "-q", o.Bare, ".")
	m := openMirrors(t, Options{AllowLocal: []string{work}})
	r := Remote{URL: work}
	ref, _ := syncRef(t, m, r, "")
	if got := content(t, m, r, ref.Hash, ""); ref.Hash != id || got["a.json"] != gittest.Dashboard("a", 2, 30) {
		t.Fatal("content differs")
	}
	fsck(t, m, r)
}
