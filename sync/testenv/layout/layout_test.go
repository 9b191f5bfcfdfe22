// Package layout tests the shape of the source: files, folders, imports, comments.
package layout

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	mostFiles  = 40      // Go files of a folder, tests included
	mostLines  = 600     // of a file
	mostSource = 114_772 // lines of all files without tests and their support; the aim is 89,000
)

// layers are the packages from the bottom to the top, each with those below its
// folder that have no row of their own. A package imports from its own row and from
// rows above it. aim is the number of source lines without tests; 0 = none was set.
var layers = []struct {
	path string
	aim  int
}{
	{"sync/failpoint", 0},
	{"sync/text", 300},
	{"sync/program", 0},
	{"sync/fileid", 0},
	{"sync/garbage", 0},
	{"state/frame", 0},
	{"state/repair", 1200},
	{"state", 2800},
	{"sync/netx", 700},
	{"sync/api", 1000},
	{"sync/kube", 3200},
	{"sync/signature", 1100},
	{"sync/auth", 1900},
	{"sync/identity", 1000},
	{"sync/dependency", 700},
	{"sync/forge", 1800},
	{"sync/notify", 600},
	{"sync/git", 7500},
	{"sync/api/admission", 1200},
	{"sync/resources", 2800},
	{"sync/jobs", 5000},
	{"sync/worker", 3800},
	{"sync/source", 800},
	{"sync/source/upstream", 200},
	{"sync/reconcile", 450},
	{"sync/repos", 3300},
	{"sync/source/controller", 1300},
	{"sync/source/kind", 0},
	{"sync/apiserver", 5000},
	{"sync/webhook", 1300},
	{"sync/metrics", 900},
	{"sync/snapshot", 2000},
	{"sync/page", 400},
	{"sync/control", 1300},
	{"sync/agent", 1000},
	{"tui/widget", 2000},
	{"tui/screen", 4000},
	{"tui", 1500},
	{"tui/cli/clitest", 0}, // for tests alone
	{"tui/cli/help", 0},
	{"tui/cli/command", 1600},
	{"tui/cli/history", 0},
	{"tui/cli/job", 0},
	{"tui/cli/object", 0},
	{"tui/cli/repo", 0},
	{"tui/cli/source", 0},
	{"tui/cli/config", 0},
	{"tui/cli/service", 0},
	{"tui/cli/doctor", 0},
	{"tui/cli/store", 0},
	{"tui/cli/status", 0},
	{"tui/cli/complete", 0},
	{"tui/cli/fleet", 0},
	{"tui/cli/monitoring", 0},
	{"tui/cli/manifests", 0},
	{"tui/cli/daemon", 0},
	{"tui/cli", 400},
	{".", 0},
	{"sync/testenv", 4500}, // for tests alone
}

// layerOf returns the row of a folder of the module, -1 when it has none.
func layerOf(dir string) int {
	found, length := -1, -1
	for i, l := range layers {
		if (dir == l.path || strings.HasPrefix(dir, l.path+"/")) && len(l.path) > length {
			found, length = i, len(l.path)
		}
	}
	return found
}

// measure is what a row consists of.
type measure struct{ source, tests, files int }

// TestMain runs the tests in the root of the module.
func TestMain(m *testing.M) {
	if err := os.Chdir("../../.."); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// pkg is what go list says of one package.
type pkg struct {
	ImportPath string
	Imports    []string
	Standard   bool
}

// packages lists the packages of the module, or with deps everything that is
// linked into the binary.
func packages(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports,Standard"}, args...)...)
	var errText bytes.Buffer
	cmd.Stderr = &errText
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &errText)
	}
	var all []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// TestDoors keeps each heavy dependency behind one package and those below it.
