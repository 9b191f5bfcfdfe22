package command

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestContextFaults: a wrong context is refused with its line, whatever the call wants.
func TestContextFaults(t *testing.T) {
	t.Parallel()
	for entries, want := range map[string]struct {
		line int
		text string // in the problem
	}{
		"  site: {ssh: x}\n":                                        {1, "list"},
		"- site\n":                                                  {2, "name"},
		"- ssh: x\n":                                                {2, `""`},
		"- {name: 'a b', ssh: x}\n":                                 {2, "a b"},
		"- {name: none, ssh: x}\n":                                  {2, "none"},
		"- name: a\n":                                               {2, "lacks"},
		"- name: a\n  namespace: x\n":                               {2, "lacks"},
		"- name: a\n  ssh: x\n- name: a\n  ssh: y\n":                {4, "two"},
		"- name: a\n  ssh: x\n  kubeconfig: /k\n":                   {2, "both"},
		"- name: a\n  ssh: -oProxyCommand=x\n":                      {3, "-oProxyCommand"},
		"- name: a\n  ssh: x y\n":                                   {3, "x y"},
		"- name: a\n  ssh: x;reboot\n":                              {3, "reboot"},
		"- name: a\n  ssh: x\n  token-file: /t\n":                   {4, "token-file"},
		"- name: a\n  ssh: x\n  drivers: 3\n":                       {4, "drivers"},
		"- name: a\n  kubeconfig: /k\n  program: /p\n":              {4, "program"},
		"- name: a\n  kubeconfig: /k\n  kubeconfg: /k\n":            {4, "kubeconfg"},
		"- name: a\n  kubeconfig: /k\n  output: json\n":             {4, "output"},
		"- name: a\n  kubeconfig: /k\n  context: b\n":               {4, "context"},
		"- name: a\n  kubeconfig: /k\n  namespace: [x]\n":           {4, "one value"},
		"- name: a\n  state: /s\n  provisioning-server-url:\n":      {4, "no value"},
		"- name: a\n  kubeconfig: /k\n  git-credentials: [{}]\n":    {4, "git-credentials"},
		"- name: a\n  kubeconfig: /k\n  token_file: /t\n":           {0, ""},
		"- name: a\n  ssh: ssh://ops@[fe80::1]:22\n  state: /s\n":   {0, ""},
		"- name: a\n  provisioning-server-url: https://x\n":         {0, ""},
		"- name: a\n  state: /s\n  controllers: off\n  drain: no\n": {0, ""},
	} {
		s := newSite(t)
		_, _, err := s.parse("--config", s.config(t, "contexts:\n"+entries), "status")
		if want.text == "" {
			if err != nil {
				t.Errorf("%q: %v", entries, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("config.yaml:%d: contexts: ", want.line)) ||
			!strings.Contains(err.Error(), want.text) {
			t.Errorf("%q: %v, want line %d with %s", entries, err, want.line, want.text)
		}
	}
}

// config writes a config file that others may not read.
func (s *site) config(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(s.Dir, "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestContextSettings: in a context its own settings and those of the output hold, and nothing that
// was set for another server, above all no token.
func TestContextSettings(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	path := s.config(t, `
provisioning-server-url: https://home.example
token: secret-of-home
manifests: /etc/limpet/manifests
theme: mono
contexts:
- {name: hq, provisioning-server-url: "https://hq.example", tls_ca_file: /ca, namespace: ops}
- {name: lab, state: /srv/lab.db}
- {name: far, ssh: far.example, state: /far.db}
`)
	s.Env["LIMPET_CONFIG"], s.Env["LIMPET_TOKEN_FILE"], s.Env["GRAFANA_SERVER"] = path, "/token-of-home", "https://other.example"
	s.Env["LIMPET_DRIVERS"] = "9"
	delete(s.Env, "LIMPET_STATE")
	for name, want := range map[string]struct {
		APIFlags
		state string
	}{
		"hq":  {APIFlags{ProvisioningServerURL: "https://hq.example", TLSCAFile: "/ca", Namespace: "ops"}, ""},
		"lab": {APIFlags{Namespace: "*"}, "/srv/lab.db"},
		"far": {APIFlags{Namespace: "*"}, ""},
	} {
		e, _, err := s.parse("--context", name, "status")
		if err != nil {
			t.Fatal(err)
		}
		got := e.Flags
		if got.APIFlags != want.APIFlags || got.State != want.state || got.Manifests != "" || got.Drivers != 3 || got.Theme != "mono" {
			t.Errorf("%s: %+v", name, got.APIFlags)
		}
		state, err := e.StatePath()
		if own := strings.HasSuffix(state, "/limpet-hq.db"); own != (name == "hq") || (err != nil) != (name == "far") {
			t.Errorf("%s: %q %v", name, state, err)
		}
	}
	for _, args := range [][]string{{"--context", "none"}, {}} {
		e, _, err := s.parse(append(args, "status")...)
		if err != nil || e.Context != nil || e.Flags.ProvisioningServerURL != "https://home.example" || e.Flags.Drivers != 9 {
			t.Errorf("%q: %v", args, err)
		}
	}
	for _, args := range [][]string{{"--context", "hqq"}, {"--context", "hq", "--state", "x"}, {"--context", "far", "--kubeconfig", "k"}} {
		if _, _, err := s.parse(append(args, "status")...); err == nil || !errors.As(err, new(*Error)) {
			t.Errorf("%q: %v", args, err)
		}
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	s.config(t, "contexts:\n- {name: hq, provisioning-server-url: \"https://hq.example\", token: secret-of-hq}\n")
	if _, _, err := s.parse("status"); err == nil || !strings.Contains(err.Error(), "a token in contexts") {
		t.Errorf("others may read the token of a context: %v", err)
	}
}
