package auth

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const signerKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKHEbJ2TrMYTuhwyo8nEpMNyA3GJDNJrPOLjKDEjkvmz\n"

// TestPoliciesFor: the first rule for a Repository, however its URL is written, and for
// each of several URLs.
func TestPoliciesFor(t *testing.T) {
	rules := []VerificationPolicy{
		{Repositories: []string{"default/free"}, Mode: PolicyNone},
		{URL: "git.example.com/Team/*", Mode: "HEAD"},
		{URL: "https://*.example.org", Repositories: []string{"edge/*", "*/site"}, Mode: "Tag"},
		{URL: "/srv/git", Mode: "HEAD"},
		{URL: "*", Repositories: []string{"all/*"}, Mode: "TagAndHEAD"},
	}
	for _, c := range []struct {
		repository, url string
		want            int // -1 = none
	}{
		{"default/x", "https://git.example.com/team/x", 1}, {"default/x", "https://git.example.com/TEAM/x.git", 1},
		{"default/x", "http://GIT.example.com:8080/team/x", 1},
		{"default/x", "ssh://git@git.example.com:2222/team/x", 1}, {"default/x", "git@git.example.com:team/x.git", 1},
		{"default/x", "ssh://git@git.example.com/~/team/x", 1},
		{"default/x", "ssh://git@git.example.com/~git/team/x", 1}, {"default/x", "https://git.example.com//team/./x", 1},
		{"default/x", "https://git.example.com./team/x", 1},
		{"default/x", "https://git.example.com/%74eam/x", 1}, {"default/x", "https://ann:pw@git.example.com/team/x/y", 1},
		{"default/x", "https://git.example.com/team", -1}, {"default/x", "https://git.example.com/other/x", -1},
		{"default/x", "https://xgit.example.com/team/x", -1},
		{"default/free", "https://git.example.com/team/x", -1}, {"default2/free", "https://git.example.com/team/x", 1},
		{"edge/a", "https://a.example.org/x", 2}, {"other/site", "https://a.example.org/x", 2}, {"other/a", "https://a.example.org/x", -1},
		{"edge/a", "https://example.org/x", -1},
		{"default/x", "file:///srv/git/x", 3}, {"default/x", "/srv/git/x", 3}, {"default/x", "/srv/gitx/x", -1},
		{"all/x", "https://anything/x", 4}, {"all/x", "nonsense", 4}, {"all/x", "https://git.example.com/team/x", 1},
		{"default/x", "nonsense", -1}, {"default/x", "/", -1}, {"default/x", "", -1},
	} {
		namespace, name, _ := strings.Cut(c.repository, "/")
		got := -1
		if found := PoliciesFor(rules, namespace, name, c.url); len(found) > 0 {
			got = slices.IndexFunc(rules, func(r VerificationPolicy) bool { return r.Name() == found[0].Name() })
		}
		if got != c.want {
			t.Errorf("%s %s: rule %d, want %d", c.repository, c.url, got, c.want)
		}
	}
	found := PoliciesFor(rules, "edge", "a", "https://dead.example.com/x", "git@git.example.com:team/x", "https://git.example.com/team/y",
		"https://a.example.org/x")
	if len(found) != 2 || found[0] != &rules[1] || found[1] != &rules[2] {
		t.Errorf("rules of several urls: %+v", found)
	}
}

// TestDemandCheck refuses what would ask for nothing, or can never be met.
func TestDemandCheck(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", signerKey, 0o644)
	for name, c := range map[string]struct {
		rule VerificationPolicy
		want string
	}{
		"file": {VerificationPolicy{URL: "*", Mode: "HEAD", Files: map[string]string{"a.sshpub": good}}, ""},
		"value": {VerificationPolicy{URL: "git.example.com", Mode: "TagAndHEAD",
			Values: map[string]string{"allowed_signers": "ops@example.com " + signerKey}}, ""},
		"off": {VerificationPolicy{Repositories: []string{"default/free"}, Mode: "none"}, ""},
		"no mode": {VerificationPolicy{URL: "*", Files: map[string]string{"a.sshpub": good}},
			`mode: "" is none of HEAD, Tag, TagAndHEAD and none`},
		"unknown mode": {VerificationPolicy{URL: "*", Mode: "Heads", Files: map[string]string{"a.sshpub": good}}, `mode: "Heads"`},
		"no keys":      {VerificationPolicy{URL: "*", Mode: "HEAD"}, "no keys"},
		"empty keys":   {VerificationPolicy{URL: "*", Mode: "HEAD", Values: map[string]string{"a.sshpub": "# none"}}, "no keys"},
		"unread keys":  {VerificationPolicy{URL: "*", Mode: "HEAD", Values: map[string]string{"a.sshpub": "x"}}, "keys in a.sshpub: line 1"},
		"no file":      {VerificationPolicy{URL: "*", Mode: "HEAD", Files: map[string]string{"a.sshpub": dir + "/none"}}, "key a.sshpub"},
		"open file": {VerificationPolicy{URL: "*", Mode: "HEAD", Files: map[string]string{"a.sshpub": file("open", signerKey, 0o666)}},
			"key a.sshpub"},
		"other name": {VerificationPolicy{URL: "*", Mode: "HEAD", Files: map[string]string{"a.pub": good}}, `key "a.pub"`},
		"twice": {VerificationPolicy{URL: "*", Mode: "HEAD", Files: map[string]string{"a.sshpub": good},
			Values: map[string]string{"a.sshpub": signerKey}}, "as value and as file"},
		"off with keys":  {VerificationPolicy{URL: "*", Mode: "none", Files: map[string]string{"a.sshpub": good}}, "the mode none"},
		"password":       {VerificationPolicy{URL: "https://a:b@git.example.com", Mode: "none"}, "user or a password"},
		"bad url":        {VerificationPolicy{URL: "ftp://git.example.com/x", Mode: "none"}, "scheme"},
		"bad repository": {VerificationPolicy{Repositories: []string{"site"}, Mode: "none"}, `"site" is no pattern`},
		"bad pattern":    {VerificationPolicy{Repositories: []string{"a/["}, Mode: "none"}, "is no pattern"},
	} {
		err := c.rule.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if got := (&VerificationPolicy{Files: map[string]string{"b.sshpub": "/b", "a.sshpub": "/a"}}).Paths(); !slices.Equal(got,
		[]string{"/a", "/b"}) {
		t.Errorf("files %q", got)
	}
}
