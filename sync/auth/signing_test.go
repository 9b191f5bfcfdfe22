package auth

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// told is what was found, for tests.
func told(s *Credentials, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case s == nil:
		return "none"
	}
	return string(s.SSHKey) + " " + s.SSHPassphrase + " in " + s.Source
}

// TestSigningSecrets: the key is in any Secret of the object but the webhook's, also as
// Flux has it, and none of it is taken for credentials or for keys of signers.
func TestSigningSecrets(t *testing.T) {
	t.Parallel()
	data := map[string]map[string][]byte{
		"git-token": {"token": []byte(canary)}, "key": {"commitSigningKey": []byte("K")},
		"both": {"commitSigningKey": []byte("B"), "commitSigningPassphrase": []byte("P")},
		"all":  {"token": []byte(canary), "commitSigningKey": []byte("A")}, "flux": {"git.asc": []byte("F"), "passphrase": []byte("Q")},
		"pass": {"commitSigningPassphrase": []byte("P")}, "empty": {"commitSigningKey": nil},
		"signers": {"allowed_signers": []byte("x"), "commitSigningKey": []byte("S")},
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
		creds  bool
		trust  bool
	}{
		{secure: map[string]string{"token": "git-token"}, want: "none", creds: true},
		{secure: map[string]string{"commitSigningKey": "key"}, want: "K  in secret default/key"},
		{secure: map[string]string{"commitSigningKey": "both", "token": "git-token"}, want: "B P in secret default/both", creds: true},
		{secure: map[string]string{"commitSigningKey": "key", "commitSigningPassphrase": "pass"},
			want: "K P in secret default/key and secret default/pass"},
		{secure: map[string]string{"commitSigningKey": "flux"}, want: "F Q in secret default/flux"},
		{secure: map[string]string{"token": "all"}, want: "A  in secret default/all", creds: true},
		{secure: map[string]string{"verify": "signers"}, want: "S  in secret default/signers", trust: true},
		{secure: map[string]string{"verify": "flux"}, want: "none", trust: true}, // public keys may have that name
		{secure: map[string]string{"commitSigningKey": "pass"},
			want: "secret default/pass: there is a commitSigningPassphrase, and no commitSigningKey"},
		{secure: map[string]string{"commitSigningKey": "empty"}, want: "none"},
		{secure: map[string]string{"webhookSecret": "key"}, want: "none"},
		{secure: map[string]string{"commitSigningKey": "gone"}, want: "none"},
		{secure: map[string]string{"commitSigningKey": "broken"}, want: "read secret default/broken: api is down"},
	} {
		l := lookup()
		l.Secure = c.secure
		if got := told(secretsAt(get).Signing(t.Context(), l)); !strings.HasPrefix(got, c.want) {
			t.Errorf("%v: %s, want %s", c.secure, got, c.want)
		}
		if c.secure["verify"] == "flux" {
			continue
		}
		creds, err := secretsAt(get).Credentials(t.Context(), l)
		if err != nil || (creds != nil) != c.creds || creds != nil && (creds.Password != canary || len(creds.SSHKey) > 0) {
			t.Errorf("%v: credentials %v, %v", c.secure, creds, err)
		}
		trust, err := secretsAt(get).Trust(t.Context(), l)
		if err != nil || (trust != nil) != c.trust || trust != nil && len(trust.Files) != 1 {
			t.Errorf("%v: keys of signers %v, %v", c.secure, names(trust), err)
		}
	}
}

// TestSigningFields reads what an API keeps itself.
func TestSigningFields(t *testing.T) {
	t.Parallel()
	values := map[string]string{"commitSigningKey": "K", "commitSigningPassphrase": "P", "token": canary}
	get := func(_ context.Context, _ Lookup, field string) ([]byte, error) { return []byte(values[field]), nil }
	l := lookup()
	l.Secure = map[string]string{"token": "inline-1", "commitSigningKey": "inline-2"}
	if got := told(valuesAt(get).Signing(t.Context(), l)); got != "K  in secure values of default/site.a" {
		t.Error(got)
	}
	l.Secure["commitSigningPassphrase"] = "inline-3"
	if got := told(valuesAt(get).Signing(t.Context(), l)); got != "K P in secure values of default/site.a" {
		t.Error(got)
	}
	delete(l.Secure, "commitSigningKey")
	if got := told(valuesAt(get).Signing(t.Context(), l)); !strings.Contains(got, "no commitSigningKey that it is for") {
		t.Error(got)
	}
	l.Secure = map[string]string{"token": "inline-1"}
	if got := told(valuesAt(get).Signing(t.Context(), l)); got != "none" {
		t.Error(got)
	}
	if creds, err := valuesAt(get).Credentials(t.Context(), l); err != nil || creds.Password != canary {
		t.Errorf("%v, %v", creds, err)
	}
}

