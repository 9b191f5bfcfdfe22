package cli

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
		_, err = (&run{config: config}).gitRules()
		var refused *Failure
		switch {
		case want == "" && err != nil:
			t.Errorf("%s\nis refused: %v", text, err)
		case want != "" && (!errors.As(err, &refused) || refused.Code != ExitUsage || !strings.Contains(err.Error(), want)):
			t.Errorf("%s\ngives %v, want a usage error with %q", text, err, want)
		}
	}
}
