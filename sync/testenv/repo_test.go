package testenv

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestRepoIsRealShapedAndTheSameEachTime(t *testing.T) {
	r := Repo(t, 300, 120)
	if again := Repo(t, 300, 120); again.Head(t) != r.Head(t) {
		t.Fatalf("two runs gave %s and %s", r.Head(t), again.Head(t))
	}
	if n := r.Git(t, "rev-list", "--count", Branch); n != "300" {
		t.Fatalf("%s commits", n)
	}
	if len(r.Dashboards()) != 120 || len(r.Folders()) < 20 {
		t.Fatalf("%d dashboards in %d folders", len(r.Dashboards()), len(r.Folders()))
	}
	uids, objects := map[string]bool{}, 0
	for _, d := range r.Dashboards() {
		data := r.files[d.Path]
		if len(data) < 4_000 || len(data) > 80_000 {
			t.Errorf("%s has %d bytes", d.Path, len(data))
		}
		var file struct {
			UID      string
			Panels   []any
			Metadata struct{ Name string }
		}
		if err := json.Unmarshal(data, &file); err != nil {
			t.Fatal(err)
		}
		uid := file.UID
		if d.k8s {
			objects++
			uid = file.Metadata.Name
		}
		if uid != d.UID || uids[uid] {
			t.Errorf("%s has uid %q, want a unique %q", d.Path, uid, d.UID)
		}
		uids[uid] = true
	}
	if objects != 12 {
		t.Errorf("%d dashboards in the form of API objects, want 12", objects)
	}
	checkTree(t, r)
}

func TestRepoFollowsItsChanges(t *testing.T) {
	r := Repo(t, 20, 12)
	path := r.Dashboards()[3].Path
	before := r.files[path]
	r.Edit(t, path)
	if bytes.Equal(before, r.files[path]) {
		t.Error("an edit changed nothing")
	}
	checkTree(t, r)
	moved := Directory + "/moved/to here.json"
	r.Rename(t, path, moved)
	checkTree(t, r)
	if diff := r.Git(t, "diff-tree", "-r", "-M", "--name-status", "HEAD~1", "HEAD"); !strings.HasPrefix(diff, "R100\t") {
		t.Errorf("a rename shows as %q", diff)
	}
	added := r.Add(t, Directory+"/new/board.json")
	r.Delete(t, added.Path, moved)
	checkTree(t, r)
	lost := r.Head(t)
	r.ForcePush(t, 2, Change{Path: "after.txt", Data: []byte("x")})
	checkTree(t, r)
	if _, ok := r.files[moved]; !ok {
		t.Error("a force push did not bring the dropped deletion back")
	}
	if base := r.Git(t, "merge-base", lost, Branch); base == lost {
		t.Error("the old head is still in the history")
	}
	r.Commit(t, "odd names", Change{Path: Directory + `/a "b" ü.json`, Data: []byte("{}")}, Change{Path: "empty", Data: []byte{}})
	checkTree(t, r)
}

// checkTree holds the model against what git has.
func checkTree(t *testing.T, r *Repository) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("sh", "-c", `git archive "$1" | tar -x -C "$2"`, "sh", Branch, dir)
	cmd.Dir = r.Dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git archive: %v\n%s", err, out)
	}
	n := 0
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		n++
		rel, _ := filepath.Rel(dir, path)
		data, err := os.ReadFile(path)
		if want, ok := r.files[filepath.ToSlash(rel)]; !ok || !bytes.Equal(data, want) {
			t.Errorf("%s differs from the model", rel)
		}
		return err
	})
	if err != nil || n != len(r.files) {
		t.Fatalf("git has %d files, the model %d: %v", n, len(r.files), err)
	}
}
