package worker

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"limpet/sync/api"
	"limpet/sync/git"
)

func TestWhatWantsALookAtEverything(t *testing.T) {
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
		{"a .keep that moves", []git.Change{{Type: git.ChangeRenamed, From: "a/.keep", Path: "b/.keep"}}, 0, `directory "/a/" lost the file that stands for it`},
		{"a .keep that changes or comes", []git.Change{{Type: git.ChangeModified, Path: "a/.keep"}, {Type: git.ChangeAdded, Path: "b/.keep"}}, 0, ""},
	} {
		if got := wantsAll(c.diff, c.most); got != c.want {
			t.Errorf("%s: %q, want %q", c.rule, got, c.want)
		}
	}
}

// TestPolicy: a pull that was asked for changes and has looked at everything says
// so.
func TestPolicy(t *testing.T) {
	t.Parallel()
	r := newRig(t, "embedded", func(o *PullOptions) { o.MaxIncremental = 2 })
	r.repository(nil, nil)
	r.commit("a.json", board("a", "A"), "d/.keep", "x", "e/_folder.json", `{"kind":"Folder","metadata":{"name":"e"},"spec":{"title":"E"}}`)
	r.pull(true, nil)
	for _, c := range []struct {
		name        string
		change      func()
		incremental bool
	}{
		{"two changes", func() { r.commit("b.json", board("b", "B"), "c.json", board("c", "C")) }, true},
		{"three changes", func() {
			r.commit("b.json", board("b", "B2"), "c.json", board("c", "C2"), "f.json", board("f", "F"))
		}, false},
		{"a file is gone", func() { r.commit("f.json", "") }, true},
		{"a directory is gone with its .keep", func() { r.commit("d/.keep", "") }, false},
		{"and one with its _folder.json", func() { r.commit("e/_folder.json", "") }, false},
		{"a file moves", func() { r.commit("c.json", "", "g/c.json", board("c", "C2")) }, true},
		{"the commit of before is of another history", func() {
			r.state(`{"status":{"sync":{"lastRef":"0123456789012345678901234567890123456789"}}}`)
			r.commit("b.json", board("b", "B3"))
		}, false},
		{"and after that", func() { r.commit("b.json", board("b", "B4")) }, true},
	} {
		c.change()
		record, status := r.pull(true, nil)
		sync, _ := r.sync()
		if record.State != api.StateSuccess || sync.Incremental != c.incremental || sync.LastRef != r.repo.Head(t) {
			t.Errorf("%s: %s, incremental %t, want %t: %+v", c.name, record.State, sync.Incremental, c.incremental, status)
		}
	}
	for _, folder := range []string{"e", folderID("d/")} {
		if r.object(folders, folder) != nil {
			t.Errorf("folder %s is still there", folder)
		}
	}
}

// state has somebody else change the status of the Repository.
func (r *rig) state(patch string) {
	r.t.Helper()
	if _, err := r.client.Resource(api.Repositories).Namespace(r.namespace).Patch(r.t.Context(), "repo", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		r.t.Fatal(err)
	}
}
