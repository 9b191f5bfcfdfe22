package git

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"limpet/sync/git/attributes"
	"limpet/sync/git/pack"
	"limpet/sync/testenv/gittest"
	"limpet/sync/text"

	"github.com/go-git/go-git/v5/plumbing"
)

// planted is a pack of objects that no git would make.
type planted struct{ entries [][]byte }

func (p *planted) add(k pack.Kind, data []byte) pack.ID {
	p.entries = append(p.entries, gittest.Entry(k, len(data), nil, data))
	return pack.IDOf(k, data)
}

// commit adds a commit with this tree.
func (p *planted) commit(tree pack.ID) pack.ID {
	return p.add(pack.CommitKind, fmt.Appendf(nil, "tree %s\nauthor p <p@x> 1800000000 +0000\ncommitter p <p@x> 1800000000 +0000\n\nplanted\n", tree))
}

func TestHostileTrees(t *testing.T) {
	t.Parallel()
	var p planted
	blob := p.add(pack.BlobKind, []byte("x"))
	link := p.add(pack.BlobKind, []byte("/etc/passwd"))
	inner := p.add(pack.TreeKind, pack.TreeText([]pack.TreeEntry{{Mode: pack.ModeFile, Name: "inner.json", ID: blob}}))
	file := func(name string) pack.TreeEntry { return pack.TreeEntry{Mode: pack.ModeFile, Name: name, ID: blob} }
	dir := func(name string) pack.TreeEntry { return pack.TreeEntry{Mode: pack.ModeTree, Name: name, ID: inner} }
	names := map[string]string{ // name -> part of the reason
		"/etc/passwd": "slash", "a/b": "slash", `a\b`: "slash", "..": "another directory", ".": "another directory",
		".git": "git's own", ".GIT": "git's own", ".git ": "git's own", ".git.": "git's own", ".git. . ": "git's own", "git~1": "git's own",
		"GIT~1":      "git's own",
		".g\u200cit": "git's own", ".git::$INDEX_ALLOCATION": "git's own", ".git:x": "git's own", "...": "git's own", " ": "git's own",
		"\x1b[31mred": "control", "a\nb": "control", "\x7f": "control", "a\u0085b": "control", "a\u202eb": "control",
		"a\ufeffb": "control",
		"bad\xff":  "UTF-8", strings.Repeat("n", 5000): "longer", strings.Repeat("n", 256): "longer",
		"CON": "device", "nul.json": "device", "aux.tar.gz": "device", "COM1": "device", "lpt9.txt": "device", "con .json": "device",
	}
	var entries []pack.TreeEntry
	for _, name := range slices.Sorted(maps.Keys(names)) {
		entries = append(entries, file(name), dir(name))
	}
	entries = append(entries,
		file("good.json"), pack.TreeEntry{Mode: pack.ModeExec, Name: "run.sh", ID: blob},
		pack.TreeEntry{Mode: pack.ModeGroupFile, Name: "old.json", ID: blob}, dir("fine"),
		file("twice.json"), file("twice.json"), file("both"), dir("both"),
		file("Case.json"), file("case.json"), file("caf\u00e9.json"), file("cafe\u0301.json"),
		pack.TreeEntry{Mode: pack.ModeLink, Name: "link", ID: link}, pack.TreeEntry{Mode: pack.ModeLink, Name: ".gitmodules", ID: link},
		pack.TreeEntry{Mode: pack.ModeSubmodule, Name: "sub", ID: pack.ID{1}},
		pack.TreeEntry{Mode: 0o104755, Name: "odd.json", ID: blob},
		pack.TreeEntry{Mode: 0o100666, Name: "any.json", ID: blob}, pack.TreeEntry{Mode: 0o100777, Name: "all.sh", ID: blob}, file("a\tb"), pack.TreeEntry{Mode: 0, Name: "zero", ID: blob},
		pack.TreeEntry{Mode: 0o60000, Name: "block", ID: blob},
		file("com10.json"), file("console.json"), file("git~2"), file(".gitignore"), file("ünï.json"), file("a b.json"), file("日本.json"),
	)
	entries = append(entries,
		pack.TreeEntry{Mode: pack.ModeTree, Name: "cut", ID: p.add(pack.TreeKind, []byte("100644 a.json\x00short"))},
		pack.TreeEntry{Mode: pack.ModeTree, Name: "nomode", ID: p.add(pack.TreeKind, append([]byte(" a.json\x00"), blob[:]...))},
		pack.TreeEntry{Mode: pack.ModeTree, Name: "nonul", ID: p.add(pack.TreeKind, []byte("100644 abcdefghijklmnopqrstuvwxyzabcdefghijkl"))},
	)
	entries = append(entries, file("")) // an empty name
	root := p.add(pack.TreeKind, pack.TreeText(entries))
	s := gittest.ServeRaw(p.commit(root), func(w io.Writer) { w.Write(gittest.Pack(p.entries...)) })
	defer s.Close()
	m := openMirrors(t, Options{})
	r := Remote{URL: s.URL + "/evil.git"}
	ref, _ := syncRef(t, m, r, "")
	tree, err := m.Tree(t.Context(), r, ref.Hash, "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range tree.Files {
		got = append(got, f.Mode+" "+f.Path)
		if data, err := m.Blob(t.Context(), r, f.Hash, 0); err != nil || string(data) != "x" || f.Size != 1 {
			t.Errorf("%s: %q %v", f.Path, data, err)
		}
	}
	want := []string{"100644 .gitignore", "100644 Case.json", "100644 a\tb", "100644 a b.json", "100755 all.sh", "100644 any.json", "100644 both", "100644 café.json", "100644 com10.json",
		"100644 console.json",
		"100644 fine/inner.json", "100644 git~2", "100644 good.json", "100644 old.json", "100755 run.sh", "100644 twice.json", "100644 ünï.json",
		"100644 日本.json"}
	if !slices.Equal(got, want) {
		t.Errorf("files\n%q\nwant\n%q", got, want)
	}
	if !slices.Equal(tree.Dirs, []string{"cut", "fine", "nomode", "nonul"}) {
		t.Errorf("directories %q", tree.Dirs)
	}
	reasons := make(map[string]int)
	for _, ref := range tree.Refused {
		if strings.ContainsFunc(ref.Path, text.Hidden) || !utf8.ValidString(ref.Path) || len(ref.Path) > 250 || ref.Reason == "" ||
			ref.Kind == "" {
			t.Errorf("refusal %q %q cannot be shown", ref.Path, ref.Reason)
		}
		reasons[ref.Reason]++
	}
	for _, part := range names {
		if !slices.ContainsFunc(tree.Refused, func(r Refusal) bool { return strings.Contains(r.Reason, part) }) {
			t.Errorf("no refusal says %q", part)
		}
	}
	if n := 2*len(names) + 2 + 2 + 3 + 3 + 3 + 1; len(tree.Refused) != n {
		t.Errorf("%d refusals, want %d: %v", len(tree.Refused), n, reasons)
	}
	for _, part := range []string{"symbolic link", "submodule", "no meaning", "there twice", "taken for", "cannot be read", "empty"} {
		if !slices.ContainsFunc(tree.Refused, func(r Refusal) bool { return strings.Contains(r.Reason, part) }) {
			t.Errorf("no refusal says %q", part)
		}
	}
}

