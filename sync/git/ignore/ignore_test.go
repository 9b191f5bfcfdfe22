package ignore_test

import (
	"strings"
	"testing"

	"limpet/sync/git/ignore"
)

// FuzzPrune: where no rule may return below an excluded directory, everything below it is excluded.
func FuzzPrune(f *testing.F) {
	for _, seed := range [][3]string{
		{"/*\n!/deploy/prod", "deploy", "prod/app.yaml"}, {"*\n!*.yaml", "a", "b.yaml"}, {"a/\n!a/**/c", "a", "b/c"}, {"a\n!/a//b", "a", "b/x"},
		{"x/**\n!**/y", "x", "y"}, {"a\n!a**/b", "a", "b"}, {"vendor/\n!vend*/x/", "vendor", "x/y"}, {"a\n!\\a/b \n", "a", "b"}, {"[\n!a/[b", "a", "b"},
		{"a\n!/b/c", "a", "c"}, {"a/b\n!a/b/c/d", "a/b", "c/d"}, {"a\n!//a/b/", "a", "b/c"}, {"a\n!a/b\\ ", "a", "b "}, {"#a\n \n!\n!/", "a", "b"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, text, dir, below string) {
		var domain []string
		if first, rest, ok := strings.Cut(dir, ":"); ok { // rules of a file below the root
			domain, dir = []string{first}, first+"/"+rest
		}
		rules := ignore.Parse([]byte(text), domain)
		at := strings.Split(dir, "/")
		excluded, by := ignore.Match(rules, at, true)
		if !excluded || ignore.MayReturn(rules[by:], at) {
			return
		}
		path := append(at, strings.Split(below, "/")...)
		for _, isDir := range []bool{true, false} {
			if again, _ := ignore.Match(rules, path, isDir); !again {
				t.Errorf("%q excludes %q, and not %q", text, at, path)
			}
		}
	})
}
