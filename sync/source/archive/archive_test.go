package archive_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"

	"limpet/state"
	"limpet/sync/git"
	"limpet/sync/git/gitref"
	"limpet/sync/source/archive"
	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

func TestMain(m *testing.M) {
	if state.RunProbe() {
		return
	}
	os.Exit(testenv.Main(m))
}

// entry is one of a tar.
type entry struct {
	kind byte
	exec bool
	data string // of a file; the target of a link
}

func file(data string) entry { return entry{kind: tar.TypeReg, data: data} }
func link(to string) entry   { return entry{kind: tar.TypeSymlink, data: to} }

var dir = entry{kind: tar.TypeDir}

// commit makes a repository of one commit, fetched into a mirror. A directory is the submodule that
// its data names.
func commit(t testing.TB, files map[string]entry) archive.Tree {
	t.Helper()
	repo := testenv.EmptyRepo(t)
	in := &bytes.Buffer{}
	fmt.Fprint(in, "commit refs/heads/main\ncommitter Ops <ops@example.com> 1700000000 +0000\ndata 0\n\n")
	for _, name := range slices.Sorted(maps.Keys(files)) {
		e := files[name]
		mode := map[byte]string{tar.TypeReg: "100644", tar.TypeSymlink: "120000", tar.TypeDir: "160000"}[e.kind]
		if e.exec {
			mode = "100755"
		}
		name = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(name) + `"`
		if e.kind == tar.TypeDir {
			fmt.Fprintf(in, "M 160000 %s %s\n", e.data, name)
			continue
		}
		fmt.Fprintf(in, "M %s inline %s\ndata %d\n%s\n", mode, name, len(e.data), e.data)
	}
	repo.Import(t, in)
	return fetched(t, repo.Dir)
}

// fetched is the branch main of a repository in a mirror of its own.
func fetched(t testing.TB, dir string) archive.Tree {
	t.Helper()
	mirrors, err := git.Open(t.TempDir(), git.Options{AllowLocal: []string{os.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mirrors.Close() })
	tree := archive.Tree{Mirrors: mirrors, Remote: git.Remote{URL: dir}}
	ref, err := mirrors.Resolve(t.Context(), tree.Remote, gitref.Selector{Branch: "main"})
	if err == nil {
		_, err = mirrors.Fetch(t.Context(), tree.Remote, ref)
	}
	if err != nil {
		t.Fatal(err)
	}
	tree.Commit = ref.Hash
	return tree
}

// packed writes an archive and checks what each of them promises.
func packed(t testing.TB, tree archive.Tree, o archive.Options) ([]byte, archive.Digests) {
	t.Helper()
	var out bytes.Buffer
	d, err := archive.Write(t.Context(), &out, tree, o)
	if err != nil {
		t.Fatal(err)
	}
	plain := plainOf(t, out.Bytes())
	if digest(out.Bytes()) != d.Digest || digest(plain) != d.TarDigest || d.Size != int64(out.Len()) {
		t.Errorf("digests: %+v", d)
	}
	last := ""
	files := 0
	for r := tar.NewReader(bytes.NewReader(plain)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		wantMode := map[byte]int64{tar.TypeDir: 0o750, tar.TypeSymlink: 0o777, tar.TypeReg: 0o600 | h.Mode&0o100}[h.Typeflag]
		if h.Uid != 0 || h.Gid != 0 || h.Uname+h.Gname != "" || h.ModTime.Unix() != 0 || h.Mode != wantMode || strings.HasSuffix(h.Name, "/") {
			t.Errorf("header: %+v", h)
		}
		if order := strings.ReplaceAll(h.Name, "/", "\x00"); h.Name != "." && order <= last {
			t.Errorf("%q is after %q", h.Name, last)
		} else if h.Name != "." {
			last = order
		}
		if h.Typeflag != tar.TypeDir {
			files++
		}
	}
	if files != d.Files {
		t.Errorf("%d files, want %d", d.Files, files)
	}
	return out.Bytes(), d
}

// plainOf returns the tar of an archive of one member.
func plainOf(t testing.TB, data []byte) []byte {
	t.Helper()
	from := bytes.NewReader(data)
	z, err := gzip.NewReader(from)
	if err != nil {
		t.Fatal(err)
	}
	z.Multistream(false)
	plain, err := io.ReadAll(z)
	if err != nil || from.Len() > 0 || z.Name != "" || !z.ModTime.IsZero() || z.OS != 255 {
		t.Fatalf("gzip: %v, %+v, %d bytes are left", err, z.Header, from.Len())
	}
	return plain
}

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// listed reads a tar, which may be packed.
func listed(t testing.TB, data []byte) map[string]entry {
	t.Helper()
	var in io.Reader = bytes.NewReader(data)
	if z, err := gzip.NewReader(bytes.NewReader(data)); err == nil {
		in = z
	}
	out := map[string]entry{}
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		out[path.Clean(h.Name)] = entry{h.Typeflag, h.Typeflag == tar.TypeReg && h.Mode&0o100 != 0, string(content) + h.Linkname}
	}
}

