package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	mostFiles = 40  // Go files of a folder, tests included
	mostLines = 600 // of a file
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
	{"state/frame", 0},
	{"state/repair", 1200},
	{"state", 2800},
	{"sync/netx", 700},
	{"sync/api", 1000},
	{"sync/kube", 3200},
	{"sync/signature", 1100},
	{"sync/identity", 1000},
	{"sync/auth", 1900},
	{"sync/dependency", 700},
	{"sync/forge", 1800},
	{"sync/git", 7500},
	{"sync/api/admission", 1200},
	{"sync/resources", 2800},
	{"sync/jobs", 5000},
	{"sync/worker", 3800},
	{"sync/repos", 3600},
	{"sync/webhook", 1300},
	{"sync/source", 800},
	{"sync/apiserver", 5000},
	{"sync/metrics", 900},
	{"sync/snapshot", 2000},
	{"sync/control", 1300},
	{"sync/agent", 1000},
	{"tui/widget", 2000},
	{"tui/screen", 4000},
	{"tui", 1500},
	{"tui/cli/clitest", 0}, // for tests alone
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
	{"tui/cli/daemon", 0},
	{"tui/cli/complete", 0},
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
	slices.Sort(wrong)
	for _, w := range wrong {
		if !slices.Contains(exceptions, w) {
			t.Error(w)
		}
	}
	for _, e := range exceptions {
		if !slices.Contains(wrong, e) {
			t.Logf("remove the exception %q: it holds no longer", e)
		}
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

// table prints the rows, and the fullest folders.
func table(rows map[int]*measure, folders map[string]int) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%-18s %7s %7s %7s %6s\n", "package", "source", "aim", "tests", "files")
	var sum measure
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
		if l.path != "sync/testenv" {
			sum.source, aims = sum.source+m.source, aims+l.aim
		}
		sum.tests, sum.files = sum.tests+m.tests, sum.files+m.files
	}
	if m := rows[-1]; m != nil {
		line("without a row", 0, *m)
		sum = measure{sum.source + m.source, sum.tests + m.tests, sum.files + m.files}
	}
	line("all but testenv", aims, sum)
	full := slices.SortedFunc(maps.Keys(folders), func(a, b string) int { return folders[b] - folders[a] })
	for _, dir := range full[:min(5, len(full))] {
		fmt.Fprintf(&out, "%d files in %s\n", folders[dir], dir)
	}
	return out.String()
}

// exceptions are what is not yet as it has to be. Nothing is added here.
var exceptions = []string{
	"full folder: sync/apiserver",
	"full folder: sync/git",
	"upward import: sync/identity -> sync/auth",
	"upward import: sync/repos -> sync/source",
}
