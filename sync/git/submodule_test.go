package git

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/sync/auth"
	"limpet/sync/git/pack"
	"limpet/sync/testenv/gittest"
)

func module(name, path, url string) string {
	return fmt.Sprintf("[submodule %q]\n\tpath = %s\n\turl = %s\n", name, path, url)
}

// whole reads the files of a tree with submodules.
func whole(t *testing.T, m *Mirrors, r Remote, commit, dir string) (map[string]string, Tree, error) {
	t.Helper()
	tree, err := m.WholeTree(t.Context(), r, commit, dir)
	out := map[string]string{}
	for _, f := range tree.Files {
		home := r
		if f.Home != "" {
			home.URL = f.Home
		}
		data, err := m.Blob(t.Context(), home, f.Hash, 0)
		if err != nil {
			t.Fatal(err)
		}
		out[f.Path] = string(data)
	}
	return out, tree, err
}

func TestSubmodules(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	// Credentials go to this server with every request; it takes no other.
	s.During(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != gittest.BasicAuth("ann", gittest.Secret) {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	deep := gittest.NewOrigin(t, s.Root, "deep.git").Commit("deep", map[string]string{"d.json": "deep"})
	lib := gittest.NewOrigin(t, s.Root, "lib.git")
	lib.Commit("lib", map[string]string{"l/l.json": "lib"})
	old := lib.Link(module("deep", "sub/deep", "../deep.git"), map[string]string{"sub/deep": deep})
	lib.Commit("newer", map[string]string{"l/l.json": "newer"}) // the tree names the commit before
	site := gittest.NewOrigin(t, s.Root, "site.git")
	site.Commit("site", map[string]string{"a/x.json": "own", "b/y.json": "other"})
	commit := site.Link(module("lib", "a/lib", s.URL+"/lib.git")+module("far", "b/far", "https://far.example.com/x.git"),
		map[string]string{"a/lib": old, "a/stray": deep, "b/far": deep})
	m := openMirrors(t, Options{})
	r := remoteAt(s, "site.git")
	r.Creds, r.AllowInsecure = &auth.Credentials{Username: "ann", Password: gittest.Secret}, true
	syncRef(t, m, r, "")

	got, tree, err := whole(t, m, r, commit, "a")
	want := map[string]string{"x.json": "own", "lib/l/l.json": "lib", "lib/sub/deep/d.json": "deep", "lib/.gitmodules": got["lib/.gitmodules"]}
	if err != nil || !maps.Equal(got, want) || !slices.Equal(tree.Dirs, []string{"lib", "lib/l", "lib/sub", "lib/sub/deep"}) {
		t.Errorf("%v %q %v", got, tree.Dirs, err)
	}
	if len(tree.Refused) != 1 || tree.Refused[0] != (Refusal{Path: "stray", Kind: submodule, Reason: "a submodule without an entry in .gitmodules"}) {
		t.Errorf("refused %v", tree.Refused)
	}
	before := s.Requests.Load()
	if _, _, err := whole(t, m, r, commit, "a"); err != nil || s.Requests.Load() != before {
		t.Errorf("what is there is fetched again: %v", err)
	}
	// Their mirrors are in use as long as that of the repository is, and no longer.
	before = s.Requests.Load()
	if n, err := m.Prune([]Remote{r}, 0); n != 0 || err != nil {
		t.Errorf("%d mirrors in use are deleted: %v", n, err)
	}
	if _, _, err := whole(t, m, r, commit, "a"); err != nil || s.Requests.Load() != before {
		t.Errorf("after that, what is there is fetched again: %v", err)
	}
	_, _, err = whole(t, m, r, commit, "")
	gittest.ErrorIs(t, err, Refused, `submodule "b/far"`, "far.example.com", "../other.git")
	// Off, they are left out as ever.
	if tree, err := m.Tree(t.Context(), r, commit, "a"); err != nil || len(tree.Files) != 1 || len(tree.Refused) != 2 {
		t.Errorf("%+v %v", tree, err)
	}
	// A former submodule, which was not pulled with the repository any more, goes alone.
	former := remoteAt(s, "deep.git")
	for _, path := range []string{"", "objects/pack", parentFile} {
		if err := os.Chtimes(filepath.Join(mirrorDir(t, m, former), path), time.Time{}, time.Now().Add(-2*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := m.Prune([]Remote{r}, time.Hour); n != 1 || err != nil {
		t.Errorf("%d mirrors of a former submodule are deleted: %v", n, err)
	}
	if n, err := m.Prune(nil, 0); n != 2 || err != nil {
		t.Errorf("%d of 2 mirrors out of use are deleted: %v", n, err)
	}
}

// TestSubmodulesInSum: the limits of a repository hold for its submodules together.
func TestSubmodulesInSum(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	site := gittest.NewOrigin(t, s.Root, "site.git")
	site.Commit("site", map[string]string{"x.json": "1"})
	modules, links := "", map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		links[name] = gittest.NewOrigin(t, s.Root, name+".git").Commit("lib", map[string]string{"l.json": strings.Repeat(name, 30_000)})
		modules += module(name, name, "../"+name+".git")
	}
	commit := site.Link(modules, links)
	for limit, fits := range map[int64]bool{70_000: false, 95_000: true} {
		m := openMirrors(t, Options{})
		r := remoteAt(s, "site.git")
		syncRef(t, m, r, "")
		r.Limits.InflatedBytes = limit
		if _, err := m.WholeTree(t.Context(), r, commit, ""); !fits {
			gittest.ErrorIs(t, err, TooLarge, `submodule "c"`, "inflated size of the pack")
		} else if err != nil {
			t.Errorf("within the limit: %v", err)
		}
	}
}

func TestSubmodulesRefused(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	lib := gittest.NewOrigin(t, s.Root, "lib.git")
	tip := lib.Commit("lib", map[string]string{"l.json": "lib", "m.json": "more"})
	ring := gittest.NewOrigin(t, s.Root, "ring.git")
	ringTip := ring.Link(module("site", "s", "../site.git"), map[string]string{"s": tip})
	site := gittest.NewOrigin(t, s.Root, "site.git")
	site.Commit("site", map[string]string{"Taken/x.json": "1"})
	const none = "0123456789012345678901234567890123456789"
	at := func(url string) string { return module("lib", "lib", url) }
	port := strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	for _, c := range []struct {
		name, modules, path, commit string
		limits                      pack.Limits
		kind                        Kind
		says                        []string
	}{
		{"option", at("--upload-pack=touch /tmp/x"), "lib", tip, pack.Limits{}, Refused, []string{".gitmodules", "--upload-pack"}},
		{"no url", "[submodule \"lib\"]\npath = lib\n", "lib", tip, pack.Limits{}, Refused, []string{"which is none"}},
		{"other host", at(port + "/lib.git"), "lib", tip, pack.Limits{}, Refused, []string{"localhost", "relative"}},
		{"other scheme", at("ssh://git@127.0.0.1/lib.git"), "lib", tip, pack.Limits{}, Refused, []string{"ssh://"}},
		{"local", at("/etc"), "lib", tip, pack.Limits{}, Refused, []string{"/etc"}},
		{"file", at("file:///etc"), "lib", tip, pack.Limits{}, Refused, []string{"/etc"}},
		{"ext", at("ext::sh -c x"), "lib", tip, pack.Limits{}, Refused, []string{"invalid git url"}},
		{"password", at(strings.Replace(s.URL, "://", "://u:hunter2@", 1) + "/lib.git"), "lib", tip, pack.Limits{}, Refused,
			[]string{"password"}},
		{"climbing", at("../../../.."), "lib", tip, pack.Limits{}, Refused, []string{"leaves the host"}},
		{"path climbing", module("lib", "../lib", "../lib.git"), "lib", tip, pack.Limits{}, Refused, []string{`path "../lib"`}},
		{"path of git", module("lib", ".git/x", "../lib.git"), "lib", tip, pack.Limits{}, Refused, []string{`path ".git/x"`}},
		{"path option", module("lib", "-x", "../lib.git"), "lib", tip, pack.Limits{}, Refused, []string{"option"}},
		{"twice", module("a", "lib", "../lib.git") + module("b", "LIB", "../x.git"), "lib", tip, pack.Limits{}, Refused,
			[]string{"two submodules"}},
		{"two urls", at("../lib.git") + "url = ../x.git\n", "lib", tip, pack.Limits{}, Refused, []string{"two of url"}},
		{"malformed", "[submodule\n", "lib", tip, pack.Limits{}, Refused, []string{".gitmodules: line 1"}},
		{"itself", at("../site.git"), "lib", tip, pack.Limits{}, Refused, []string{"inside of itself"}},
		{"a ring", at("../ring.git"), "lib", ringTip, pack.Limits{}, Refused, []string{`submodule "lib/s"`, "inside of itself"}},
		{"its place", module("lib", "taken", "../lib.git"), "taken", tip, pack.Limits{}, Refused, []string{"taken by another"}},
		{"not there", at("../nothing.git"), "lib", tip, pack.Limits{}, NotFound, []string{`submodule "lib"`, "repository not found"}},
		{"no such commit", at("../lib.git"), "lib", none, pack.Limits{}, CommitNotFound, []string{`submodule "lib"`, none}},
		{"too many files", at("../lib.git"), "lib", tip, pack.Limits{TreeEntries: 4}, TooLarge, []string{"number of files and directories"}},
		{"too large inflated", at("../lib.git"), "lib", tip, pack.Limits{InflatedBytes: 100}, TooLarge,
			[]string{`submodule "lib"`, "inflated size"}},
		{"too many objects", at("../lib.git"), "lib", tip, pack.Limits{Objects: 3}, TooLarge, []string{`submodule "lib"`}},
	} {
		site.Git("rm", "-q", "-r", "--cached", "--ignore-unmatch", "lib", "taken")
		commit := site.Link(c.modules, map[string]string{c.path: c.commit})
		m := openMirrors(t, Options{})
		r := remoteAt(s, "site.git")
		syncRef(t, m, r, "")
		r.Limits = c.limits
		if _, err := m.WholeTree(t.Context(), r, commit, ""); KindOf(err) != c.kind {
			t.Errorf("%s: %v (%s), want kind %s", c.name, err, KindOf(err), c.kind)
		} else {
			gittest.ErrorIs(t, err, c.kind, c.says...)
		}
	}
}

// TestTreeOfOnePath: what is outside of the path is neither walked nor judged.
func TestTreeOfOnePath(t *testing.T) {
	t.Parallel()
	s := gittest.NewServer(t)
	o := gittest.NewOrigin(t, s.Root, "site.git")
	files := map[string]string{"wanted/a.json": "1", "wanted/b/c.json": "2"}
	for i := range 50 {
		files[fmt.Sprintf("other/%d/x.json", i)] = "x"
	}
	commit := o.Commit("one", files)
	m := openMirrors(t, Options{})
	r := remoteAt(s, "site.git")
	syncRef(t, m, r, "")
	r.Limits = pack.Limits{TreeEntries: 3}
	for _, read := range []func() (Tree, error){
		func() (Tree, error) { return m.Tree(t.Context(), r, commit, "wanted") },
		func() (Tree, error) { return m.WholeTree(t.Context(), r, commit, "wanted") },
	} {
		if tree, err := read(); err != nil || len(tree.Files) != 2 {
			t.Errorf("%+v %v", tree, err)
		}
	}
	_, err := m.Tree(t.Context(), r, commit, "")
	gittest.ErrorIs(t, err, TooLarge, "number of files")
	_, err = m.Tree(t.Context(), r, commit, "wantde")
	gittest.ErrorIs(t, err, PathNotFound, "wantde", "other, wanted")
}

func FuzzParseModules(f *testing.F) {
	f.Add([]byte(module("lib", "a/lib", "../lib.git")))
	f.Add([]byte(module("lib", "../lib", "-x") + module("b", "lib", "https://h/x")))
	f.Fuzz(func(t *testing.T, data []byte) {
		modules, err := parseModules(data)
		for path, url := range modules {
			if err != nil || path == "" || path[0] == '-' || url == "" || url[0] == '-' || strings.Contains("/"+path+"/", "/../") ||
				strings.Contains("/"+path+"/", "/.git/") {
				t.Errorf("%q: %q %v", path, url, err)
			}
		}
	})
}

func TestParseConfig(t *testing.T) {
	t.Parallel()
	got, err := parseConfig([]byte("# about\n[submodule \"a b\"]\r\n\tpath = \"a b\" ; x\n url=../x.git # y\n[LFS]\nURL = https://h/x\n"))
	if err != nil {
		t.Fatal(err)
	}
	sub := got.Section("submodule").Subsection("a b")
	if sub.Option("path") != "a b" || sub.Option("url") != "../x.git" || got.Section("lfs").Option("url") != "https://h/x" {
		t.Errorf("%+v", got)
	}
	for _, bad := range []string{"a = b", "[a", "[a b]", "[a \"x]", "[a]\nb c = d", "[a]\nb = \"c", "[a]\nb = \x1b[2J", "[a \"\x1b\"]\nb = c",
		"[a]\nb = \xff", "[a]\nb = \"\\n\"", strings.Repeat("\n", maxConfig+1)} {
		if got, err := parseConfig([]byte(bad)); err == nil {
			t.Errorf("%.40q is read as %v", bad, got)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte("[submodule \"a\"]\n\tpath = a\n\turl = ../x.git\n[lfs]\nurl = \"https://h/x\" # y\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := parseConfig(data)
		if err != nil {
			return
		}
		if url := cfg.Section("lfs").Option("url"); strings.ContainsAny(url, "\n\x00\x1b") {
			t.Errorf("%q", url)
		}
	})
}