func names(files map[string]entry) string { return strings.Join(slices.Sorted(maps.Keys(files)), " ") }

// TestRules: what is packed under which rules.
func TestRules(t *testing.T) {
	t.Parallel()
	tree := commit(t, map[string]entry{
		".gitattributes": file(""), ".github/ci.yaml": file("ci"), "a.yaml": file("a"), "logo.png": file("png"), "run": {kind: tar.TypeReg, exec: true},
		"deploy/prod/app.yaml": file("p"), "deploy/prod/app.md": file("p"), "deploy/test/app.yaml": file("t"), "deploy/.sops.yaml": file("s"),
		"vendor/x/lib.yaml": file("v"), "vendor/x/keep.yaml": file("v"), "deep/link": link("../a.yaml"), "deep/out": link("../../etc/passwd"),
		"deep/abs": link("/etc/passwd"), "deep/round": link("../deploy/../../x"), "sub": {kind: tar.TypeDir, data: strings.Repeat("ab", 20)},
	})
	scoped := commit(t, map[string]entry{
		".sourceignore": file("# comment\n\n*.md\n"), "a.md": file(""), "logo.png": file(""), "x/.sourceignore": file("!keep.md\n/top\n"), "x/keep.md": file(""),
		"x/other.md": file(""), "x/top": file(""), "x/y/top": file(""), "top": file(""), "keep.md": file(""), ".gitignore": file(""),
	})
	const dirs = ". deep deploy deploy/prod deploy/test"
	for name, c := range map[string]struct {
		tree archive.Tree
		o    archive.Options
		want string
	}{
		"defaults": {tree, archive.Options{}, ". a.yaml deep deploy deploy/prod deploy/prod/app.md deploy/prod/app.yaml deploy/test " +
			"deploy/test/app.yaml run sub vendor vendor/x vendor/x/keep.yaml vendor/x/lib.yaml"},
		"empty rules keep the defaults": {tree, archive.Options{Ignore: new("\n# none\n"), Sparse: []string{"deploy"}},
			". deploy deploy/prod deploy/prod/app.md deploy/prod/app.yaml deploy/test deploy/test/app.yaml"},
		"a custom rule drops them": {tree, archive.Options{Ignore: new("vendor/\n*.md")}, ". .github .github/ci.yaml a.yaml deep deploy deploy/.sops.yaml " +
			"deploy/prod deploy/prod/app.yaml deploy/test deploy/test/app.yaml logo.png run sub"},
		"all but a directory": {tree, archive.Options{Ignore: new("/*\n!/deploy\n/deploy/**/*.md")},
			". deploy deploy/.sops.yaml deploy/prod deploy/prod/app.yaml deploy/test deploy/test/app.yaml"},
		"below what is ignored": {tree, archive.Options{Ignore: new("/*\n!/deploy/prod\n!keep.yaml")},
			". deploy/prod deploy/prod/app.md deploy/prod/app.yaml vendor/x/keep.yaml"},
		"files of git": {tree, archive.Options{Ignore: new("*\n!.gitattributes")}, ". .gitattributes"},
		"scopes":       {scoped, archive.Options{}, ". .sourceignore logo.png top x x/.sourceignore x/keep.md x/y x/y/top"},
		"the spec is last": {scoped, archive.Options{Ignore: new("keep.md\n!/a.md\n!.gitignore")},
			". .gitignore .sourceignore a.md logo.png top x x/.sourceignore x/y x/y/top"},
		"sparse":   {tree, archive.Options{Sparse: []string{"./deploy/prod/", "vendor"}, Ignore: new("*.md")}, ". deploy deploy/prod deploy/prod/app.yaml vendor vendor/x vendor/x/keep.yaml vendor/x/lib.yaml"},
		"sparse .": {tree, archive.Options{Sparse: []string{"deploy", "./"}, Ignore: new("*.*\nvendor\nrun\nsub")}, dirs},
		"symlinks": {tree, archive.Options{KeepSymlinks: true, Sparse: []string{"deep"}}, ". deep deep/link"},
	} {
		data, _ := packed(t, c.tree, c.o)
		if got := names(listed(t, data)); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, c.want)
		}
	}
	for _, dir := range []string{"none", "deploy/none", "a.yaml/x"} {
		_, err := archive.Write(t.Context(), io.Discard, tree, archive.Options{Sparse: []string{"deploy", dir}})
		if e, ok := errors.AsType[*archive.SparseError](err); !ok || e.Dir != dir {
			t.Errorf("%s: %v", dir, err)
		}
	}
	for _, o := range []archive.Options{{MaxFiles: 4}, {MaxBytes: 4}} {
		_, err := archive.Write(t.Context(), io.Discard, tree, o)
		if e, ok := errors.AsType[*archive.LimitError](err); !ok || e.Limit != 4 || e.Bytes != (o.MaxBytes > 0) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// reference filters a tree as Flux does, entry by entry, with all rules that there are.
func reference(files map[string]entry, spec string) map[string]entry {
	parse := func(text string, domain []string) (ps []gitignore.Pattern) {
		for line := range strings.Lines(text) {
			if line = strings.TrimRight(line, "\n"); line != "" && line[0] != '#' {
				ps = append(ps, gitignore.ParsePattern(line, domain))
			}
		}
		return ps
	}
	var own []gitignore.Pattern
	for _, name := range slices.SortedFunc(maps.Keys(files), func(a, b string) int { return strings.Compare(path.Dir(a), path.Dir(b)) }) {
		if path.Base(name) == ".sourceignore" {
			domain := strings.Split(path.Dir(name), "/")
			if domain[0] == "." {
				domain = nil
			}
			own = append(own, parse(files[name].data, domain)...)
		}
	}
	own = append(own, parse(spec, nil)...)
	all := parse(".git/\n.gitignore\n.gitmodules\n.gitattributes", nil)
	if len(own) == 0 {
		all = append(all, parse("*.jpg\n*.jpeg\n*.gif\n*.png\n*.wmv\n*.flv\n*.tar.gz\n*.zip\n.github/\n.circleci/\n.travis.yml\n.gitlab-ci.yml\n"+
			"appveyor.yml\n.drone.yml\ncloudbuild.yaml\ncodeship-services.yml\ncodeship-steps.yml\n**/.goreleaser.yml\n**/.sops.yaml\n**/.flux.yaml", nil)...)
	}
	m := gitignore.NewMatcher(append(all, own...))
	out := map[string]entry{".": dir}
	for name, e := range files {
		if e.kind != tar.TypeSymlink && !m.Match(strings.Split(name, "/"), e.kind == tar.TypeDir) {
			out[name] = e
		}
	}
	return out
}

// shaped draws a repository and the rules of a spec.
func shaped(r *rand.Rand, size int) (files map[string]entry, spec string) {
	dirs := []string{""}
	parts := []string{"apps", "base", "deploy", ".github", "charts", "node_modules", "über", "x y", "prod", "a", "a.b", strings.Repeat("long", 30)}
	ends := []string{"app.yaml", "values.yaml", "logo.png", "README.md", ".sops.yaml", "a\\x2db.swap", "aux.txt", "run.sh", "ü.json", ".gitignore", "x.tar.gz", "Aux.TXT"}
	rules := []string{"*.md", "node_modules/", "/apps", "prod", "**/a/*.yaml", "charts/**", "a.b/", "*.png", "/*", "x y/values.yaml", "*", "deploy/*/a"}
	files = map[string]entry{}
	draw := func(from []string) string { return from[r.IntN(len(from))] }
	for range size {
		d := draw(dirs)
		if r.IntN(3) == 0 && strings.Count(d, "/") < 6 {
			d = path.Join(d, draw(parts))
			dirs = append(dirs, d)
		}
		e := file(strings.Repeat(fmt.Sprintf("%d: %x\n", r.Uint64(), r.Uint64()), r.IntN(40)))
		if e.exec = r.IntN(8) == 0; r.IntN(20) == 0 {
			e = link(draw(ends))
		}
		files[path.Join(d, draw(ends))] = e
	}
	negated := func(n int) (text string) {
		for range n {
			text += draw([]string{"", "", "!"}) + draw(rules) + "\n"
		}
		return text
	}
	if r.IntN(2) == 0 {
		files[".sourceignore"] = file(negated(r.IntN(5)))
	}
	for range r.IntN(4) {
		files[path.Join(draw(dirs), "x", ".sourceignore")] = file(draw(rules) + "\n")
	}
	if r.IntN(2) == 0 {
		spec = negated(r.IntN(5))
	}
	return files, spec
}

// TestTrees: on repositories of all shapes the archive has what git archive has, less what the
// rules of Flux leave out. Its bytes are the same from two clones and with any number of
// processors.
func TestTrees(t *testing.T) {
	n := suite.Count(4, 20)
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 19))
		files, spec := shaped(r, 40+r.IntN(400))
		tree := commit(t, files)
		cmd := exec.Command("git", "-C", tree.Remote.URL, "archive", "--format=tar", tree.Commit)
		whole, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		in := listed(t, whole)
		o := archive.Options{Ignore: &spec}
		first, d := packed(t, tree, o)
		got, want := listed(t, first), reference(in, spec)
		if !maps.Equal(got, want) {
			t.Errorf("seed %d, rules %q, %q:\n%s, want\n%s", seed, files[".sourceignore"].data, spec, names(got), names(want))
		}
		before := runtime.GOMAXPROCS(0)
		clone := fetched(t, tree.Remote.URL)
		for _, procs := range []int{1, 2, 8} {
			runtime.GOMAXPROCS(procs)
			if _, again := packed(t, clone, o); again != d {
				t.Errorf("seed %d, %d processors: %+v, want %+v", seed, procs, again, d)
			}
		}
		runtime.GOMAXPROCS(before)
	}
}

