package auth

import (
	"strings"
	"testing"
)

func TestParseAddress(t *testing.T) {
	t.Parallel()
	cases := []struct {
		raw, text, key, dial string
	}{
		{"https://Git.Example.com/team/repo.git", "https://git.example.com/team/repo.git", "", "git.example.com:443"},
		{"https://git.example.com:443/team/repo/", "https://git.example.com/team/repo", "", "git.example.com:443"},
		{"http://127.0.0.1:8080//a//b", "http://127.0.0.1:8080/a/b", "", "127.0.0.1:8080"},
		{"https://org@dev.azure.com/org/p/_git/r", "https://dev.azure.com/org/p/_git/r", "", "dev.azure.com:443"},
		{"https://git.example.com/a%20b", "https://git.example.com/a%20b", "", "git.example.com:443"},
		{"ssh://git@host:22/a/b.git", "ssh://git@host/a/b.git", "", "host:22"},
		{"ssh://host:2222/a", "ssh://host:2222/a", "ssh://git@host:2222/a", "host:2222"},
		{"git+ssh://u@host/a", "ssh://u@host/a", "", "host:22"},
		{"git@github.com:org/repo.git", "ssh://git@github.com/~/org/repo.git", "", "github.com:22"},
		{"host:repo", "ssh://host/~/repo", "ssh://git@host/~/repo", "host:22"},
		{"git@[::1]:repo", "ssh://git@[::1]/~/repo", "", "[::1]:22"},
		{"ssh://[::1]:2222/repo", "ssh://[::1]:2222/repo", "ssh://git@[::1]:2222/repo", "[::1]:2222"},
		{"/srv/git/../git/x.git", "file:///srv/git/x.git", "", ""},
		{"file:///srv/git/x.git", "file:///srv/git/x.git", "", ""},
		{"bundle:///media/a%20b/", "bundle:///media/a%20b", "", ""},
	}
	for _, c := range cases {
		a, err := ParseAddress(c.raw)
		if err != nil {
			t.Errorf("%s: %v", c.raw, err)
			continue
		}
		if a.String() != c.text {
			t.Errorf("%s: String = %s, want %s", c.raw, a, c.text)
		}
		key := c.key
		if key == "" {
			key = c.text
		}
		if a.Key() != key {
			t.Errorf("%s: Key = %s, want %s", c.raw, a.Key(), key)
		}
		if c.dial != "" && a.DialPort() != c.dial {
			t.Errorf("%s: DialPort = %s, want %s", c.raw, a.DialPort(), c.dial)
		}
	}
}

func TestParseAddressRefuses(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"", " ", "repo", "./repo", "../x", "ftp://host/x", "git://host/x", "u:secret@host:x",
		"https://", "https:///x", "https://host", "https://host/", "https://host/a?b=c", "https://host/a#b",
		"https://host/../x", "https://host/a/%2e%2e/x", "https://ho st/x", "https://host/a\nb", "https://host\\@evil/x",
		"ssh://-oProxyCommand=x/repo", "-oProxyCommand=x:repo", "-u@host:repo", "host:-repo", "ext::sh -c id", "file://other/x",
		"https://host/\x1b[31m", "https://%zz/x", "https://host/team;a/x", "https://host/a\u00adb", "https://host/a\u202eb",
		"https://git\u3002example.com/x", "https://\uff47it.example.com/x", "http://local\u00adhost/x", "g\u0456t@host.\u0435xample:x",
		"https://169\u3002254\u3002169\u3002254/x", "https://\u2460.example.com/x",
	} {
		if a, err := ParseAddress(raw); err == nil {
			t.Errorf("%q accepted as %s", raw, a)
		}
	}
}

func TestAddressNeverShowsPassword(t *testing.T) {
	t.Parallel()
	const canary = "ghp_CANARY"
	for _, raw := range []string{
		"https://user:" + canary + "@host/x", "https://" + canary + "@host/x", "https://user:" + canary + "@/x",
		"https://user:" + canary + "@ho st/x", "u:" + canary + "@host:x", "https://u:" + canary + "@host/%zz",
	} {
		a, err := ParseAddress(raw)
		if err != nil {
			if strings.Contains(err.Error(), canary) {
				t.Errorf("error shows the password: %v", err)
			}
			continue
		}
		if strings.Contains(a.String()+a.Key(), canary) {
			t.Errorf("%s shows the password", a)
		}
		if strings.Contains(raw, ":"+canary) && !a.Password {
			t.Errorf("%q: the password was not noticed", a)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"https://host/x", "git@host:x", "ssh://u@[::1]:2/x", "/a", "host:-x", "https://u:p@h/x?y#z"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		a, err := ParseAddress(raw)
		if err != nil {
			return
		}
		if a.Scheme != "file" && (a.Host == "" || strings.HasPrefix(a.Host, "-") || strings.HasPrefix(a.Path, "-")) {
			t.Fatalf("%q: host %q path %q", raw, a.Host, a.Path)
		}
		if strings.Contains(a.Path, "/../") || strings.HasSuffix(a.Path, "/..") {
			t.Fatalf("%q: path %q leaves its root", raw, a.Path)
		}
		for _, r := range a.String() {
			if r < ' ' {
				t.Fatalf("%q: control character in %q", raw, a.String())
			}
		}
		b, err := ParseAddress(a.Key())
		if err == nil && a.Scheme != "ssh" && b.Key() != a.Key() {
			t.Fatalf("%q: key %q is read back as %q", raw, a.Key(), b.Key())
		}
	})
}
