package attributes

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"limpet/sync/git/giterr"
	"limpet/sync/testenv/gittest"
	"limpet/sync/testenv/suite"
)

// words are what patterns and paths are made of: what git lfs track writes, and what its documentation leaves open.
var (
	names    = strings.Fields("a b ab a.bin b.bin a[b ]x x-y A.BIN Größe.bin _ !n a\\b #h")
	patterns = strings.Fields("* *.bin ** a a* ?.bin a? [ab] [!a]* [^a].bin [a-c]* [[:upper:]]* *[[:punct:]]* [a-] []]* [!]]* [a " +
		"a\\b \\a \\ \\*.bin [\\a-c]b [[:nope:]] x[+-9]y *** **.bin a**b # \\#h !n \\!n *[[:space:]]* *.bin/ [.-0]* [a/]* [+-/]* " + `"a b" "a\142" "\303\274"`)
	states = strings.Fields("filter=lfs filter=lfs filter=lfs filter=x -filter !filter filter m -m !m m=1 n k text -text -filter=lfs " +
		"filter= bad/name binary")
)

// tree makes the .gitattributes of a tree, by directory, and paths in it.
func tree(r *rand.Rand) (files map[string]string, paths []string) {
	pick := func(from []string) string { return from[r.IntN(len(from))] }
	join := func(from []string) string {
		parts := make([]string, 1+r.IntN(3))
		for i := range parts {
			parts[i] = pick(from)
		}
		return strings.Join(parts, "/")
	}
	for range 60 {
		paths = append(paths, join(names))
	}
	paths = append(paths, "a b", "d e/a b")
	files = map[string]string{}
	for i := range 1 + r.IntN(4) {
		dir := ""
		if i > 0 {
			dir = strings.TrimPrefix(path.Dir(pick(paths))+"/", "./")
		}
		if slices.Contains(paths, strings.TrimSuffix(dir, "/")) {
			continue // it is a file
		}
		var out strings.Builder
		for range 1 + r.IntN(8) {
			p := join(patterns)
			switch r.IntN(12) {
			case 0:
				p = "/" + p
			case 1:
				p = "**/" + p
			case 2:
				p += "/**"
			case 3:
				p = "[attr]" + pick([]string{"m", "n", "k", "-m"})
			}
			fmt.Fprint(&out, pick([]string{"", "", "", " ", "\t"}), p)
			for range 1 + r.IntN(3) {
				fmt.Fprint(&out, pick([]string{" ", "\t", "  "}), pick(states))
			}
			out.WriteString(pick([]string{"\n", "\r\n", " \n", "\n\n"}))
		}
		files[dir] += out.String()
	}
	return files, paths
}

// TestAgainstGit compares with git check-attr over random trees.
func TestAgainstGit(t *testing.T) {
	t.Parallel()
	const seed = 1
	random := rand.New(rand.NewPCG(seed, 0))
	compared, lfs := 0, 0
	for range suite.Count(40, 1000) {
		files, paths := tree(random)
		root := t.TempDir()
		gittest.Git(t, root, nil, "init", "-q")
		for dir, text := range files {
			if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, dir, File), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out := gittest.Git(t, root, nil, append([]string{"check-attr", "-z", filter, "--"}, paths...)...)
		fields := strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
		if len(fields) != 3*len(paths) {
			t.Fatalf("git says %q", out)
		}
		for i, p := range paths {
			var rules Rules
			at, dir := 0, ""
			for at >= 0 {
				var err error
				if rules, err = rules.Below(dir, []byte(files[dir])); err != nil {
					t.Fatal(err)
				}
				at, dir = next(p, len(dir))
			}
			compared++
			want := fields[3*i+2] == "lfs"
			if want {
				lfs++
			}
			if got := rules.Filter(p) == "lfs"; got != want {
				t.Fatalf("seed %d: %q: git says %q, got %q, of %q", seed, p, fields[3*i+2], rules.Filter(p), files)
			}
		}
	}
	if lfs < compared/20 {
		t.Errorf("only %d of %d paths are of Git LFS", lfs, compared)
	}
}

// next returns the directory of a path below one of n bytes, -1 for none.
func next(p string, n int) (at int, dir string) {
	if at = strings.IndexByte(p[n:], '/'); at < 0 {
		return at, ""
	}
	return at, p[:n+at+1]
}

func TestBounds(t *testing.T) {
	t.Parallel()
	many := strings.Repeat("x filter=lfs\n", MaxRules)
	rules, err := Rules{}.Below("", []byte(many+strings.Repeat("x text\n", MaxRules)))
	if err != nil || rules.Filter("x") != "lfs" {
		t.Errorf("%q, %v", rules.Filter("x"), err)
	}
	if _, err := rules.Below("d/", []byte("y filter=lfs\n")); !errors.As(err, new(*giterr.TooLargeError)) {
		t.Errorf("one more: %v", err)
	}
	long, err := Rules{}.Below("", []byte("y filter=lfs\n"+strings.Repeat("x", maxLine)+" filter=lfs\n"))
	if err != nil || len(long.rules) != 1 {
		t.Errorf("%d rules, %v", len(long.rules), err)
	}
}