// TestGolden: these digests are the same with every release of Go and on every host. Another one
// needs another Version.
func TestGolden(t *testing.T) {
	t.Parallel()
	files, _ := shaped(rand.New(rand.NewPCG(1, 2)), 300)
	delete(files, ".sourceignore")
	_, d := packed(t, commit(t, files), archive.Options{Ignore: new("*.md"), KeepSymlinks: true})
	want := archive.Digests{Digest: "sha256:0a443f7844d287af7e9c61236514eccc4f37f091acf5846f99ace6036d66406f",
		TarDigest: "sha256:5ec02ffa287826792e80fc69c8f3f1aa2338569e38a9c9856d616de170236c73", Size: 16236, Files: 213}
	if d != want || archive.Version != "tar.gz/2" {
		t.Errorf("%+v, want %+v", d, want)
	}
}

func opened(data []byte) func(context.Context) (io.ReadCloser, error) {
	return func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
}

// TestIncludes: where the content of other archives comes to be.
func TestIncludes(t *testing.T) {
	t.Parallel()
	other, _ := packed(t, commit(t, map[string]entry{"a.yaml": file("other"), "sub/b.yaml": file("b"), "sub/.sourceignore": file("skip.*\n"),
		"sub/skip.yaml": file(""), "zero": file("")}), archive.Options{Ignore: new("!none")})
	tree := commit(t, map[string]entry{"a.yaml": file("own"), "dir/c.yaml": file("c"), "empty": {kind: tar.TypeDir, data: strings.Repeat("ab", 20)}})
	in := func(from, to string) archive.Include { return archive.Include{Open: opened(other), From: from, To: to} }
	for name, c := range map[string]struct {
		includes []archive.Include
		want     string // "" = IncludeError
	}{
		"whole":         {[]archive.Include{in("", "new/deep")}, ". a.yaml dir dir/c.yaml empty new new/deep new/deep/a.yaml new/deep/sub new/deep/sub/.sourceignore new/deep/sub/b.yaml new/deep/zero"},
		"part":          {[]archive.Include{in("sub/", "dir/b")}, ". a.yaml dir dir/b dir/b/.sourceignore dir/b/b.yaml dir/c.yaml empty"},
		"a file":        {[]archive.Include{in("./a.yaml", "dir/0")}, ". a.yaml dir dir/0 dir/c.yaml empty"},
		"over nothing":  {[]archive.Include{in("sub", "empty")}, ". a.yaml dir dir/c.yaml empty empty/.sourceignore empty/b.yaml"},
		"two":           {[]archive.Include{in("sub", "z"), in("sub", "z/y")}, ". a.yaml dir dir/c.yaml empty z z/.sourceignore z/b.yaml z/y z/y/.sourceignore z/y/b.yaml"},
		"not outside":   {[]archive.Include{in("sub", "../../z")}, ". a.yaml dir dir/c.yaml empty z z/.sourceignore z/b.yaml"},
		"not empty":     {[]archive.Include{in("sub", "dir")}, ""},
		"root":          {[]archive.Include{in("sub", "")}, ""},
		"below a file":  {[]archive.Include{in("sub", "a.yaml/x")}, ""},
		"twice":         {[]archive.Include{in("sub", "z"), in("sub", "z")}, ""},
		"not there":     {[]archive.Include{in("su", "z")}, ""},
		"no archive":    {[]archive.Include{{Open: opened([]byte("text")), To: "z"}}, ""},
		"cut":           {[]archive.Include{{Open: opened(other[:len(other)/2]), To: "z"}}, ""},
		"leads outside": {[]archive.Include{{Open: opened(tarOf(t, tar.Header{Name: "../x"})), To: "z"}}, ""},
		"file and dir":  {[]archive.Include{{Open: opened(tarOf(t, tar.Header{Name: "x"}, tar.Header{Name: "x/y"})), To: "z"}}, ""},
	} {
		var out bytes.Buffer
		_, err := archive.Write(t.Context(), &out, tree, archive.Options{Includes: c.includes})
		if _, ok := errors.AsType[*archive.IncludeError](err); ok != (c.want == "") {
			t.Errorf("%s: %v", name, err)
		} else if got := listed(t, out.Bytes()); c.want != "" && names(got) != c.want {
			t.Errorf("%s:\n%s, want\n%s", name, names(got), c.want)
		} else if b := got["new/deep/a.yaml"]; name == "whole" && (b.data != "other" || got["a.yaml"].data != "own") {
			t.Errorf("the content is mixed up: %+v", got)
		}
	}
	var all []archive.Include
	for i := range 100 {
		all = append(all, in("sub", fmt.Sprintf("many/%d", (i*37)%100)))
	}
	data, _ := packed(t, tree, archive.Options{Includes: all})
	if got := listed(t, data); len(got) != 5+1+300 || got["many/99/b.yaml"].data != "b" {
		t.Errorf("100 includes: %d entries", len(got))
	}
	_, err := archive.Write(t.Context(), io.Discard, tree, archive.Options{Includes: all[:1], MaxBytes: 1})
	if _, ok := errors.AsType[*archive.LimitError](err); !ok {
		t.Errorf("a large include: %v", err)
	}
}

