package gitref

import (
	"strings"
	"testing"
)

var hash = strings.Repeat("0123456789", 4)

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, s := range []Selector{
		{}, {Branch: "main"}, {Branch: "feature/login"}, {Tag: "v1.2.3"}, {Tag: "app/v1"}, {SemVer: "1.x"}, {SemVer: ">=1.0.0 <2.0.0"},
		{SemVer: "1.x || 3.x"},
		{SemVer: "*", TagPrefix: "app/", SemVerFilter: `^app/v\d`}, {SemVer: ">=1.0.0-0", TagPrefix: "site-"}, {Name: "refs/pull/420/head"},
		{Name: "refs/merge-requests/7/merge"}, {Name: "refs/heads/main"}, {Name: "refs/stash/x"}, {Commit: hash}, {Commit: hash, Branch: "main"},
	} {
		if err := s.Check(); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
	for _, c := range []struct {
		s    Selector
		want string
	}{
		{Selector{Branch: "main", Tag: "v1"}, "branch and tag: only one"},
		{Selector{Tag: "v1", SemVer: "1.x"}, "tag and semver: only one"},
		{Selector{Branch: "main", Name: "refs/heads/main"}, "branch and ref: only one"},
		{Selector{Branch: "main", SemVer: "1.x"}, "only one"},
		{Selector{Commit: hash, Tag: "v1"}, "tag and commit: only one"},
		{Selector{Commit: hash, Branch: "main", Tag: "v1"}, "branch and tag and commit: only one"},
		{Selector{TagPrefix: "v"}, "give a range"},
		{Selector{Tag: "v1", SemVerFilter: "x"}, "give a range"},
		{Selector{Branch: "/main"}, "begins or ends with a slash"},
		{Selector{Name: "refs/pull/4/"}, "begins or ends with a slash"},
		{Selector{Tag: "--upload-pack=x"}, `begins with "-"`},
		{Selector{Name: "pull/420/head"}, "write it as refs/pull/420/head"},
		{Selector{Name: "refs/heads"}, "not the full name"},
		{Selector{SemVer: "latest"}, "write one such as 1.x"},
		{Selector{SemVer: strings.Repeat("1.x || ", 200)}, "at most 256 bytes"},
		{Selector{SemVer: "*", SemVerFilter: "("}, "not a regular expression"},
		{Selector{SemVer: "*", TagPrefix: "a b"}, "no tag begins with"},
		{Selector{Commit: "abc123"}, "all 40 digits"},
		{Selector{Commit: strings.Repeat("g", 40)}, "all 40 digits"},
		{Selector{Commit: strings.Repeat("a", 64)}, "SHA-256"},
	} {
		if err := c.s.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.s, err, c.want)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Selector{
		"tag:v1.2.3":                              {Tag: "v1.2.3"},
		"semver:1.x":                              {SemVer: "1.x"},
		" semver:>=1.0.0   <2.0.0\tprefix:app/ ":  {SemVer: ">=1.0.0 <2.0.0", TagPrefix: "app/"},
		"prefix:app/ filter:^app/v[0-9] semver:*": {SemVer: "*", TagPrefix: "app/", SemVerFilter: "^app/v[0-9]"},
		"semver:1.x || 3.x filter:a b prefix:v":   {SemVer: "1.x || 3.x", SemVerFilter: "a b", TagPrefix: "v"},
		"ref:refs/pull/420/head":                  {Name: "refs/pull/420/head"},
		"commit:" + hash:                          {Commit: hash},
		"commit:" + strings.Repeat("AB", 20):      {Commit: strings.Repeat("ab", 20)},
		"branch:release/1 commit:" + hash:         {Commit: hash, Branch: "release/1"},
	} {
		got, err := Parse(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
		if again, err := Parse(got.String()); err != nil || again != got {
			t.Errorf("%q is written as %q, which is %+v, %v", text, got, again, err)
		}
	}
	for text, want := range map[string]string{
		"":                            "empty; write tag:NAME",
		" \n":                         "empty; write tag:NAME",
		"v1.2.3":                      `"v1.2.3" is not understood; write tag:NAME`,
		"tags:v1":                     `"tags:v1" is not understood; write tag:NAME`,
		"tag:":                        "nothing follows the colon",
		"tag:a tag:b":                 "given twice",
		"tag:a b":                     `"b" is not understood`,
		"tag:a semver:1.x":            "tag and semver: only one",
		"branch:main":                 "given in the spec",
		"branch:main ref:refs/x/y":    "only one",
		"prefix:app/":                 "give a range",
		"semver:newest":               "write one such as 1.x",
		"ref:main":                    "not the full name",
		"commit:abc":                  "all 40 digits",
		"tag:a\u202eb":                "invisible character",
		"tag:\xff":                    "not UTF-8",
		strings.Repeat("tag:a ", 200): "longer than 1000 bytes",
	} {
		if s, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v, want %q", text, s, err, want)
		}
	}
}

func TestOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		annotation, branch string
		want               Selector
	}{
		{"", "", Selector{}}, {"", "main", Selector{Branch: "main"}}, {"", "refs/heads/main", Selector{Branch: "main"}},
		{"tag:v1", "main", Selector{Tag: "v1"}},
	} {
		if got, err := Of(c.annotation, c.branch); err != nil || got != c.want {
			t.Errorf("%q, %q: %+v, %v", c.annotation, c.branch, got, err)
		}
	}
	for _, c := range [][2]string{{"", "-x"}, {"tag", "main"}} {
		if s, err := Of(c[0], c[1]); err == nil {
			t.Errorf("%q: %+v", c, s)
		}
	}
}

// FuzzParse: what is taken passes the rules, and is the same when it is written
// and read again.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"tag:v1.2.3", "semver:>=1.0.0 <2.0.0 prefix:app/ filter:^a.b$", "ref:refs/pull/420/head", "commit:" + hash +
		" branch:main", "semver:1.x || 2.x", "tag:a tag:b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			if len(err.Error()) > 600 {
				t.Fatalf("%q: an error of %d bytes", text, len(err.Error()))
			}
			return
		}
		if err := s.Check(); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if again, err := Parse(s.String()); err != nil || again != s {
			t.Fatalf("%q is %q, which is %+v, %v", text, s, again, err)
		}
	})
}
