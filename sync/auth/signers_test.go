package auth

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func names(t *Trust) string {
	if t == nil {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(t.Files)), " ") + " in " + t.Place
}

// TestTrustSecrets reads the keys of all Secrets of the object but the webhook's, and
// leaves to credentials what is not about signers.
func TestTrustSecrets(t *testing.T) {
	t.Parallel()
	data := map[string]map[string][]byte{
		"git-token": {"token": []byte(canary)}, "keys": {"ops.asc": []byte("x"), "allowed_signers": []byte("y"), "password": []byte("z")},
		"more": {"a.sshpub": []byte("x")}, "twice": {"a.sshpub": []byte("z")}, "hook": {"evil.asc": []byte("x")},
	}
	get := func(_ context.Context, _, name string) (map[string][]byte, error) {
		if name == "broken" {
			return nil, errors.New("api is down")
		}
		return data[name], nil
	}
	for _, c := range []struct {
		secure map[string]string
		want   string
	}{
		{map[string]string{"token": "git-token", "webhookSecret": "hook"}, "none"},
		{map[string]string{"token": "git-token", "verify": "keys"}, "allowed_signers ops.asc in secret default/keys"},
		{map[string]string{"token": "more", "verify": "keys"}, "a.sshpub allowed_signers ops.asc in secret default/more and secret default/keys"},
		{map[string]string{"token": "keys", "verify": "keys"}, "allowed_signers ops.asc in secret default/keys"},
		{map[string]string{"token": "more", "verify": "twice"}, "error"},
		{map[string]string{"verify": "broken"}, "error"},
		{map[string]string{"verify": "gone"}, "none"},
	} {
		l := lookup()
		l.Secure = c.secure
		found, err := secretsAt(get).Trust(t.Context(), l)
		got := names(found)
		if err != nil {
			got = "error"
		}
		if got != c.want {
			t.Errorf("%v: %s, %v, want %s", c.secure, got, err, c.want)
		}
	}
	l := lookup()
	l.Secure = map[string]string{"verify": "more"}
	if creds, err := secretsAt(get).Credentials(t.Context(), l); creds != nil || err != nil {
		t.Errorf("a secret with nothing but keys of signers: %v, %v", creds, err)
	}
	l.Secure = map[string]string{"verify": "more", "token": "git-token"}
	if creds, err := secretsAt(get).Credentials(t.Context(), l); err != nil || creds.Password != canary ||
		creds.Source != "secret default/git-token" {
		t.Errorf("beside one with a token: %v, %v", creds, err)
	}
}

// TestTrustDir reads both forms of names, and nothing that others may write to.
func TestTrustDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what, text string) {
		t.Helper()
		found, err := filesAt(dir).Trust(t.Context(), lookup())
		got := strings.ReplaceAll(names(found), dir, "DIR")
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, text) {
			t.Errorf("%s: %s, want %s", what, got, text)
		}
	}
	want("empty", "none")
	file("default.conn/c.asc", 0o644)
	want("of the connection", "c.asc in directory DIR for default.conn")
	file("default.site.a_flat.sshpub", 0o444)
	want("flat", "flat.sshpub in directory DIR for default.site.a")
	file("default.site.a/allowed_signers", 0o644)
	file("default.site.a/token", 0o600)
	file("default.site.a/.hidden.swp", 0o600)
	want("both", "allowed_signers flat.sshpub in directory DIR for default.site.a")
	file("default.site.a/open.asc", 0o664)
	want("others may write", "may be written to by others")
	if err := os.Remove(filepath.Join(dir, "default.site.a/open.asc")); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "x.asc")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "default.site.a/link.asc")); err != nil {
		t.Fatal(err)
	}
	want("a link that leads out", "path escapes")
}

// TestTrustRules: a rule for keys of signers alone does not stand in the way of one
// with credentials, nor the other way round.
func TestTrustRules(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys")
	key := "ops@example.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHBRGLLjLQIXNqPJcHhVqJKKKqE6ZMlFdV0bGMFqH4fV\n"
	if err := os.WriteFile(path, []byte(key), 0o644); err != nil {
		t.Fatal(err)
	}
	signers := Rule{URL: "https://git.example.com", Files: map[string]string{"allowed_signers": path}}
	token := Rule{URL: "https://git.example.com/team", Values: map[string]string{"token": canary}}
	for _, rules := range [][]Rule{{signers, token}, {token, signers}} {
		for _, r := range rules {
			if err := r.Check(); err != nil {
				t.Fatal(err)
			}
		}
		found, err := rulesAt(rules).Trust(t.Context(), lookup())
		if err != nil || names(found) != "allowed_signers in rule https://git.example.com" || string(found.Files["allowed_signers"]) != key {
			t.Errorf("%s, %v", names(found), err)
		}
		creds, err := rulesAt(rules).Credentials(t.Context(), lookup())
		if err != nil || creds.Password != canary {
			t.Errorf("%v, %v", creds, err)
		}
		if files := RuleFiles(rules, lookup().URL); len(files) != 1 || files[0] != path {
			t.Errorf("files %v", files)
		}
	}
	bad := Rule{URL: "https://git.example.com", Values: map[string]string{"a.sshpub": "nonsense"}}
	if err := bad.Check(); err == nil || !strings.Contains(err.Error(), "a.sshpub: line 1") {
		t.Errorf("a rule with a key that cannot be read: %v", err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := signers.Check(); err == nil {
		t.Error("keys that anybody may write to are taken")
	}
}
