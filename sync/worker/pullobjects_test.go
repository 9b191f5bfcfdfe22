package worker

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/git"
	"limpet/sync/resources"
)

func TestFullPullReason(t *testing.T) {
	t.Parallel()
	gone := func(paths ...string) (out []git.Change) {
		for _, p := range paths {
			out = append(out, git.Change{Type: git.ChangeDeleted, Path: p})
		}
		return out
	}
	many := make([]git.Change, 1001)
	for i := range many {
		many[i] = git.Change{Type: git.ChangeAdded, Path: fmt.Sprintf("%d.json", i)}
	}
	for _, c := range []struct {
		rule string
		diff []git.Change
		most int
		want string
	}{
		{"as many as allowed", many[:1000], 1000, ""},
		{"more than allowed", many, 1000, "1001 changes are more than 1000"},
		{"no limit", many, 0, ""},
		{"files are gone", gone("a/x.json", "a/y.json"), 0, ""},
		{"a directory lost only its .keep", gone("b/x.json", "a/.keep"), 0, `directory "/a/" lost the file that stands for it`},
		{"a directory lost only its _folder.json", gone("a/_folder.json"), 0, `directory "/a/" lost the file that stands for it`},
		{"it lost both, and nothing else", gone("a/.keep", "a/_folder.json"), 0, `directory "/a/" lost the file that stands for it`},
		{"with another deletion in that directory", gone("a/.keep", "a/x.json"), 0, ""},
		{"with another deletion below that directory", gone("a/.keep", "a/b/x.json"), 0, `directory "/a/" lost the file that stands for it`},
		{"the .keep of the root", gone(".keep"), 0, `directory "/" lost the file that stands for it`},
		{"a .keep that moves", []git.Change{{Type: git.ChangeRenamed, From: "a/.keep", Path: "b/.keep"}}, 0,
			`directory "/a/" lost the file that stands for it`},
		{"a .keep that changes or comes", []git.Change{{Type: git.ChangeModified, Path: "a/.keep"}, {Type: git.ChangeAdded, Path: "b/.keep"}}, 0,
			""},
	} {
		if got := fullPullReason(c.diff, c.most, nil); got != c.want {
			t.Errorf("%s: %q, want %q", c.rule, got, c.want)
		}
	}
}

// state has somebody else change the status of the Repository.
func (r *rig) state(patch string) { r.change(patch, "status") }