func TestTreeLimits(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "deep.git")
	deep := strings.Repeat("d/", 40)
	o.Commit("one", map[string]string{deep + "x.json": "x", "top.json": "y", strings.Repeat("long-name-of-a-directory/", 8) + "z.json": "z"})
	m := openMirrors(t, Options{})
	r := remoteAt(s, "deep.git")
	ref, _ := syncRef(t, m, r, "")
	tree, err := m.Tree(t.Context(), r, ref.Hash, "")
	if err != nil || len(tree.Files) != 2 || len(tree.Refused) != 1 || !strings.Contains(tree.Refused[0].Reason, "32 directories") {
		t.Fatalf("%d files, refused %v, %v", len(tree.Files), tree.Refused, err)
	}
	r.Limits = pack.Limits{TreeDepth: 100, PathBytes: 60}
	tree, err = m.Tree(t.Context(), r, ref.Hash, "")
	if err != nil || len(tree.Files) != 1 || len(tree.Refused) != 2 {
		t.Fatalf("%d files, refused %v, %v", len(tree.Files), tree.Refused, err)
	}
	r.Limits = pack.Limits{TreeDepth: 100, TreeEntries: 20}
	if tree, err = m.Tree(t.Context(), r, ref.Hash, ""); !reflect.ValueOf(tree).IsZero() {
		t.Errorf("half a listing comes with the error: %+v", tree)
	}
	gittest.ErrorIs(t, err, TooLarge)
	r.Limits = pack.Limits{PathBytes: 1, TreeEntries: 2} // what is refused counts
	_, err = m.Tree(t.Context(), r, ref.Hash, "")
	gittest.ErrorIs(t, err, TooLarge)
}

