package push_test

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/sync/git"
	"limpet/sync/git/gitref"
	"limpet/sync/git/pack"
	"limpet/sync/testenv/gittest"
	"limpet/sync/testenv/mirrortest"
)

// directory is a directory of plain files and the mirrors that may read it.
type directory struct {
	*testing.T
	dir    string
	m      *git.Mirrors
	remote git.Remote
}

func newDirectory(t *testing.T, files map[string]string) *directory {
	t.Helper()
	base := t.TempDir()
	d := &directory{T: t, dir: filepath.Join(base, "the boards"), m: mirrortest.Open(t, git.Options{AllowDirs: []string{base}})}
	d.remote = git.Remote{URL: "dir://" + strings.ReplaceAll(d.dir, " ", "%20")}
	for name, text := range files {
		d.write(name, text)
	}
	return d
}

func (d *directory) write(name, text string) {
	d.Helper()
	path := filepath.Join(d.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		d.Fatal(err)
	}
	// Older than the granularity of any clock, so that its content is not read again.
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(-time.Minute)); err != nil {
		d.Fatal(err)
	}
}

func (d *directory) sync() git.Ref {
	d.Helper()
	ref, _ := mirrortest.Sync(d.T, d.m, d.remote, "main")
	mirrortest.Fsck(d.T, d.m, d.remote)
	return ref
}

// files returns what is on disk: paths and contents, of directories with a slash.
func (d *directory) files() map[string]string {
	d.Helper()
	out := map[string]string{}
	if err := filepath.WalkDir(d.dir, func(path string, e fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(d.dir, path)
		switch {
		case err != nil || rel == ".":
			return err
		case e.Type()&fs.ModeSymlink != 0:
			out[rel], err = os.Readlink(path)
			return err
		case e.IsDir():
			out[rel+"/"] = ""
			return nil
		}
		data, err := os.ReadFile(path)
		out[rel] = string(data)
		return err
	}); err != nil {
		d.Fatal(err)
	}
	return out
}

// TestReadDirectory: the same files give the same commit, a change sends only what changed, and
// links, .git and temporary files are never read.
func TestReadDirectory(t *testing.T) {
	t.Parallel()
	d := newDirectory(t, map[string]string{"a.json": "1", "b/c.json": strings.Repeat("2", 100_000), ".git/HEAD": "x",
		".limpet-ABC-12.tmp": "half", "b/tool.sh": "#!/bin/sh\n"})
	if err := errors.Join(os.Symlink("/etc", filepath.Join(d.dir, "out")), os.Mkdir(filepath.Join(d.dir, "empty"), 0o755),
		os.Chmod(filepath.Join(d.dir, "b/tool.sh"), 0o755)); err != nil {
		t.Fatal(err)
	}
	first := d.sync()
	tree, err := d.m.Tree(t.Context(), d.remote, first.Hash, "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range tree.Files {
		got = append(got, f.Mode+" "+f.Path)
	}
	if want := []string{"100644 a.json", "100644 b/c.json", "100755 b/tool.sh"}; !slices.Equal(got, want) || len(tree.Refused) != 1 ||
		tree.Refused[0].Path != "out" {
		t.Errorf("files %q, refused %+v", got, tree.Refused)
	}
	d.write("a.json", "1") // with another time
	if again := d.sync(); again.Hash != first.Hash {
		t.Error("the same files give another commit")
	}
	d.write("a.json", "3")
	second, stats := mirrortest.Sync(t, d.m, d.remote, "main")
	if second.Hash == first.Hash || stats.Objects != 3 {
		t.Errorf("%d objects for one file", stats.Objects)
	}
	changes, err := d.m.Changes(t.Context(), d.remote, first.Hash, second.Hash, "")
	if err != nil || len(changes.Files) != 1 || changes.Files[0].Path != "a.json" || changes.Files[0].Type != git.ChangeModified {
		t.Errorf("%+v, %v", changes, err)
	}
}

