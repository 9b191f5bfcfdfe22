package resources

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// lines writes a plan down: one line a change, in the order of the work.
func lines(p *Plan) []string {
	var out []string
	for _, step := range []struct {
		name string
		list []Change
	}{{"skip", p.Skipped}, {"delete", p.DeleteFiles}, {"drop", p.DeleteFolders}, {"folder", p.WriteFolders}, {"write", p.WriteFiles},
		{"late", p.LateFolders}} {
		for _, c := range step.list {
			line := fmt.Sprintf("%s %s %s", step.name, c.Action, c.Path)
			if c.From != "" {
				line += " from " + c.From
			}
			if step.name == "folder" {
				line += fmt.Sprintf(" = %s %q in %q", c.Folder.ID, c.Folder.Title, c.Folder.Parent)
			}
			if c.Existing != nil && (step.name == "drop" || step.name == "late" || step.name == "delete") {
				line += " = " + c.Existing.Name
			}
			for _, r := range c.Replaces {
				line += " replaces " + r.Name
			}
			out = append(out, line)
		}
	}
	return out
}

func board(name, path, hash, folder string) Item {
	return Item{Group: "dashboard.grafana.app", Kind: "Dashboard", Resource: "dashboards", Name: name, Path: path, Hash: hash, Folder: folder, UID: "u",
		ResourceVersion: "1"}
}

func dir(name, path, hash, folder, title string) Item {
	return Item{Group: "folder.grafana.app", Kind: "Folder", Resource: "folders", Name: name, Path: path, Hash: hash, Folder: folder, Title: title, UID: "u",
		ResourceVersion: "1"}
}

// TestFullPlan goes through the rules of comparison, one by one.
func TestFullPlan(t *testing.T) {
	t.Parallel()
	bare := Target{Repository: "repo", Kinds: kinds}
	a := id("a")
	for _, c := range []struct {
		name   string
		target Target
		files  []string // path=hash
		dirs   []string
		live   []Item
		metas  map[string]FolderMeta
		want   []string
	}{
		{name: "nothing anywhere", target: bare},
		{name: "the root folder alone", target: folderTarget, want: []string{`folder created  = repo "Dashboards" in ""`}},
		{name: "the root folder has another title", target: folderTarget, live: []Item{dir("repo", "", "", "", "Old")},
			want: []string{`folder updated  = repo "Dashboards" in ""`}},
		{name: "first file", target: bare, files: []string{"a/x.json=1"},
			want: []string{`folder created a/ = ` + a + ` "a" in ""`, "write created a/x.json"}},
		{name: "the same", target: bare, files: []string{"a/x.json=1"}, live: []Item{dir(a, "a/", "", "", "a"), board("x", "a/x.json", "1", a)}},
		{name: "the same, as other servers write it", target: bare, files: []string{"x.json=1", "a/y.json=1"},
			live: []Item{board("x", "x.json", "1", "general"), dir(a, "a", "", "general", "a"), board("y", "a/y.json", "1", a)}},
		{name: "another hash", target: bare, files: []string{"x.json=2"}, live: []Item{board("x", "x.json", "1", "")},
			want: []string{"write updated x.json"}},
		{name: "another folder", target: bare, files: []string{"x.json=1"}, live: []Item{board("x", "x.json", "1", "drifted")},
			want: []string{"write updated x.json"}},
		{name: "gone", target: bare, live: []Item{dir(a, "a/", "", "", "a"), board("x", "a/x.json", "1", a)},
			want: []string{"delete deleted a/x.json = x", "drop deleted a/ = " + a}},
		{name: "a folder stays while anything lies below", target: bare, files: []string{"a/README.md=1"},
			live: []Item{dir(a, "a/", "", "", "a")}},
		{name: "a directory of other files has a folder", target: bare, files: []string{"a/README.md=1"},
			want: []string{`folder created a/ = ` + a + ` "a" in ""`}},
		{name: "an empty directory with a marker has one", target: bare, files: []string{"a/.keep=1"}, dirs: []string{"a"},
			want: []string{`folder created a/ = ` + a + ` "a" in ""`}},
		{name: "hidden directories have none", target: bare, files: []string{".github/x.json=1", "a/.git/y.json=1"},
			want: []string{`folder created a/ = ` + a + ` "a" in ""`}},
		{name: "names that are not allowed are told", target: bare, files: []string{"ü.json=1", "ü.txt=1"},
			want: []string{"skip ignored ü.json"}},
		{name: "an object that names no file is left alone", target: bare, live: []Item{board("x", "", "1", "")},
			want: []string{"skip ignored x"}},
		{name: "the folder that the server has is preferred", target: bare, files: []string{"a/x.json=1"},
			live: []Item{dir("by-hand", "a/", "", "", "a")},
			want: []string{"write created a/x.json"}},
		{name: "a folder file that the server knows is not read", target: bare, files: []string{"a/_folder.json=7"},
			live: []Item{dir("uid", "a/", "7", "", "Title")}},
		{name: "a folder file", target: bare, files: []string{"a/_folder.json=7", "a/b/x.json=1"},
			metas: map[string]FolderMeta{"a/": {UID: "uid", Title: "T", Hash: "7"}},
			want: []string{`folder created a/ = uid "T" in ""`, `folder created a/b/ = ` + id("a/b") + ` "b" in "uid"`,
				"write created a/b/x.json"}},
		{name: "a folder file without a title", target: bare, files: []string{"a/_folder.json=7"},
			metas: map[string]FolderMeta{"a/": {UID: "uid", Hash: "7"}},
			want:  []string{`folder created a/ = uid "a" in ""`}},
		{name: "a broken folder file keeps what there is", target: bare, files: []string{"a/_folder.json=8"},
			live:  []Item{dir("uid", "a/", "7", "", "T")},
			metas: map[string]FolderMeta{"a/": {Hash: "8", Err: &FolderFileError{Path: "a/_folder.json"}}},
			want:  []string{"skip ignored a/_folder.json"}},
		{name: "two folder files with one uid", target: bare, files: []string{"a/_folder.json=7", "b/_folder.json=8"},
			metas: map[string]FolderMeta{"a/": {UID: "uid", Hash: "7"}, "b/": {UID: "uid", Hash: "8"}},
			want:  []string{"skip ignored b/", `folder created a/ = uid "a" in ""`, `folder created b/ = ` + id("b") + ` "b" in ""`}},
		{name: "a folder file with the uid of the root", target: folderTarget, files: []string{"a/_folder.json=7"},
			live:  []Item{dir("repo", "", "", "", "Dashboards")},
			metas: map[string]FolderMeta{"a/": {UID: "repo", Hash: "7"}},
			want:  []string{"skip ignored a/", `folder created a/ = ` + a + ` "a" in "repo"`}},
		{name: "a directory moves with its uid", target: bare, files: []string{"b/_folder.json=7"}, live: []Item{dir("uid", "a/", "7", "", "T")},
			metas: map[string]FolderMeta{"b/": {UID: "uid", Title: "T", Hash: "7"}}, want: []string{`folder renamed b/ from a/ = uid "T" in ""`}},
		{name: "another uid", target: bare, files: []string{"a/_folder.json=8", "a/x.json=1"},
			live:  []Item{dir("old", "a/", "7", "", "T"), board("x", "a/x.json", "1", "old")},
			metas: map[string]FolderMeta{"a/": {UID: "new", Title: "T", Hash: "8"}},
			want:  []string{`folder created a/ = new "T" in ""`, "write updated a/x.json", "late deleted a/ = old"}},
		{name: "two objects of one file, one of them right", target: bare, files: []string{"x.json=2"},
			live: []Item{board("a", "x.json", "1", ""), board("b", "x.json", "2", "")},
			want: []string{"write updated x.json replaces a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tree := Tree{Dirs: c.dirs}
			for _, f := range c.files {
				path, hash, _ := strings.Cut(f, "=")
				tree.Files = append(tree.Files, TreeFile{Path: path, Hash: hash})
			}
			p := Full(c.target, tree, c.live, c.metas)
			if got := lines(p); !slices.Equal(got, c.want) {
				t.Errorf("plan\n got %q\nwant %q", got, c.want)
			}
			if p.Empty() != (len(c.want) == 0) || p.Len() != len(c.want) {
				t.Errorf("%d changes", p.Len())
			}
		})
	}
}