func TestTreeOfDirectory(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	o.Commit("one", map[string]string{"grafana/team a/x.json": "x", "grafana/y.json": "y", "flux/z.yaml": "z"})
	m := openMirrors(t, Options{})
	r := remoteAt(s, "site.git")
	ref, _ := syncRef(t, m, r, "")
	for dir, want := range map[string][]string{
		"": {"flux/z.yaml", "grafana/team a/x.json", "grafana/y.json"}, "grafana": {"team a/x.json", "y.json"},
		"/grafana/": {"team a/x.json", "y.json"}, "grafana/team a": {"x.json"},
	} {
		tree, err := m.Tree(t.Context(), r, ref.Hash, dir)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range tree.Files {
			got = append(got, f.Path)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q", dir, got)
		}
	}
	_, err := m.Tree(t.Context(), r, ref.Hash, "grafna")
	gittest.ErrorIs(t, err, PathNotFound, `no directory "grafna"`, "flux, grafana")
	_, err = m.Tree(t.Context(), r, ref.Hash, "grafana/team b")
	gittest.ErrorIs(t, err, PathNotFound, "team a")
	_, err = m.Tree(t.Context(), r, ref.Hash, "grafana/y.json")
	gittest.ErrorIs(t, err, PathNotFound, "is a file")
	for _, bad := range []string{"../x", "grafana/../flux", ".git", "a//b", "\x1b[2J"} {
		_, err = m.Tree(t.Context(), r, ref.Hash, bad)
		gittest.ErrorIs(t, err, Refused)
	}
	for _, bad := range []string{"", "main", strings.Repeat("z", 40)} {
		_, err = m.Tree(t.Context(), r, bad, "")
		gittest.ErrorIs(t, err, Refused)
		_, err = m.Blob(t.Context(), r, bad, 0)
		gittest.ErrorIs(t, err, Refused)
	}
}

