package auth

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func lookup() Lookup {
	return Lookup{Namespace: "default", Repository: "site.a", URL: "https://git.example.com/team/repo.git",
		Secure: map[string]string{"token": "git-token", "webhookSecret": "hook"}, Connection: "conn"}
}

// valuesFunc is a function as Values.
type valuesFunc func(ctx context.Context, l Lookup, field string) ([]byte, error)

func (f valuesFunc) Value(ctx context.Context, l Lookup, field string) ([]byte, error) {
	return f(ctx, l, field)
}

func secretsAt(get Secrets) Places   { return Places{Secrets: get} }
func valuesAt(get valuesFunc) Places { return Places{Values: get} }
func filesAt(dir string) Places      { return Places{Dir: dir} }
func rulesAt(rules []Rule) Places    { return Places{Rules: NewList(rules)} }

func TestSecrets(t *testing.T) {
	t.Parallel()
	var asked []string
	data := map[string]map[string][]byte{"default/git-token": {"token": []byte(canary)}}
	s := secretsAt(func(_ context.Context, ns, name string) (map[string][]byte, error) {
		asked = append(asked, ns+"/"+name)
		if name == "broken" {
			return nil, errors.New("api is down")
		}
		return data[ns+"/"+name], nil
	})
	c, err := s.Credentials(t.Context(), lookup())
	if err != nil || c.Password != canary || c.Source != "secret default/git-token" {
		t.Fatalf("got %v, %v", c, err)
	}
	if strings.Join(asked, " ") != "default/git-token" {
		t.Fatalf("asked for %v: the webhook secret is no credential", asked)
	}
	data["default/git-token"]["token"] = []byte("rotated")
	if c, _ := s.Credentials(t.Context(), lookup()); c.Password != "rotated" {
		t.Fatal("a rotated secret was not read again")
	}
	l := lookup()
	l.Secure = map[string]string{"token": "gone"}
	if c, err := s.Credentials(t.Context(), l); c != nil || err != nil {
		t.Fatalf("absent secret: %v, %v", c, err)
	}
	data["default/empty"] = map[string][]byte{}
	l.Secure = map[string]string{"token": "empty"}
	s.Rules = NewList([]Rule{{URL: "https://git.example.com", Values: map[string]string{"token": "of the operator"}}})
	if c, err := s.Credentials(t.Context(), l); err == nil || !strings.Contains(err.Error(), "default/empty") {
		t.Fatalf("an empty secret gives another place's credentials: %v, %v", c, err)
	}
	l.Secure = map[string]string{"token": "broken"}
	if _, err := s.Credentials(t.Context(), l); err == nil {
		t.Fatal("an API that is down was taken for an absent secret")
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	s := valuesAt(func(_ context.Context, l Lookup, field string) ([]byte, error) {
		if field == "token" {
			return []byte(l.Namespace + l.Repository), nil
		}
		return nil, errors.New("must not be asked")
	})
	c, err := s.Credentials(t.Context(), lookup())
	if err != nil || c.Password != "defaultsite.a" || c.Username != "git" {
		t.Fatalf("got %v, %v", c, err)
	}
	if c, err := s.Credentials(t.Context(), Lookup{}); c != nil || err != nil {
		t.Fatalf("nothing secure: %v, %v", c, err)
	}
}

func write(t *testing.T, file, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, mode); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestReadPrivate(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "f")
	if _, err := ReadPrivate(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	write(t, file, canary, 0o600)
	if data, err := ReadPrivate(file); err != nil || string(data) != canary {
		t.Errorf("%q, %v", data, err)
	}
	write(t, file, strings.Repeat("x", maxValue+1), 0o600)
	if _, err := ReadPrivate(file); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Errorf("too large: %v", err)
	}
	write(t, file, canary, 0o604)
	if _, err := ReadPrivate(file); err == nil || strings.Contains(err.Error(), canary) {
		t.Errorf("open to others: %v", err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe") // without a writer
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPrivate(pipe); err == nil || !strings.Contains(err.Error(), "not a regular") {
		t.Errorf("a pipe: %v", err)
	}
}

func TestDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := filesAt(dir)
	if c, err := s.Credentials(t.Context(), lookup()); c != nil || err != nil {
		t.Fatalf("empty directory: %v, %v", c, err)
	}
	if c, err := filesAt(filepath.Join(dir, "none")).Credentials(t.Context(), lookup()); c != nil || err != nil {
		t.Fatalf("no directory: %v, %v", c, err)
	}
	write(t, filepath.Join(dir, "default.conn", "token"), "from-connection", 0o600)
	if c, err := s.Credentials(t.Context(), lookup()); err != nil || c.Password != "from-connection" {
		t.Fatalf("connection: %v, %v", c, err)
	}
	write(t, filepath.Join(dir, "default.site.a_token"), "flat", 0o400)
	if c, err := s.Credentials(t.Context(), lookup()); err != nil || c.Password != "flat" {
		t.Fatalf("systemd's flat form: %v, %v", c, err)
	}
	file := write(t, filepath.Join(dir, "default.site.a", "token"), canary+"\n", 0o600)
	if c, err := s.Credentials(t.Context(), lookup()); err != nil || c.Password != canary {
		t.Fatalf("directory: %v, %v", c, err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := s.Credentials(t.Context(), lookup())
	if err == nil || !strings.Contains(err.Error(), "chmod 600") || strings.Contains(err.Error(), canary) {
		t.Fatalf("a file open to the world: %v", err)
	}
}

func TestDirStaysInside(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	dir := filepath.Join(top, "creds")
	write(t, filepath.Join(top, "outside", "token"), canary, 0o600)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(top, "outside"), filepath.Join(dir, "default.linked")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "default.odd"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "default.odd", "token"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, l := range []Lookup{
		{Namespace: "..", Repository: "outside"}, {Namespace: "default", Repository: "x/../../outside"},
		{Namespace: "default", Repository: "linked"}, {Namespace: "", Repository: "outside"}, {Namespace: "default", Repository: "odd"},
	} {
		if c, err := filesAt(dir).Credentials(t.Context(), l); c != nil {
			t.Errorf("%+v gave %v, %v", l, c, err)
		}
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	token := write(t, filepath.Join(dir, "token"), canary, 0o600)
	rules := []Rule{
		{URL: "https://other.example.com", Files: map[string]string{"token": filepath.Join(dir, "none")}},
		{URL: "https://git.example.com/team/*", Values: map[string]string{"username": "robot"}, Files: map[string]string{"token": token}},
	}
	c, err := rulesAt(rules).Credentials(t.Context(), lookup())
	if err != nil || c.Username != "robot" || c.Password != canary {
		t.Fatalf("got %v, %v", c, err)
	}
	for url, want := range map[string][]string{lookup().URL: {token}, "https://other.example.com/a/b": {filepath.Join(dir, "none")},
		"https://git.example.com/else/x": nil, "no url": nil} {
		if got := RuleFiles(rules, url); !slices.Equal(got, want) {
			t.Errorf("files for %s: %q, want %q", url, got, want)
		}
	}
	if c, err := rulesAt(rules).Credentials(t.Context(), Lookup{URL: "https://git.example.com/else/x"}); c != nil || err != nil {
		t.Fatalf("no match: %v, %v", c, err)
	}
	if _, err := rulesAt(rules[:1]).Credentials(t.Context(), Lookup{URL: "https://other.example.com/a/b"}); err == nil {
		t.Fatal("a missing file was passed over")
	}
	for _, bad := range []Rule{
		{URL: "https://host"}, {URL: "nonsense", Values: map[string]string{"username": "x"}},
		{URL: "https://u:p@host/x", Values: map[string]string{"username": "x"}},
		{URL: "https://host/[", Values: map[string]string{"username": "x"}},
		{URL: "https://host", Values: map[string]string{"usrname": "x"}},
		{URL: "https://host", Files: map[string]string{"tokn": token}},
		{URL: "https://host", Files: map[string]string{"token": filepath.Join(dir, "none")}},
		{URL: "https://host", Values: map[string]string{"token": "x"}, Files: map[string]string{"token": token}},
	} {
		if bad.Check() == nil {
			t.Errorf("%s with %d values and %d files passed the check", bad.URL, len(bad.Values), len(bad.Files))
		}
	}
	if err := rules[1].Check(); err != nil {
		t.Error(err)
	}
}

func TestRuleMatches(t *testing.T) {
	t.Parallel()
	cases := []struct {
		pattern, url string
		want         bool
	}{
		{"https://github.com", "https://github.com/a/b", true},
		{"https://github.com/", "https://github.com/a/b", true},
		{"https://github.com/org", "https://github.com/org/b.git", true},
		{"https://github.com/org", "https://github.com/organisation/b", false},
		{"https://github.com/org*", "https://github.com/organisation/b", true},
		{"https://github.com/org*", "https://github.com.evil.example/org/b", false},
		{"https://github.com/*/b", "https://github.com/x/b.git", true},
		{"https://github.com/*/b", "https://github.com/x/y/b", false},
		{"https://*.example.com", "https://git.example.com/x", true},
		{"https://*.example.com", "https://example.com/x", false},
		{"https://*.example.com", "https://git.example.com.evil.org/x", false},
		{"https://host", "http://host/x", false},
		{"https://host", "https://host:8443/x", false},
		{"https://host:8443", "https://host:8443/x", true},
		{"ssh://host/team", "git@host:team/x", true},
		{"https://host/a/b/c", "https://host/a/b", false},
	}
	for _, c := range cases {
		a, err := ParseAddress(c.url)
		if err != nil {
			t.Fatal(err)
		}
		if got := (Rule{URL: c.pattern}).matches(a); got != c.want {
			t.Errorf("%s on %s: %v", c.pattern, c.url, got)
		}
	}
}

func TestWebhookFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "default.a", "webhookSecret"), canary+"\n", 0o600)
	write(t, filepath.Join(dir, "default.b_webhookSecret"), "flat", 0o400)
	write(t, filepath.Join(dir, "default.c", "webhookSecret"), canary, 0o644)
	for name, want := range map[string]string{"a": canary, "b": "flat", "none": "", "../x": "", "": ""} {
		if got, err := (Places{Dir: dir}).Webhook(t.Context(), Lookup{Namespace: "default", Repository: name}); string(got) != want || err != nil {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
	if got, err := (Places{Dir: filepath.Join(dir, "none")}).Webhook(t.Context(), Lookup{Namespace: "default", Repository: "a"}); got != nil || err != nil {
		t.Errorf("no directory: %q, %v", got, err)
	}
	if got, err := (Places{Dir: dir}).Webhook(t.Context(), Lookup{Namespace: "default", Repository: "c"}); got != nil || err == nil || strings.Contains(err.Error(), canary) {
		t.Errorf("a file that all may read: %q, %v", got, err)
	}
}

// TestPublicCA: a CA and host keys may be read by others, in the directory and in a rule; only the
// owner may write to them, and the key beside them stays private.
func TestPublicCA(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := write(t, filepath.Join(dir, "default.site.a", "ca.crt"), "a CA", 0o644)
	token := write(t, filepath.Join(dir, "default.site.a", "token"), canary, 0o600)
	hosts := write(t, filepath.Join(dir, "default.site.a", "known_hosts"), "git.example.com ssh-ed25519 AAAA", 0o644)
	rule := Rule{URL: "https://git.example.com", Files: map[string]string{keyCA: ca, keyToken: token, keyKnownHosts: hosts}}
	for name, s := range map[string]Places{"directory": {Dir: dir}, "rule": rulesAt([]Rule{rule})} {
		for _, tt := range []struct {
			ca, token fs.FileMode
			refused   bool
		}{{0o644, 0o600, false}, {0o664, 0o600, true}, {0o646, 0o600, true}, {0o644, 0o644, true}, {0o644, 0o640, os.Geteuid() != 0}} {
			if err := errors.Join(os.Chmod(ca, tt.ca), os.Chmod(token, tt.token)); err != nil {
				t.Fatal(err)
			}
			if c, err := s.Credentials(t.Context(), lookup()); (err != nil) != tt.refused || err == nil && string(c.CA) != "a CA" {
				t.Errorf("%s %+v: %v, %v", name, tt, c, err)
			}
		}
	}
}