// TestSigningFiles: files of a directory and of rules are read at each look, and none
// that others may read; a rule that only signs stands in nobody's way.
func TestSigningFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	want := func(what, text string) {
		t.Helper()
		if got := strings.ReplaceAll(told(filesAt(dir).Signing(t.Context(), lookup())), dir, "DIR"); !strings.Contains(got, text) {
			t.Errorf("%s: %s, want %s", what, got, text)
		}
	}
	want("empty", "none")
	write("default.conn/commitSigningKey", "C", 0o600)
	want("of the connection", "C  in directory DIR for default.conn")
	write("default.site.a/token", canary, 0o600)
	write("default.site.a_commitSigningKey", "D", 0o600)
	want("flat", "D  in directory DIR for default.site.a")
	write("default.site.a/commitSigningKey", "E", 0o600)
	write("default.site.a/commitSigningPassphrase", "P", 0o600)
	want("both", "E P in directory DIR for default.site.a")
	if creds, err := filesAt(dir).Credentials(t.Context(), lookup()); err != nil || creds.Password != canary {
		t.Errorf("credentials beside it: %v, %v", creds, err)
	}
	write("default.site.a/commitSigningKey", "E", 0o644)
	want("others may read", "may be read by others; run: chmod 600")
	if err := os.Remove(filepath.Join(dir, "default.site.a/commitSigningKey")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "default.site.a_commitSigningKey")); err != nil {
		t.Fatal(err)
	}
	want("a passphrase alone", "no commitSigningKey that it is for")

	key, pass := write("key", "R", 0o600), write("pass", "P", 0o600)
	signs := Rule{URL: "https://git.example.com", Files: map[string]string{"commitSigningKey": key, "commitSigningPassphrase": pass}}
	token := Rule{URL: "https://git.example.com/team", Values: map[string]string{"token": canary}}
	for _, rules := range [][]Rule{{signs, token}, {token, signs}} {
		for _, r := range rules {
			if err := r.Check(); err != nil {
				t.Fatal(err)
			}
		}
		if got := told(rulesAt(rules).Signing(t.Context(), lookup())); got != "R P in rule https://git.example.com" {
			t.Error(got)
		}
		if creds, err := rulesAt(rules).Credentials(t.Context(), lookup()); err != nil || creds.Password != canary {
			t.Errorf("%v, %v", creds, err)
		}
		if files := RuleFiles(rules, lookup().URL); len(files) != 2 {
			t.Errorf("files %v", files)
		}
	}
	both := Rule{URL: "https://git.example.com", Values: map[string]string{"token": canary, "commitSigningKey": "V"}}
	if err := both.Check(); err != nil {
		t.Error(err)
	}
	if got := told(rulesAt([]Rule{both}).Signing(t.Context(), lookup())); got != "V  in rule https://git.example.com" {
		t.Error(got)
	}
	if creds, err := rulesAt([]Rule{both}).Credentials(t.Context(), lookup()); err != nil || creds.Password != canary {
		t.Errorf("%v, %v", creds, err)
	}
	elsewhere := lookup()
	elsewhere.URL = "https://other.example.com/x.git"
	if got := told(rulesAt([]Rule{both}).Signing(t.Context(), elsewhere)); got != "none" {
		t.Error(got)
	}
	for what, c := range map[string]struct {
		rule Rule
		want string
	}{
		"a passphrase alone": {Rule{URL: "https://x", Files: map[string]string{"commitSigningPassphrase": pass}}, "no commitSigningKey"},
		"a wrong name":       {Rule{URL: "https://x", Files: map[string]string{"commitSigninKey": key}}, `did you mean "commitSigningKey"`},
		"given twice": {Rule{URL: "https://x", Values: map[string]string{"commitSigningKey": "x"},
			Files: map[string]string{"commitSigningKey": key}}, "as value and as file"},
		"gone": {Rule{URL: "https://x", Files: map[string]string{"commitSigningKey": key + "x"}}, "no such file"},
	} {
		if err := c.rule.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", what, err, c.want)
		}
	}
	write("key", "R", 0o640)
	if os.Getuid() != 0 { // a group may read what is root's
		if err := signs.Check(); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("a key that others read: %v", err)
		}
	}
	write("key", "R", 0o644)
	if err := signs.Check(); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that everybody reads: %v", err)
	}
	if got := told(rulesAt([]Rule{signs}).Signing(t.Context(), lookup())); !strings.Contains(got, "chmod 600") {
		t.Errorf("a key that everybody reads, at a look: %s", got)
	}
	order := Places{Dir: dir + "/none", Rules: NewList([]Rule{both, signs})}
	if got := told(order.Signing(t.Context(), lookup())); got != "V  in rule https://git.example.com" {
		t.Errorf("in order: %s", got)
	}
}