func TestBlobLimit(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	large := gittest.Dashboard("large", 1, 500)
	o.Commit("one", map[string]string{"a.json": large, "b.json": strings.Replace(large, "Panel 7 ", "Panel seven ", 1), "empty": ""})
	gittest.Git(t, o.Bare, nil, "repack", "-adq")
	m := openMirrors(t, Options{})
	r := remoteAt(s, "site.git")
	ref, _ := syncRef(t, m, r, "")
	tree, err := m.Tree(t.Context(), r, ref.Hash, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range tree.Files { // one of them is a delta of the other
		if _, err := m.Blob(t.Context(), r, f.Hash, f.Size); err != nil {
			t.Errorf("%s: %v", f.Path, err)
		}
		_, err := m.Blob(t.Context(), r, f.Hash, f.Size-1)
		gittest.ErrorIs(t, err, TooLarge)
		large, ok := errors.AsType[*TooLargeError](err)
		if !ok || large.Size != f.Size || large.Limit != f.Size-1 {
			t.Errorf("%s: %+v", f.Path, large)
		}
	}
	_, err = m.Blob(t.Context(), r, strings.Repeat("ab", 20), 0)
	gittest.ErrorIs(t, err, Corrupt)
	if _, err := readNote(mirrorDir(t, m, r)); err != nil {
		t.Error("asking for what never was marks the mirror as damaged")
	}
}

func FuzzCheckRefName(f *testing.F) {
	for _, s := range []string{"main", "feature/x", "refs/pull/1/head", "-x", "a..b", "a.lock", "@{u}", "a b", "é", "a/.b", "\x1b[2J"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		err := checkRefName(name)
		if err != nil {
			if strings.ContainsFunc(err.Error(), text.Hidden) {
				t.Fatalf("%q cannot be shown", err)
			}
			return
		}
		at := slices.Contains(strings.Split(name, "/"), "@") // git allows it, go-git does not
		if verr := plumbing.ReferenceName("refs/heads/" + name).Validate(); verr != nil && !at {
			t.Fatalf("%q passes here, go-git says %v", name, verr)
		}
		if strings.HasPrefix(name, "-") || strings.ContainsAny(name, " \n\x00") || !filepath.IsLocal(name) {
			t.Fatalf("%q passes", name)
		}
	})
}
func FuzzParseTree(f *testing.F) {
	f.Add(pack.TreeText([]pack.TreeEntry{{Mode: pack.ModeFile, Name: "a.json", ID: pack.ID{1}}, {Mode: pack.ModeTree, Name: "d", ID: pack.ID{2}}}))
	f.Add([]byte("100644 ..\x00aaaaaaaaaaaaaaaaaaaa40000 .git\x00aaaaaaaaaaaaaaaaaaaa"))
	f.Add([]byte("0100644 x\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := pack.ParseTree(data)
		if err == nil && len(entries) > 0 && entries[0].Mode != 0 && data[0] != '0' && !bytes.Equal(pack.TreeText(entries)[:7], data[:7]) {
			t.Fatalf("%q is not read back", data)
		}
		pass, refused := filterEntries(slices.Clone(entries), "dir/", pack.DefaultLimits)
		if len(pass)+len(refused) != len(entries) {
			t.Fatalf("%d and %d of %d entries", len(pass), len(refused), len(entries))
		}
		seen := map[string]bool{}
		for _, e := range pass {
			if e.Name == "" || e.Name == "." || e.Name == ".." || strings.ContainsAny(e.Name, "/\\\x00") || strings.EqualFold(e.Name, ".git") ||
				!utf8.ValidString(e.Name) || strings.ContainsFunc(e.Name, text.Hidden) || !filepath.IsLocal(e.Name) || len(e.Name) > 255 {
				t.Fatalf("%q passes", e.Name)
			}
			if seen[strings.ToLower(e.Name)] {
				t.Fatalf("%q passes twice", e.Name)
			}
			seen[strings.ToLower(e.Name)] = true
			switch e.Mode {
			case pack.ModeTree, pack.ModeFile, pack.ModeGroupFile, pack.ModeExec:
			default:
				t.Fatalf("mode %o passes", e.Mode)
			}
		}
		for _, r := range refused {
			if strings.ContainsFunc(r.Path, text.Hidden) || !utf8.ValidString(r.Path) {
				t.Fatalf("%q cannot be shown", r.Path)
			}
		}
	})
}

