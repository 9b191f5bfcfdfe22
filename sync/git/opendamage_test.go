package git

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"limpet/sync/git/gittest"
)

// A pack that builds on objects which the open mirror cannot read any more is no
// fault of the server: the mirror is made anew.
func TestThinPackOnDamagedMirror(t *testing.T) {
	for name, harm := range map[string]func(file string) error{
		"empty":   func(file string) error { return os.Truncate(file, 0) },
		"cut off": func(file string) error { return os.Truncate(file, 200) },
	} {
		t.Run(name, func(t *testing.T) {
			_, o, m, r, _, files := site(t, Options{})
			files["large.json"] = gittest.Dashboard("large", 1, 60)
			o.Commit("large", files)
			syncRef(t, m, r, "")
			old := gittest.Glob(t, mirrorDir(t, m, r), "objects/pack/*.pack")
			files["other.json"] = gittest.Dashboard("other", 1, 1)
			o.Commit("its commit is in a pack that stays sound", files)
			open, _ := syncRef(t, m, r, "")
			if _, err := m.Commit(t.Context(), r, open.Hash); err != nil { // opens the mirror
				t.Fatal(err)
			}
			for _, file := range old {
				os.Chmod(file, 0o600)
				if err := harm(file); err != nil {
					t.Fatal(err)
				}
			}
			files["large.json"] = gittest.Dashboard("large", 2, 60)
			next := o.Commit("a small change", files)
			ref, st := syncRef(t, m, r, "")
			if ref.Hash != next || !st.Rebuilt {
				t.Errorf("%s instead of %s, %+v", ref.Hash, next, st)
			}
			if got := content(t, m, r, ref.Hash, ""); !maps.Equal(got, files) {
				t.Error("content differs")
			}
			fsck(t, m, r)
		})
	}
}

// What is deleted from under a running agent is made again.
func TestMirrorDeletedWhileOpen(t *testing.T) {
	for name, gone := range map[string]func(t *testing.T, m *Mirrors, r Remote) string{
		"its objects": func(t *testing.T, m *Mirrors, r Remote) string { return filepath.Join(mirrorDir(t, m, r), "objects") },
		"the mirror":  mirrorDirOf,
		"all mirrors": func(_ *testing.T, m *Mirrors, _ Remote) string { return m.dir },
	} {
		t.Run(name, func(t *testing.T) {
			_, o, m, r, ref, files := site(t, Options{})
			if _, err := m.Commit(t.Context(), r, ref.Hash); err != nil { // opens the mirror
				t.Fatal(err)
			}
			if err := os.RemoveAll(gone(t, m, r)); err != nil {
				t.Fatal(err)
			}
			files["new.json"] = gittest.Dashboard("new", 1, 1)
			o.Commit("new", files)
			ref, st := syncRef(t, m, r, "")
			if !st.Rebuilt && !st.Full {
				t.Errorf("%+v", st)
			}
			if got := content(t, m, r, ref.Hash, ""); !maps.Equal(got, files) {
				t.Error("content differs")
			}
			fsck(t, m, r)
		})
	}
}

func mirrorDirOf(t *testing.T, m *Mirrors, r Remote) string { return mirrorDir(t, m, r) }