// TestSettle: an object that another file names now moves there.
func TestSettle(t *testing.T) {
	t.Parallel()
	a := id("a")
	live := []Item{dir(a, "a/", "", "", "a"), board("x", "a/x.json", "1", a), board("y", "y.json", "1", "")}
	tree := Tree{Files: []TreeFile{{Path: "new.json", Hash: "3"}, {Path: "twin.json", Hash: "4"}, {Path: "y.json", Hash: "2"}}}
	plan := func(found map[string]Identity) *Plan {
		p := Full(Target{Repository: "repo", Kinds: kinds}, tree, live, nil)
		if len(p.Unread()) != 3 {
			t.Errorf("%d files to read", len(p.Unread()))
		}
		p.Settle(found)
		return p
	}
	is := func(name string) Identity {
		return Identity{Group: "dashboard.grafana.app", Kind: "Dashboard", Name: name}
	}
	for _, c := range []struct {
		name      string
		found     map[string]Identity
		want      []string
		deletions int
	}{
		{"nothing moves", map[string]Identity{"new.json": is("n"), "y.json": is("y")},
			[]string{"delete deleted a/x.json = x", "drop deleted a/ = " + a, "write updated y.json", "write created new.json",
				"write created twin.json"}, 2},
		{"a new file has it", map[string]Identity{"new.json": is("x"), "twin.json": is("x")},
			[]string{"write renamed new.json from a/x.json", "write updated y.json", "write created twin.json", "late deleted a/ = " + a}, 1},
		{"a file takes it and leaves its own", map[string]Identity{"y.json": is("x")},
			[]string{"write renamed y.json from a/x.json replaces y", "write created new.json", "write created twin.json", "late deleted a/ = " +
				a}, 1},
		{"another kind of the same name", map[string]Identity{"new.json": {Group: "other", Kind: "Dashboard", Name: "x"}},
			[]string{"delete deleted a/x.json = x", "drop deleted a/ = " + a, "write updated y.json", "write created new.json",
				"write created twin.json"}, 2},
	} {
		p := plan(c.found)
		if got := lines(p); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
		if p.Deletions() != c.deletions || p.Managed() != 3 {
			t.Errorf("%s: %d deletions of %d", c.name, p.Deletions(), p.Managed())
		}
	}
	if nothing := Full(Target{Repository: "repo", Kinds: kinds}, tree, nil, nil); nothing.Unread() != nil {
		t.Error("files are read although nothing is deleted")
	}
}

func TestManagedExcludesRoot(t *testing.T) {
	t.Parallel()
	p := Full(folderTarget, Tree{}, []Item{dir("repo", "", "", "", "Dashboards"), board("x", "x.json", "1", "repo")}, nil)
	if p.Managed() != 1 || p.Deletions() != 1 {
		t.Errorf("%d deletions of %d", p.Deletions(), p.Managed())
	}
}