// TestTreeLFS lists what .gitattributes give to Git LFS, of a repository and of a directory of it.
func TestTreeLFS(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	o.Commit("first", map[string]string{".gitattributes": "*.bin filter=lfs\n/d/e/*.txt filter=lfs\n", "a.bin": "x", "b.txt": "x",
		"d/c.bin": "x", "d/e/.gitattributes": "f.bin -filter\n", "d/e/f.bin": "x", "d/e/g.txt": "x",
		"d/e/h.txt": strings.Repeat("x", MaxPointer+1), "d/i.bin": "x"})
	m, r := openMirrors(t, Options{}), remoteAt(s, "site.git")
	ref, _ := syncRef(t, m, r, "")
	large := func(dir string) (paths []string) {
		tree, err := m.Tree(t.Context(), r, ref.Hash, dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range tree.Files {
			if f.LFS {
				paths = append(paths, f.Path)
			}
		}
		return paths
	}
	for dir, want := range map[string]string{"": "a.bin d/c.bin d/e/g.txt d/i.bin", "d": "c.bin e/g.txt i.bin", "/d/e/": "g.txt"} {
		if got := strings.Join(large(dir), " "); got != want {
			t.Errorf("%q: %s, want %s", dir, got, want)
		}
	}
	rules := strings.Repeat("#"+strings.Repeat("x", 1022)+"\n", 700)
	two := o.Commit("large", map[string]string{".gitattributes": rules, "d/.gitattributes": rules})
	syncRef(t, m, r, "")
	if _, err := m.Tree(t.Context(), r, two, "d"); KindOf(err) != TooLarge || !strings.Contains(err.Error(), "d/.gitattributes") {
		t.Errorf("more than all may have: %v", err)
	}
	three := o.Commit("filters", map[string]string{".gitattributes": "x filter=lfs\n",
		"d/.gitattributes": strings.Repeat("x filter=lfs\n", attributes.MaxFilters)})
	syncRef(t, m, r, "")
	if _, err := m.Tree(t.Context(), r, three, ""); KindOf(err) != TooLarge || !strings.Contains(err.Error(), "d/.gitattributes") {
		t.Errorf("more filters than all may have: %v", err)
	}
}

func FuzzParseCommit(f *testing.F) {
	f.Add(fmt.Appendf(nil, "tree %s\nparent %s\nauthor p <p@x> 1 +0000\n\nhello\n", pack.ID{1}, pack.ID{2}))
	f.Add([]byte("tree x\n\n"))
	f.Add([]byte("tree 0123456789012345678901234567890123456789\nauthor A <a@b> 99999999999999999999 +9999\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := pack.ParseCommit(data)
		if err != nil {
			return
		}
		who, _ := person(c.Author)
		for _, s := range []string{who, text.Line(c.Message, 200)} {
			if strings.ContainsFunc(s, text.Hidden) || len(s) > 210 {
				t.Fatalf("%q cannot be shown", s)
			}
		}
	})
}

// TestNames: a list of names is that of the tree; where rules may hold it has sizes and LFS, too.
func TestNames(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	commit := o.Commit("one", map[string]string{"a.json": "1", "b/c.json": "22", "big/.gitattributes": "*.bin filter=lfs\n", "big/x.bin": "333"})
	m, r := openMirrors(t, Options{}), remoteAt(s, "site.git")
	syncRef(t, m, r, "")
	whole := gittest.Must[Tree](t)(m.Tree(t.Context(), r, commit, ""))
	names := gittest.Must[Tree](t)(m.Names(t.Context(), r, commit, ""))
	for i, f := range whole.Files {
		if !strings.HasPrefix(f.Path, "big/") {
			f.Size = 0
		}
		if names.Files[i] != f || f.LFS != (f.Path == "big/x.bin") {
			t.Errorf("%+v, want %+v", names.Files[i], f)
		}
	}
	if len(whole.Files) != 4 || len(names.Files) != 4 || !slices.Equal(names.Dirs, whole.Dirs) {
		t.Errorf("%v", names)
	}
	near := gittest.Must[Tree](t)(m.Near(t.Context(), r, commit, "", []string{"a.json", "big/none/y.bin"}))
	if len(near.Files) != 3 || near.Files[2] != whole.Files[3] || !slices.Equal(near.Dirs, []string{"big"}) {
		t.Errorf("near: %v", near)
	}
}
