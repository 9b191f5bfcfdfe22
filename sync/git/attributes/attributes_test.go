package attributes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"limpet/sync/git/giterr"
	"limpet/sync/testenv/gittest"
	"limpet/sync/testenv/suite"
)

// words are what patterns and paths are made of: what git lfs track writes, and what its
// documentation leaves open.
var (
	names    = strings.Fields("a b ab a.bin b.bin a[b ]x x-y A.BIN Größe.bin _ !n a\\b #h")
	patterns = strings.Fields("* *.bin ** a a* ?.bin a? [ab] [!a]* [^a].bin [a-c]* [[:upper:]]* *[[:punct:]]* [a-] []]* [!]]* [a " +
		"a\\b \\a \\ \\*.bin [\\a-c]b [[:nope:]] x[+-9]y *** **.bin a**b # \\#h !n \\!n *[[:space:]]* *.bin/ [.-0]* [a/]* [+-/]* " + `"a b" "a\142" "\303\274"`)
	states = strings.Fields("filter=lfs filter=lfs filter=lfs filter=x -filter !filter filter m -m !m m=1 n k text -text -filter=lfs " +
		"filter= bad/name binary")
)

// randomTree makes the .gitattributes of a tree, by directory, and paths in it.
func randomTree(r *rand.Rand) (files map[string]string, paths []string) {
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
		files, paths := randomTree(random)
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
			rules := New()
			at, dir := 0, ""
			for at >= 0 {
				var err error
				if rules, err = rules.Below(t.Context(), dir, []byte(files[dir])); err != nil {
					t.Fatal(err)
				}
				at, dir = next(p, len(dir))
			}
			compared++
			want := fields[3*i+2] == "lfs"
			if want {
				lfs++
			}
			if got, err := rules.Filter(t.Context(), p); err != nil || (got == "lfs") != want {
				t.Fatalf("seed %d: %q: git says %q, got %q, %v, of %q", seed, p, fields[3*i+2], got, err, files)
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
	ctx := t.Context()
	lines := func(n int, format string) (out []byte) {
		for i := range n {
			out = fmt.Appendf(out, format, i)
		}
		return out
	}
	tests := []struct {
		name  string
		first []byte // in the root
		ok    bool
	}{
		{"plain names", lines(MaxFilters-1, "x%d filter=lfs\n"), true},
		{"attributes of no filter", lines(MaxBytes/8, "*%d text\n"), true},
		{"equal patterns", []byte(strings.Repeat("*[a-z]*x filter=lfs\n", MaxFilters-1)), true},
		{"too many plain names", lines(MaxFilters, "x%d filter=lfs\n"), false},
		{"too many macros", lines(MaxFilters/2, "[attr]m%d n\n"), false},
		{"too many attributes of macros", []byte("[attr]m n\n" + strings.Repeat("x -m m\n", MaxFilters/2)), false},
		{"too many patterns", lines(maxGlobs/100, "*%d"+strings.Repeat("[!a]", 25)+" filter=lfs\n"), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rules, err := New().Below(ctx, "", tt.first)
			if err == nil { // it counts for the whole tree
				rules, err = rules.Below(ctx, "d/", []byte("y filter=lfs\n"))
			}
			if large := errors.As(err, new(*giterr.TooLargeError)); large == tt.ok || err != nil && !large {
				t.Fatal(err)
			}
			if got, err := rules.Filter(ctx, "d/y"); tt.ok && (got != "lfs" || err != nil) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	long, err := New().Below(ctx, "", []byte("y filter=lfs\n"+strings.Repeat("x", maxLine)+" filter=lfs\n"))
	if err != nil || len(long.literals) != 1 {
		t.Errorf("%d rules, %v", len(long.literals), err)
	}
}

// TestHostile has patterns at their bound match the worst of names, until the steps end it.
func TestHostile(t *testing.T) {
	t.Parallel()
	var file []byte
	for i := range maxGlobs / 512 {
		file = fmt.Appendf(file, "%s*%d filter=lfs\n", strings.Repeat("*a", 250), i%10)
	}
	name := strings.Repeat("a", 254)
	rules, err := New().Below(t.Context(), "", file)
	if err != nil {
		t.Fatal(err)
	}
	rules.tree.steps = maxSteps - 1<<23
	for i := 0; err == nil; i++ {
		_, err = rules.Filter(t.Context(), name+strconv.Itoa(i%10))
	}
	if !errors.As(err, new(*giterr.TooLargeError)) {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New().Below(ended, "", file); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if rules, err = New().Below(t.Context(), "", file); err != nil {
		t.Fatal(err)
	}
	if _, err := rules.Filter(ended, name+"1"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
