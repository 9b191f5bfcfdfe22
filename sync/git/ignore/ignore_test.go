package ignore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"

	"limpet/sync/git/ignore"
)

// patterns reads rules one by one, as Flux does.
func patterns(text string, domain []string) (out []gitignore.Pattern) {
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if line := lines.Text(); !strings.HasPrefix(line, "#") && strings.TrimSpace(line) != "" {
			out = append(out, gitignore.ParsePattern(line, domain))
		}
	}
	return out
}

// TestBudget: files share one budget, and what is beyond it is an error, never a part of the rules.
func TestBudget(t *testing.T) {
	many := func(form string, n int) (text string) {
		for i := range n {
			text += fmt.Sprintf(form+"\n", i)
		}
		return text
	}
	for name, c := range map[string]struct {
		text  string
		files int
		what  string // "" = allowed
	}{
		"equal lines":   {strings.Repeat("x\n", ignore.MaxBytes/4), 2, ""},
		"equal, larger": {strings.Repeat("x\n", ignore.MaxBytes/2), 2, "bytes"},
		"names":         {many("name%d", ignore.MaxRules/4), 4, ""},
		"more names":    {many("name%d", ignore.MaxRules/4), 5, "rules"},
		"patterns":      {many("*%d", ignore.MaxRules+1), 1, "rules"},
		"long line":     {"x\n" + strings.Repeat("q", 70_000) + "\nsecret", 1, "bytes in a line"},
	} {
		budget := ignore.NewBudget()
		var err error
		for range c.files {
			if err == nil {
				_, err = budget.Parse([]byte(c.text), nil)
			}
		}
		if e, _ := errors.AsType[*ignore.LimitError](err); (e == nil) != (c.what == "") || e != nil && e.What != c.what {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	rules, err := ignore.NewBudget().Parse([]byte(many("*%d", 100)), nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, _, err = ignore.Match(ctx, []*ignore.Rules{rules}, []string{"x"}, false); !errors.Is(err, context.Canceled) {
		t.Errorf("a match whose context has ended: %v", err)
	}
}

// FuzzPrune: rules match as those of Flux do, one by one. And where no rule may return below an
// excluded directory, everything below it is excluded.
func FuzzPrune(f *testing.F) {
	for _, seed := range [][3]string{
		{"/*\n!/deploy/prod", "deploy", "prod/app.yaml"}, {"*\n!*.yaml", "a", "b.yaml"}, {"a/\n!a/**/c", "a", "b/c"}, {"a\n!/a//b", "a", "b/x"},
		{"x/**\n!**/y", "x", "y"}, {"a\n!a**/b", "a", "b"}, {"vendor/\n!vend*/x/", "vendor", "x/y"}, {"a\n!\\a/b \n", "a", "b"}, {"[\n!a/[b", "a", "b"},
		{"a\n!/b/c", "a", "c"}, {"a/b\n!a/b/c/d", "a/b", "c/d"}, {"a\n!//a/b/", "a", "b/c"}, {"a\n!a/b\\ ", "a", "b "}, {"#a\n \n!\n!/", "a", "b"},
		{"a\n!a\na/", "a", "b"}, {"x/\n!x\ny \r\n", "a", "x/y"}, {"b\n!b/\n", "a/b", "b"}, {"*\n!b\n*\n", "a", "b"}, {"!b\nb/", "b", "c"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, text, dir, below string) {
		var domain []string
		if first, rest, ok := strings.Cut(dir, ":"); ok { // rules of a file below the root
			domain, dir = []string{first}, first+"/"+rest
		}
		own, err := ignore.NewBudget().Parse([]byte(text), domain)
		if err != nil {
			return
		}
		rules := []*ignore.Rules{own}
		match := func(path []string, isDir bool) (bool, ignore.Place) {
			excluded, by, err := ignore.Match(t.Context(), rules, path, isDir)
			want := gitignore.NewMatcher(patterns(text, domain)).Match(path, isDir)
			if err != nil || excluded != want {
				t.Errorf("%q excludes %q: %v, want %v (%v)", text, path, excluded, want, err)
			}
			return excluded, by
		}
		at := strings.Split(dir, "/")
		excluded, by := match(at, true)
		if !excluded || ignore.MayReturn(rules, by, at) {
			return
		}
		path := append(at, strings.Split(below, "/")...)
		for _, isDir := range []bool{true, false} {
			if again, _ := match(path, isDir); !again {
				t.Errorf("%q excludes %q, and not %q", text, at, path)
			}
		}
	})
}