// TestReadDirectoryRefuses: what is outside, leads outside, is not there, is empty or too large.
func TestReadDirectoryRefuses(t *testing.T) {
	t.Parallel()
	d := newDirectory(t, map[string]string{"in/a.json": strings.Repeat("1", 2000)})
	outside := t.TempDir()
	if err := errors.Join(os.Symlink(outside, filepath.Join(d.dir, "out")), os.Mkdir(filepath.Join(d.dir, "empty"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]git.Kind{outside: git.Refused, d.dir + "/out": git.Refused, d.dir + "/absent": git.NotFound,
		d.dir + "/in/a.json": git.NotFound, d.dir + "/empty": git.Empty, d.dir + "-other": git.NotFound, "/": git.Refused} {
		_, err := d.m.Resolve(t.Context(), git.Remote{URL: "dir://" + strings.ReplaceAll(path, " ", "%20")}, gitref.Selector{})
		gittest.ErrorIs(t, err, kind)
	}
	small := d.remote
	small.Limits = pack.Limits{ObjectBytes: 1000}
	_, err := d.m.Resolve(t.Context(), small, gitref.Selector{})
	gittest.ErrorIs(t, err, git.TooLarge, "in/a.json")
	_, err = mirrortest.Open(t, git.Options{}).Resolve(t.Context(), d.remote, gitref.Selector{})
	gittest.ErrorIs(t, err, git.Refused, "--local-prefix")
}

// TestWriteDirectory: edits end in the files, twice as well as once, and only while these are what
// they were.
func TestWriteDirectory(t *testing.T) {
	t.Parallel()
	before := map[string]string{"a.json": "1", "b/c.json": "2", "b/d.json": "3", "e/f/g.json": "4", "h.json": "5", ".git/HEAD": "x"}
	d := newDirectory(t, before)
	if err := errors.Join(os.Chmod(filepath.Join(d.dir, "h.json"), 0o640), os.Symlink("nowhere", filepath.Join(d.dir, "e/link"))); err != nil {
		t.Fatal(err)
	}
	base := d.sync()
	made, err := d.m.Compose(t.Context(), d.remote, base.Hash, []git.Edit{
		{Path: "new/x.json", Blob: git.NewBlob([]byte("6"))}, {Path: "h.json", Blob: git.NewBlob([]byte("7"))},
		{Path: "b/c.json"}, {Path: "b/d.json"},
		{Path: "e/", To: "moved/deep/"}, {Path: "a.json", To: "old.json"}, {Path: "a.json", Blob: git.NewBlob([]byte("8"))},
	})
	if err != nil || errors.Join(made.Outcomes...) != nil {
		t.Fatal(err, made.Outcomes)
	}
	commit := made.Directory()
	old, err := os.Stat(filepath.Join(d.dir, "e/f"))
	for range 2 {
		if err := d.m.Push(t.Context(), d.remote, base.Name, base.Hash, commit); err != nil {
			t.Fatal(err)
		}
	}
	if moved, merr := os.Stat(filepath.Join(d.dir, "moved/deep/f")); err != nil || merr != nil || !os.SameFile(old, moved) {
		t.Errorf("a directory is not moved as a whole: %v, %v", err, merr)
	}
	info, err := os.Stat(filepath.Join(d.dir, "h.json"))
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	after := map[string]string{"a.json": "8", "old.json": "1",
		"moved/deep/link": "nowhere", "moved/": "", "moved/deep/": "", "moved/deep/f/": "", "moved/deep/f/g.json": "4",
		"h.json": "7", "new/": "", "new/x.json": "6", ".git/": "", ".git/HEAD": "x"}
	if got := d.files(); !maps.Equal(got, after) {
		t.Errorf("%v", got)
	}
	tip := d.sync()
	if there, err := d.m.Contains(t.Context(), d.remote, tip, commit.Hash); err != nil || !there || tip.Hash != commit.Hash {
		t.Errorf("the directory is at %s, not at %s: %v", tip.Hash, commit.Hash, err)
	}
	if made, err = d.m.Compose(t.Context(), d.remote, tip.Hash, []git.Edit{{Path: "h.json"}}); err != nil {
		t.Fatal(err)
	}
	d.write("h.json", "somebody else")
	err = d.m.Push(t.Context(), d.remote, tip.Name, tip.Hash, made.Directory())
	gittest.ErrorIs(t, err, git.Overtaken)
	if d.files()["h.json"] != "somebody else" {
		t.Error("the change of somebody else is lost")
	}
}