// TestSize keeps the direction of the imports.
func TestDoors(t *testing.T) {
	t.Parallel()
	doors := []struct{ dependency, door string }{
		{"go.etcd.io/bbolt", "limpet/state"},
		{"k8s.io/client-go", "limpet/sync/kube"},
		{"github.com/go-git/", "limpet/sync/git"},
		{"charm.land/", "limpet/tui"},
		{"github.com/charmbracelet/", "limpet/tui"},
		{"github.com/alecthomas/kong", "limpet/tui/cli"},
		{"github.com/prometheus/", "limpet/sync/metrics"},
		{"golang.org/x/oauth2", "limpet/sync/identity"},
		{"github.com/Azure/", "limpet/sync/identity"},
		{"github.com/google/go-github", "limpet/sync/forge"},
		{"github.com/ProtonMail/go-crypto", "limpet/sync/signature"},
		{"github.com/hiddeco/sshsig", "limpet/sync/signature"},
		{"code.dny.dev/ssrf", "limpet/sync/netx"},
		{"github.com/aymanbagabas/go-udiff", "limpet/sync/snapshot"},
	}
	behind := func(path, door string) bool { return path == door || strings.HasPrefix(path, door+"/") }
	for _, p := range packages(t, "./...") {
		for _, imp := range p.Imports {
			for _, d := range doors {
				// The work queue of client-go may stand where it is used.
				if strings.HasPrefix(imp, d.dependency) && !behind(p.ImportPath, d.door) && imp != "k8s.io/client-go/util/workqueue" {
					t.Errorf("%s imports %s, whose door is %s", p.ImportPath, imp, d.door)
				}
			}
		}
	}
}

// TestLean keeps out of the binary what makes it heavy.
func TestLean(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t, "-deps", ".") {
		for _, heavy := range []string{"k8s.io/api/", "k8s.io/client-go/informers", "k8s.io/client-go/kubernetes",
			"k8s.io/client-go/dynamic/dynamicinformer", "k8s.io/apiserver", "sigs.k8s.io/controller-runtime", "net/http/cgi"} {
			if strings.HasPrefix(p.ImportPath, heavy) {
				t.Errorf("%s is linked into the binary", p.ImportPath)
			}
		}
	}
}

// TestMap: the files that the package documentation names are there.
func TestMap(t *testing.T) {
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("git", "ls-files").Output()
	if err != nil {
		t.Fatal(err)
	}
	doc, _, _ := strings.Cut(string(text), "\npackage main")
	for _, name := range regexp.MustCompile(`[a-z/]+\.go\b`).FindAllString(doc, -1) {
		if !strings.Contains("\n"+string(out), "\n"+name+"\n") && !strings.Contains(string(out), "/"+name+"\n") {
			t.Errorf("%s is no file", name)
		}
	}
}

// mostDetached bounds the comments between declarations that belong to none: such a comment is the
// head of another file.
const mostDetached = 10

// TestComments: files and names that comments refer to are there, and comments belong to a
// declaration or to the head of their file.
func TestComments(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("git", "ls-files").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, code := map[string]bool{}, map[string]bool{}
	parsed, fset := map[string]*ast.File{}, token.NewFileSet()
	for path := range strings.FieldsSeq(string(out)) {
		files[filepath.Base(path)] = true
		if !strings.HasSuffix(path, ".go") {
			continue
		}
		if parsed[path], err = parser.ParseFile(fset, path, nil, parser.ParseComments); err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed[path], func(n ast.Node) bool {
			if id, is := n.(*ast.Ident); is {
				code[id.Name] = true
			}
			return true
		})
	}
	file, name := regexp.MustCompile(`(^|[\s(])([a-z0-9_]+\.go)\b`), regexp.MustCompile(`\b[Ss]ee ([a-z]+\.)?([A-Z]\w+)`)
	var detached []string
	for path, f := range parsed {
		for _, c := range f.Comments {
			for _, m := range file.FindAllStringSubmatch(c.Text(), -1) {
				if !files[m[2]] {
					t.Errorf("%s: %s is no file", fset.Position(c.Pos()), m[2])
				}
			}
			for _, m := range name.FindAllStringSubmatch(c.Text(), -1) {
				if !code[m[2]] && !strings.HasPrefix(m[2], "RFC") {
					t.Errorf("%s: %s is no name", fset.Position(c.Pos()), m[2])
				}
			}
		}
		if !strings.HasSuffix(path, "_test.go") {
			detached = append(detached, detachedIn(fset, f)...)
		}
	}
	if len(detached) > mostDetached {
		t.Errorf("%d comments between declarations: %s", len(detached), detached)
	}
}

