package forge

import (
	"errors"
	"net/url"
	"strings"
	"testing"
)

// TestPage: each kind of host shows a directory of a branch at a place of its own.
func TestPage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind, url, forge, branch, dir, want string
	}{
		{"github", "https://github.com/acme/dash", "", "main", "grafana/", "https://github.com/acme/dash/tree/main/grafana"},
		{"githubEnterprise", "https://ghe.corp:8443/acme/dash.git", "", "main", "", "https://ghe.corp:8443/acme/dash/tree/main"},
		{"gitlab", "https://gitlab.lab/a/b/c.git", "", "feature/x", "a b", "https://gitlab.lab/a/b/c/-/tree/feature/x/a%20b"},
		{"bitbucket", "https://x@bitbucket.org/team/dash", "", "feature/x", "d", "https://bitbucket.org/team/dash/src/feature%2Fx/d"},
		{"git", "https://codeberg.org/a/b.git", "", "main", "d", "https://codeberg.org/a/b/src/branch/main/d"},
		{"git", "git@github.com:acme/dash.git", "", "main", "d", "https://github.com/acme/dash/tree/main/d"},
		{"git", "https://codeberg.org/a/b.git", "", "0123456789012345678901234567890123456abc", "",
			"https://codeberg.org/a/b/src/commit/0123456789012345678901234567890123456abc"},
		{"git", "ssh://git@git.lab:2222/a/b.git", "forgejo", "main", "d", "https://git.lab/a/b/src/branch/main/d"},
		{"git", "https://user:secret@git.lab/a/b.git", "", "main", "d", "https://git.lab/a/b.git"},
		{"git", "https://git.lab:443/a/b.git", "none", "main", "d", "https://git.lab/a/b.git"},
		{"git", "http://[::1]:3000/a/b", "gitea", "refs/heads/main", "", "http://[::1]:3000/a/b/src/branch/main"},
		{"git", "ssh://git@[::1]/a/b.git", "", "", "d", "https://[::1]/a/b"},
		{"github", "https://github.com/acme/dash", "", "", "grafana", "https://github.com/acme/dash"},
		{"github", "https://github.com/acme/dash", "", "a#b?c%", "d&e;f\u202e",
			"https://github.com/acme/dash/tree/a%23b%3Fc%25/d&e%3Bf%E2%80%AE"},
		{"git", "file:///srv/a.git", "", "main", "", ""},
		{"git", "javascript://x/%0aalert(1)", "", "main", "", ""},
		{"git", "https://git.lab/a\nb", "", "main", "", ""},
		{"git", "", "", "main", "", ""},
	} {
		got, err := Page(Target{Type: tt.kind, URL: tt.url, Forge: tt.forge}, tt.branch, tt.dir)
		if got != tt.want || (err == nil) != (tt.want != "") || strings.Contains(got, "secret") {
			t.Errorf("%s %s: %q %v, want %q", tt.kind, tt.url, got, err, tt.want)
		}
	}
	if _, err := Page(Target{Type: "local", URL: "/srv/a"}, "", ""); !errors.Is(err, ErrNone) {
		t.Errorf("a local repository: %v", err)
	}
}

// FuzzPage: whatever stands in a Repository, its page is an address of the web that
// a terminal can show and a shell can be given.
func FuzzPage(f *testing.F) {
	f.Add("git", "https://git.lab/a.git", "gitea", "main", "d")
	f.Add("gitlab", "git@git.lab:a/b.git", "", "--x", "../..")
	f.Fuzz(func(t *testing.T, kind, raw, said, branch, dir string) {
		page, err := Page(Target{Type: kind, URL: raw, Forge: said}, branch, dir)
		if err != nil {
			return
		}
		u, err := url.Parse(page)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.Host == "" {
			t.Errorf("%q: %v", page, err)
		}
		for _, r := range page {
			if r <= ' ' || r >= 0x7f {
				t.Errorf("%q holds %q", page, r)
			}
		}
	})
}
