package auth

import (
	"strings"
	"testing"
)

func TestMirrors(t *testing.T) {
	t.Parallel()
	const first = "https://git.example.com/ops/site.git"
	for list, want := range map[string]string{
		"":                               "",
		"https://b.example.com/site.git": "https://b.example.com/site.git",
		" https://b/a ,\n\tssh://git@c/a,git@d:a.git\r\n": "https://b/a ssh://git@c/a git@d:a.git",
	} {
		if got, err := Mirrors(list, first); err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %q, %v", list, got, err)
		}
	}
	for list, want := range map[string]string{
		"https://b/1 https://b/2 https://b/3 https://b/4 https://b/5": "5 mirrors, and 4 are the most",
		"https://b/1, nonsense":                                "mirror 2: invalid git url: it has neither a scheme nor",
		"https://b/1 https://GIT.example.com:443/ops/site.git": "mirror 2: it is the url of the repository itself",
		"https://b/1 https://b/2 https://b:443/1":              "mirror 3: it is the same as mirror 1",
		"https://ann:s3cr3t@b/1":                               "mirror 1: the url must not contain a user name or a password",
		"https://s3cr3t@b/1":                                   "mirror 1: the url must not contain a user name or a password",
		"ssh://ann:s3cr3t@b/1":                                 "mirror 1: the url must not contain a user name or a password",
		"/srv/s3cr3t.git":                                      "mirror 1: a local path is no mirror",
		"file:///srv/s3cr3t.git":                               "mirror 1: a local path is no mirror",
		"ftp://b/s3cr3t":                                       "mirror 1: invalid git url: scheme",
		"--upload-pack=s3cr3t:x":                               `mirror 1: invalid git url: host or user begins with "-"`,
	} {
		got, err := Mirrors(list, first)
		if err == nil || len(got) > 0 || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%q: %q, %v, want %q", list, got, err, want)
		}
	}
}

func TestSameHost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"https://h/a", "https://H:443/b", true},
		{"https://h/a", "http://h/a", false},
		{"https://h/a", "https://h:8443/a", false},
		{"https://h/a", "https://h.evil/a", false},
		{"git@h:a", "ssh://git@h/b", true},
		{"git@h:a", "https://h/a", false},
		{"", "", false},
	} {
		if SameHost(c.a, c.b) != c.same {
			t.Errorf("%s and %s", c.a, c.b)
		}
	}
}