// TestSubmodules: one that is asked for is a part of the tree, with its rules.
func TestSubmodules(t *testing.T) {
	t.Parallel()
	inner := commit(t, map[string]entry{"b.yaml": file("b"), "skip/c": file("c"), ".sourceignore": file("/skip"), "link": link("b.yaml")})
	rel, err := filepath.Rel(t.TempDir(), inner.Remote.URL)
	if err != nil {
		t.Fatal(err)
	}
	tree := commit(t, map[string]entry{"a.yaml": file("a"), "skip": file(""), "lib/sub": {kind: tar.TypeDir, data: inner.Commit},
		".gitmodules": file("[submodule \"sub\"]\n\tpath = lib/sub\n\turl = ../" + rel + "\n")})
	for o, want := range map[bool]string{false: ". a.yaml lib lib/sub skip",
		true: ". a.yaml lib lib/sub lib/sub/.sourceignore lib/sub/b.yaml lib/sub/link skip"} {
		data, _ := packed(t, tree, archive.Options{Submodules: o, KeepSymlinks: true})
		if got := listed(t, data); names(got) != want || o && got["lib/sub/b.yaml"].data != "b" {
			t.Errorf("submodules %v: %s, want %s", o, names(got), want)
		}
	}
}

// TestPruned: what is excluded as a whole is not walked, which a tree of 10^10 files shows.
func TestPruned(t *testing.T) {
	t.Parallel()
	repo := testenv.EmptyRepo(t)
	hash := func(kind, data string) string {
		cmd := exec.Command("git", "-C", repo.Dir, "hash-object", "-t", kind, "-w", "--stdin", "--literally")
		cmd.Stdin = strings.NewReader(data)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	raw := func(mode, hash string, names ...string) (text string) {
		id, _ := hex.DecodeString(hash)
		for _, name := range names {
			text += mode + " " + name + "\x00" + string(id)
		}
		return text
	}
	blob := hash("blob", "x")
	ten := strings.Fields("0 1 2 3 4 5 6 7 8 9")
	huge := hash("tree", raw("100644", blob, ten...))
	for range 9 {
		huge = hash("tree", raw("40000", huge, ten...))
	}
	root := hash("tree", raw("100644", blob, "a.yaml")+raw("40000", huge, "node_modules"))
	repo.Git(t, "update-ref", "refs/heads/main", repo.Git(t, "commit-tree", "-m", "huge", root))
	tree := fetched(t, repo.Dir)
	for rules, want := range map[string]string{"/node_modules/": ". a.yaml", "*\n!/a*": ". a.yaml", "!/b/c\nnode_modules\n!/x/**/y\n!*/z/": ". a.yaml"} {
		if data, _ := packed(t, tree, archive.Options{Ignore: &rules}); names(listed(t, data)) != want {
			t.Errorf("%q: %s, want %s", rules, names(listed(t, data)), want)
		}
	}
	tree.Remote.Limits.TreeEntries = 10_000
	_, err := archive.Write(t.Context(), io.Discard, tree, archive.Options{Ignore: new("node_modules\n!/node_modules/**/x")})
	if e, ok := errors.AsType[*archive.LimitError](err); !ok || e.Limit != 10_000 {
		t.Errorf("without end: %v", err)
	}
}

func tarOf(t *testing.T, headers ...tar.Header) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for _, h := range headers {
		h.Typeflag, h.Mode = tar.TypeReg, 0o600
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
