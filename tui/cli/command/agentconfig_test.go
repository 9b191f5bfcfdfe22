package command

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"limpet/sync/agent"
)

// TestConfigLists: a rule with a word that is not known, or that could never apply, is refused
// whole.
func TestConfigLists(t *testing.T) {
	t.Parallel()
	const rule = "git-credentials:\n- url: https://git.example.com/*\n"
	const policy = "git-verify:\n- url: https://git.example.com/*\n"
	const keys = `  values: {a.sshpub: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKHEbJ2TrMYTuhwyo8nEpMNyA3GJDNJrPOLjKDEjkvmz"}`
	for text, want := range map[string]string{
		"other: 1":                             "",
		"git-credentials: hunter2":             ":1: git-credentials: ",
		"git-credentials:\n- hunter2":          ":1: git-credentials: ",
		rule:                                   "gives no key",
		rule + "  values: {username: ann}":     "",
		rule + "  extra: 1":                    `:3: git-credentials: unknown key "extra"`,
		rule + "  value: {a: hunter2}":         `:3: git-credentials: unknown key "value", did you mean "values"?`,
		rule + "  values: {usernme: ann}":      `unknown key "usernme"`,
		rule + "  files: {password: /no/file}": "/no/file",
		"git-credentials:\n- url: https://dev.azure.com\n  provider: azure": "",
		"git-credentials:\n- url: https://dev.azure.com\n  provider: azur":  `did you mean "azure"?`,
		policy + "  mode: HEAD\n" + keys:                                    "",
		policy + "  mod: HEAD\n" + keys:                                     `:3: git-verify: unknown key "mod", did you mean "mode"?`,
		policy + "  mode: HAED\n" + keys:                                    `"HAED" is none of`,
		policy + "  mode: HEAD":                                             "no keys",
		"git-verify:\n- repositories: [team/*]\n  mode: none":               "",
		"git-verify: []": "",
	} {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		config, err := parseConfig(path, []byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		e := &Env{Config: config}
		_, rulesErr := e.GitRules()
		_, err = e.GitVerify()
		err = errors.Join(rulesErr, err, config.check(nil))
		if strings.HasPrefix(text, "other") {
			err = errors.Join(rulesErr) // the key is unknown
		}
		var refused *Error
		switch {
		case want == "" && err != nil:
			t.Errorf("%s\nis refused: %v", text, err)
		case want != "" && (!errors.As(err, &refused) || refused.Code != ExitUsage || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "hunter2")):
			t.Errorf("%s\ngives %v, want a usage error with %q", text, err, want)
		}
	}
}

// TestRulesThatOthersWrite: a config file that others may write to decides nothing.
func TestRulesThatOthersWrite(t *testing.T) {
	t.Parallel()
	const policies, plain = "git-verify:\n- url: \"*\"\n  mode: \"none\"\n", "drivers: 4\n"
	for _, c := range []struct {
		text string
		mode os.FileMode
		good bool
	}{{policies, 0o644, true}, {policies, 0o600, true}, {policies, 0o664, false}, {policies, 0o646, false},
		{plain, 0o664, true}, {plain, 0o646, false}} {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := errors.Join(os.WriteFile(path, []byte(c.text), 0o600), os.Chmod(path, c.mode)); err != nil {
			t.Fatal(err)
		}
		if _, err := parseConfig(path, []byte(c.text)); (err == nil) != c.good {
			t.Errorf("%q, mode %o: %v", c.text, c.mode, err)
		}
	}
}

// TestUnreadableFiles: a setting that names a pipe, which would be waited for, or a file that is far
// too large is a usage error.
func TestUnreadableFiles(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	pipe, large := filepath.Join(s.Dir, "pipe"), filepath.Join(s.Dir, "large")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.WriteFile(large, nil, 0o600), os.Truncate(large, 8<<20)); err != nil {
		t.Fatal(err)
	}
	const server = "--provisioning-server-url=https://grafana.example.com "
	for _, flags := range []string{
		"--config=FILE", "--kubeconfig=FILE", server + "--token-file=FILE", server + "--tls-ca-file=FILE",
		server + "--tls-cert-file=FILE --tls-key-file=FILE", "--webhook-listen=:0 --webhook-cert-file=FILE --webhook-key-file=FILE",
		"--artifact-listen=:0 --artifact-url=https://a.example --artifact-token-file=FILE",
		"--artifact-listen=:0 --artifact-url=https://a.example --artifact-tls-cert-file=FILE --artifact-tls-key-file=FILE",
		"--notify=https://a.example --notify-hmac-key-file=FILE", "--loki-url=https://a.example --loki-password-file=FILE",
	} {
		for path, want := range map[string]string{pipe: "pipe is not a regular file", large: "large is larger than"} {
			e, _, err := s.parse(append(strings.Fields(strings.ReplaceAll(flags, "FILE", path)), "status")...)
			if err == nil {
				var cfg agent.Config
				if cfg, err = e.AgentConfig(nil, path, e.Log); err == nil {
					err = cfg.API.Check()
				}
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", flags, err, want)
			}
		}
	}
}
