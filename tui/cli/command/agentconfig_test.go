package command

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestGitRules(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"other: 1":                    "",
		"git-credentials: hunter2":    ":1: git-credentials takes a list, each entry with url, provider, values, files",
		"git-credentials:\n- hunter2": ":1: git-credentials: entry 1 has no keys, known are url, provider, values, files",
		"git_credentials:\n- url: https://git.example.com/*":                                           "gives no key",
		"git-credentials:\n- url: https://git.example.com/*\n  values: {username: ann}":                "",
		"git-credentials:\n- url: https://git.example.com/*\n  values: {username: ann}\n  extra: 1":    `:4: git-credentials: unknown key "extra", known are url, provider, values, files`,
		"git-credentials:\n- url: https://git.example.com/*\n  values: {usernme: ann}":                 `unknown key "usernme"`,
		"git-credentials:\n- url: https://dev.azure.com\n  provider: azure":                            "",
		"git-credentials:\n- url: https://dev.azure.com\n  provider: azur":                             `did you mean "azure"?`,
		"git-credentials:\n- url: https://dev.azure.com\n  provder: azure":                             `:3: git-credentials: unknown key "provder", did you mean "provider"?`,
		"git-credentials:\n- url: https://git.example.com/*":                                           "gives no key",
		"git-credentials:\n- url: https://git.example.com/*\n  files: {password: /there/is/no/secret}": "/there/is/no/secret",
	} {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		config, err := parseConfig(path, []byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		_, err = (&Env{Config: config}).GitRules()
		var refused *Error
		switch {
		case want == "" && err != nil:
			t.Errorf("%s\nis refused: %v", text, err)
		case want != "" && (!errors.As(err, &refused) || refused.Code != ExitUsage || !strings.Contains(err.Error(), want)):
			t.Errorf("%s\ngives %v, want a usage error with %q", text, err, want)
		}
	}
}

// TestGitVerify: a rule with a word that is not known is refused whole, with the one that
// was probably meant.
func TestGitVerify(t *testing.T) {
	t.Parallel()
	const key = `{a.sshpub: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKHEbJ2TrMYTuhwyo8nEpMNyA3GJDNJrPOLjKDEjkvmz"}`
	for text, want := range map[string]string{
		"other: 1": "",
		"git-verify:\n- url: https://git.example.com/*\n  mode: HEAD\n  values: " + key:               "",
		"git-verify:\n- repositories: [team/*]\n  mode: none":                                         "",
		"git-verify:\n- url: https://git.example.com/*\n  mod: HEAD\n  values: " + key:                `unknown key "mod", did you mean "mode"?`,
		"git-verify:\n- url: https://git.example.com/*\n  mode: HEAD\n  principal: [a]\n  values: {}": `did you mean "principals"?`,
		"git-verify:\n- url: \"*\"\n  mode: HEAD\n  xyzzy: 1":                                         `unknown key "xyzzy", known are url, repositories`,
		"git-verify:\n- url: \"*\"\n  mode: HAED\n  values: " + key:                                   `"HAED" is none of`,
		"git-verify:\n- url: \"*\"\n  mode: HEAD":                                                     "no keys",
		"git-verify: {url: x}":                ":1: git-verify takes a list, each entry with url, repositories,",
		"git_verify:\n- url: x\n  mode: HEAD": "no keys",
		"git-verify:\n- x":                    ":1: git-verify: entry 1 has no keys, known are url, repositories,",
	} {
		config, err := parseConfig("config.yaml", []byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		_, err = (&Env{Config: config}).GitVerify()
		var refused *Error
		switch {
		case want == "" && err != nil:
			t.Errorf("%s\nis refused: %v", text, err)
		case want != "" && (!errors.As(err, &refused) || refused.Code != ExitUsage || !strings.Contains(err.Error(), want)):
			t.Errorf("%s\ngives %v, want a usage error with %q", text, err, want)
		}
	}
	config, err := parseConfig("config.yaml", []byte("git-verify: []"))
	if err != nil {
		t.Fatal(err)
	}
	if err := config.check(nil); err != nil {
		t.Error(err)
	}
	if config, err = parseConfig("config.yaml", []byte("git-verfy: []")); err != nil {
		t.Fatal(err)
	}
	if err := config.check(nil); err == nil || !strings.Contains(err.Error(), `did you mean "git-verify"?`) {
		t.Errorf("a misspelt key: %v", err)
	}
}

// TestRulesThatOthersWrite: a config file that others may write to decides nothing.
func TestRulesThatOthersWrite(t *testing.T) {
	t.Parallel()
	for mode, want := range map[os.FileMode]bool{0o644: true, 0o600: true, 0o664: false, 0o646: false} {
		path := filepath.Join(t.TempDir(), "config.yaml")
		text := []byte("git-verify:\n- url: \"*\"\n  mode: \"none\"\n")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := parseConfig(path, text); (err == nil) != want {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
}