// detachedIn returns the places of the comments between two declarations of a file that document
// neither.
func detachedIn(fset *token.FileSet, f *ast.File) (places []string) {
	end := token.NoPos // of the declaration before
	for _, d := range f.Decls {
		begin, doc := d.Pos(), (*ast.CommentGroup)(nil)
		switch d := d.(type) {
		case *ast.FuncDecl:
			doc = d.Doc
		case *ast.GenDecl:
			doc = d.Doc
			if d.Tok == token.IMPORT {
				continue
			}
		}
		for _, c := range f.Comments {
			if end.IsValid() && c != doc && c.Pos() > end && c.End() < begin && fset.Position(c.Pos()).Column == 1 {
				places = append(places, fset.Position(c.Pos()).String())
			}
		}
		end = d.End()
	}
	return places
}

// TestSize holds the rules about files, folders and the direction of imports. With -v
// it prints the lines of each package beside its aim.
func TestSize(t *testing.T) {
	t.Parallel()
	var wrong []string
	rows, folders := map[int]*measure{}, map[string]int{}
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && path != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "dist") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, n := filepath.ToSlash(filepath.Dir(path)), bytes.Count(data, []byte("\n"))
		if folders[dir]++; n > mostLines {
			wrong = append(wrong, "long file: "+filepath.ToSlash(path))
		}
		row := layerOf(dir)
		if rows[row] == nil {
			rows[row] = &measure{}
		}
		rows[row].files++
		if strings.HasSuffix(path, "_test.go") {
			rows[row].tests += n
		} else {
			rows[row].source += n
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir, n := range folders {
		if n > mostFiles {
			wrong = append(wrong, "full folder: "+dir)
		}
		if layerOf(dir) < 0 {
			wrong = append(wrong, "no row: "+dir)
		}
	}
	for _, p := range packages(t, "./...") {
		from := dirOf(p.ImportPath)
		for _, imp := range p.Imports {
			if to := dirOf(imp); to != "" && layerOf(from) < layerOf(to) && layerOf(from) >= 0 {
				wrong = append(wrong, "upward import: "+from+" -> "+to)
			}
		}
	}
	if n := sum(rows); n.source > mostSource || n.tests > n.source {
		wrong = append(wrong, fmt.Sprintf("%d lines of source and %d of tests", n.source, n.tests))
	}
	slices.Sort(wrong)
	for _, w := range wrong {
		t.Error(w)
	}
	t.Logf("\n%s", table(rows, folders))
}

// dirOf returns the folder of a package of the module, "" for others.
func dirOf(path string) string {
	if path == "limpet" {
		return "."
	}
	dir, ok := strings.CutPrefix(path, "limpet/")
	if !ok {
		return ""
	}
	return dir
}

// support are the packages that only tests import, and failpoint, of which the program has nothing.
var support = []string{"sync/testenv", "tui/cli/clitest", "sync/failpoint"}

// sum returns the lines of all rows, those of source without support.
func sum(rows map[int]*measure) (all measure) {
	for i, m := range rows {
		if i < 0 || !slices.Contains(support, layers[i].path) {
			all.source += m.source
		}
		all.tests += m.tests
		all.files += m.files
	}
	return all
}

// table prints the rows, and the fullest folders.
func table(rows map[int]*measure, folders map[string]int) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%-18s %7s %7s %7s %6s\n", "package", "source", "aim", "tests", "files")
	aims := 0
	line := func(name string, aim int, m measure) {
		fmt.Fprintf(&out, "%-18s %7d %7d %7d %6d\n", name, m.source, aim, m.tests, m.files)
	}
	for i, l := range layers {
		m := rows[i]
		if m == nil {
			m = &measure{}
		}
		line(l.path, l.aim, *m)
		if !slices.Contains(support, l.path) {
			aims += l.aim
		}
	}
	line("without support", aims, sum(rows))
	full := slices.SortedFunc(maps.Keys(folders), func(a, b string) int { return folders[b] - folders[a] })
	for _, dir := range full[:min(5, len(full))] {
		fmt.Fprintf(&out, "%d files in %s\n", folders[dir], dir)
	}
	return out.String()
}
