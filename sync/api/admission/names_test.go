package admission

import (
	"strings"
	"testing"
)

func TestCheckBranch(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]bool{"main": true, "feature/a": true, "HEAD": false, "-x": false, "a b": false} {
		if err := checkBranch(name); (err == nil) != good {
			t.Errorf("branch %q: %v", name, err)
		}
	}
}

func TestCheckPath(t *testing.T) {
	t.Parallel()
	for path, good := range map[string]bool{
		"":                           true,
		"/":                          true,
		"grafana/":                   true,
		"/grafana":                   true,
		"a/b/c/d/e/f/g/h":            true,
		"a b/c_d.e-f":                true,
		"grafana-":                   true,
		"a/b/c/d/e/f/g/h/i":          false,
		"a//b":                       false,
		"//":                         false,
		"../a":                       false,
		"a/..":                       false,
		"a/./b":                      false,
		".git":                       false,
		"a/.hidden":                  false,
		"a%2fb":                      false,
		`a\b`:                        false,
		"a\nb":                       false,
		"a\x00b":                     false,
		strings.Repeat("a", 1024):    true,
		strings.Repeat("a", 1025):    false,
		"caf\u00e9":                  false,
		"a/\u202ereversed":           false,
		"dashboards/team-a/prod.v2/": true,
	} {
		if err := checkPath(path); (err == nil) != good {
			t.Errorf("checkPath(%.40q) = %v, want good %v", path, err, good)
		}
	}
}

func TestCheckGitURL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url        string
		https, ssh bool // good for repositories that take https only, and for type git
	}{
		{"https://git.example.com/ops/dashboards.git", true, true},
		{"http://127.0.0.1:3000/a", true, true},
		{"https://[::1]:8443/a/b.git", true, true},
		{"ssh://git@host/a.git", false, true},
		{"ssh://git@host:2222/a.git", false, true},
		{"git@github.com:owner/name.git", false, true},
		{"git@[::1]:owner/name.git", false, true},
		{"", false, false},
		{"https://host", false, false},
		{"https://host/", false, false},
		{"https:///path", false, false},
		{"https://user:hunter2@host/a", false, false},
		{"https://ghp_token@host/a", false, false},
		{"ssh://git:hunter2@host/a", false, false},
		{"https://host/a?token=hunter2", false, false},
		{"https://host/a#x", false, false},
		{"file:///srv/git/a.git", false, true},
		{"bundle:///media/carried", false, true},
		{"bundle:///media/../carried", false, false},
		{"file://host/a", false, false},
		{"file:///srv/../etc", false, false},
		{"file:relative", false, false},
		{"file:///a?b", false, false},
		{"git://host/a", false, false},
		{"ext::sh -c id", false, false},
		{"/srv/git/a", false, false},
		{"../a", false, false},
		{"-oProxyCommand=x", false, false},
		{"git@-oProxyCommand:a", false, false},
		{"https://host/a\nb", false, false},
		{"https://host/a b", false, false},
		{"https://%zz/a", false, false},
		{"ssh://-oProxyCommand=x/a", false, false},
	} {
		for _, ssh := range []bool{false, true} {
			want := c.https
			if ssh {
				want = c.ssh
			}
			err := checkGitURL(c.url, ssh)
			if (err == nil) != want {
				t.Errorf("checkGitURL(%q, %v) = %v, want good %v", c.url, ssh, err, want)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("checkGitURL(%q) repeats the password: %v", c.url, err)
			}
		}
	}
}