// change changes the Repository by a merge patch, or a subresource of it.
func (r *rig) change(patch string, subresource ...string) {
	r.t.Helper()
	changed, err := r.client.Resource(api.Repositories).Namespace(r.namespace).Patch(r.t.Context(), "repo", types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{}, subresource...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.seen(changed)
}

// TestPullFromGitLFS: a dashboard that Git LFS keeps is applied, its pointer never is.
func TestPullFromGitLFS(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repository(nil, nil)
	one := r.git.KeepLFS(board("one", "1"))
	r.commit(".gitattributes", "*.json filter=lfs diff=lfs merge=lfs -text\n", "a/one.json", one, "a/two.json", r.git.KeepLFS(board("two", "2")), "a/three.json", board("three", "3"))
	r.expect("first", true, "success", "", "POST folders/repo", "POST folders/"+folderID("a"), "POST dashboards/one", "POST dashboards/two",
		"POST dashboards/three")
	if c := r.git.Reset(); c.LFSBatches != 1 || c.LFSGets != 2 {
		t.Errorf("git requests %+v", c)
	}
	r.expect("same commit, full", false, "success", "no changes to sync")
	r.commit("a/three.json", "", "b/one.json", one, "a/one.json", "") // moved, with what it stands for
	r.expect("moved", true, "success", "", "POST folders/"+folderID("b"), "PUT dashboards/one", "DELETE dashboards/three")
	if c := r.git.Reset(); c.LFSGets != 0 {
		t.Errorf("what is in the cache is fetched: %+v", c)
	}
	lost := r.git.KeepLFS(board("two", "lost"))
	r.git.LoseLFS()
	r.commit("a/two.json", lost, "b/four.json", board("four", "4"), "b/five.json",
		"version https://git-lfs.github.com/spec/v1\noid sha256:x\nsize 5\n",
		"b/six.json", strings.Replace(r.git.KeepLFS(strings.Repeat("x", 10)), "size 10\n", "size 99999999\n", 1))
	status := r.expect("lost", true, "error", "", "POST dashboards/four")
	has(t, status.Errors, "two.json", "git lfs push")
	has(t, status.Warnings, "five.json", "not JSON")
	has(t, status.Warnings, "six.json", "99999999")
	if c := r.git.Reset(); c.LFSBatches != 1 {
		t.Errorf("git requests %+v", c)
	}
}

func TestPullWithoutGitLFS(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", nil)
	r.repository(nil, map[string]string{api.AnnoGitLFS: "false"})
	r.commit(".gitattributes", "one.json filter=lfs\n", "one.json", r.git.KeepLFS(board("one", "1")), "two.json", board("two", "2"))
	status := r.expect("off", true, "warning", "", "POST folders/repo", "POST dashboards/two")
	has(t, status.Warnings, "one.json", api.AnnoGitLFS)
	if c := r.git.Reset(); c.LFSBatches+c.LFSGets != 0 {
		t.Errorf("git requests %+v", c)
	}
}

func TestGitLFSIntoADirectory(t *testing.T) {
	t.Parallel()
	prefix := t.TempDir()
	dir := filepath.Join(prefix, "dashboards")
	r := newRig(t, "embedded", func(o *PullOptions) { o.SinkPrefixes = []string{prefix} })
	r.repository(nil, map[string]string{api.AnnoSinkDir: dir})
	tree := map[string]string{"cpu.json": board("cpu", "CPU"), "logo.png": strings.Repeat("\x89PNG\x00", resources.MaxFile/4),
		"plain.txt": "plain\n"}
	tree["like.txt"] = r.git.KeepLFS("a text that looks like a pointer stays one")
	r.commit(".gitattributes", "*.json filter=lfs\nlogo.png filter=lfs\nbroken.txt filter=lfs\n", "cpu.json", r.git.KeepLFS(tree["cpu.json"]),
		"logo.png", r.git.KeepLFS(tree["logo.png"]), "plain.txt", tree["plain.txt"], "like.txt", tree["like.txt"])
	check := func(name string) {
		t.Helper()
		if got := files(t, dir); !maps.Equal(got, tree) {
			for p, text := range got {
				t.Errorf("%s: %s has %d bytes, want %d: %.100q", name, p, len(text), len(tree[p]), text)
			}
		}
	}
	if got := counts(r.expect("first", false, "success", "")); got != "File create 4" {
		t.Errorf("summary %q", got)
	}
	check("first")
	if c := r.git.Reset(); c.LFSBatches != 1 || c.LFSGets != 2 {
		t.Errorf("git requests %+v", c)
	}
	r.expect("same commit, full", false, "success", "no changes to sync")
	if c := r.git.Reset(); c.LFSBatches != 0 {
		t.Errorf("git requests %+v", c)
	}
	// A file of the same size that somebody has changed comes back.
	if err := os.WriteFile(filepath.Join(dir, "cpu.json"), []byte(strings.Repeat("x", len(tree["cpu.json"]))), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := counts(r.expect("drift", false, "success", "")); got != "File update 1" {
		t.Errorf("summary %q", got)
	}
	check("drift")
	// What cannot be had stays as it was, and the rest is written; a new file has nothing that could
	// stay.
	lost, lostNew := r.git.KeepLFS(board("cpu", "lost")), r.git.KeepLFS(board("new", "lost"))
	r.git.LoseLFS()
	r.commit("cpu.json", lost, "plain.txt", "changed\n")
	tree["plain.txt"] = "changed\n"
	has(t, r.expect("lost", false, "warning", "").Warnings, "cpu.json", "not found")
	check("lost")
	r.commit("new.json", lostNew, "plain.txt", "again\n")
	r.expect("new and lost", false, "error", "new.json")
	check("new and lost")
	tree["cpu.json"], tree["plain.txt"] = board("cpu", "lost"), "again\n" // it was pushed meanwhile
	tree["new.json"] = board("new", "lost")
	tree["broken.txt"] = "version https://git-lfs.github.com/spec/v1\noid sha256:x\nsize 5\n" // git-lfs takes it for a text
	r.git.KeepLFS(tree["cpu.json"])
	r.git.KeepLFS(tree["new.json"])
	r.commit("broken.txt", tree["broken.txt"])
	r.expect("found", false, "success", "")
	check("found")
}

// limited holds a number of objects.
type limited struct{ most int }

func (l *limited) SpaceFor(ctx context.Context, n int, sample func(context.Context) ([][]byte, error)) error {
	objects, err := sample(ctx)
	if err == nil && (len(objects) == 0) != (n == 0) {
		err = fmt.Errorf("%d of %d files in the sample", len(objects), n)
	}
	if err == nil && n > l.most {
		err = &state.SpaceError{Objects: n, Most: 1 << 20}
	}
	return err
}

// TestPullWithoutSpace: objects that do not fit are refused before anything is written. Those that
// are there already need none.
func TestPullWithoutSpace(t *testing.T) {
	t.Parallel()
	host := &limited{most: 1}
	r := newRig(t, "embedded", func(o *PullOptions) { o.Space = host })
	r.repository(nil, nil)
	r.commit("one.json", board("one", "1"), "two.json", board("two", "2"))
	status := r.expect("too many", true, "error", "")
	has(t, status.Errors, "2 new objects", "--state-max-size", "nothing was changed")
	host.most = 2
	r.expect("enough", true, "success", "", "POST folders/repo", "POST dashboards/one", "POST dashboards/two")
	host.most = 0
	r.commit("one.json", board("one", "changed"), "two.json", "")
	r.expect("no new ones", true, "success", "", "PUT dashboards/one", "DELETE dashboards/two")
}
