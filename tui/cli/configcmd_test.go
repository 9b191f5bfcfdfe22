package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"limpet/tui/cli/command"
	"limpet/tui/cli/config"
)

// TestPrecedence: a flag beats the variable, the variable beats the file, the file beats the default; 'config show'
// says which holds.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	path := filepath.Join(s.Dir, "c.yaml")
	for name, v := range map[string]struct {
		file, env, flag string
		want            [4]string // by default, and from each of these
	}{
		"drivers":             {"4", "5", "6", [4]string{"3", "4", "5", "6"}},
		"namespace":           {"12", "env", "flag", [4]string{"*", "12", "env", "flag"}},
		"job-interval":        {"1m", "2m", "7d", [4]string{"30s", "1m0s", "2m0s", "168h0m0s"}},
		"tls-insecure":        {"true", "false", "true", [4]string{"<nil>", "true", "false", "true"}},
		"quiet":               {"true", "false", "true", [4]string{"false", "true", "false", "true"}},
		"actions":             {"[pull, push]", "move,delete", "pr", [4]string{"[]", "[pull push]", "[move delete]", "[pr]"}},
		"sink-prefix":         {"[\"/a,b\", /c]", "/d", "/e,f", [4]string{"[]", "[/a,b /c]", "[/d]", "[/e,f]"}},
		"cleanup":             {"off", "fail", "requeue", [4]string{"requeue", "off", "fail", "requeue"}},
		"controllers":         {"on", "off", "auto", [4]string{"auto", "on", "off", "auto"}},
		"max-repositories":    {"12345678", "2", "3", [4]string{"<nil>", "1.2345678e+07", "2", "3"}}, // YAML makes it a float
		"history-max-bytes":   {"1000000", "1GiB", "0", [4]string{"6.7108864e+07", "1e+06", "1.073741824e+09", "0"}},
		"repository-selector": {"a=file", "a=env", "a=flag", [4]string{"", "a=file", "a=env", "a=flag"}},
	} {
		variable := command.Variable(name)
		sources := []string{"default", "file", "environment", "flag"}
		args := []string{"config", "show", "-o", "json"}
		for level, source := range sources {
			switch source {
			case "file":
				text := name + ": " + v.file + "\n"
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				args = append(args, "--config="+path)
			case "environment":
				s.Env[variable] = v.env
			case "flag":
				args = append(args, "--"+name+"="+v.flag)
			}
			out, _ := s.Must(t, 0, args...)
			var got struct{ Items []config.Setting }
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatal(err)
			}
			for _, item := range got.Items {
				if item.Name == name && (fmt.Sprint(item.Value) != v.want[level] || item.Kind != source) {
					t.Errorf("--%s is %v from %s, want %s from %s", name, item.Value, item.Kind, v.want[level], source)
				}
			}
		}
		delete(s.Env, variable)
	}
}

// TestExampleConfig: the file that 'config init' writes is good as it stands, and with each of its settings taken in.
func TestExampleConfig(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	path := filepath.Join(s.Dir, "a", "b", "config.yaml")
	if out, _ := s.Must(t, 0, "config", "init", path); !strings.HasSuffix(out, "try: limpet config show --config "+path+"\n") {
		t.Errorf("%s", out)
	}
	info, err := os.Stat(path)
	dir, dirErr := os.Stat(filepath.Dir(path))
	if err != nil || dirErr != nil || info.Mode().Perm() != 0o600 || dir.Mode().Perm() != 0o700 {
		t.Fatalf("%v %v %v %v", info, dir, err, dirErr)
	}
	if out, _ := s.Must(t, 0, "config", "validate", path); out != path+" is good\n" {
		t.Errorf("%s", out)
	}
	if err := os.WriteFile(path, []byte("mine: keep\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs := s.Must(t, command.ExitUsage, "config", "init", path); !strings.Contains(errs,
		"already exists\n  try: limpet config init "+path+" --force    # or see it: limpet config show\n") {
		t.Errorf("%s", errs)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "mine: keep\n" {
		t.Fatalf("what was there is gone: %s %v", data, err)
	}
	s.Must(t, 0, "config", "init", "--force", path)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	settings := regexp.MustCompile(`(?m)^#[a-z][a-z-]*:.*\n(#.*\n)*`).FindAllString(string(text), -1)
	if len(settings) < 45 {
		t.Errorf("only %d settings in\n%s", len(settings), text)
	}
	for _, one := range settings {
		one = strings.TrimPrefix(strings.ReplaceAll(one, "\n#", "\n"), "#")
		if strings.HasPrefix(one, "webhook-") && !strings.HasPrefix(one, "webhook-listen") {
			one += "webhook-listen: 127.0.0.1:9441\n" // they go with it
		}
		if strings.HasPrefix(one, "artifact-") && !strings.HasPrefix(one, "artifact-listen") {
			one += "artifact-listen: 127.0.0.1:9442\n"
		}
		if err := os.WriteFile(path, []byte(one), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out, errs := s.Call("config", "validate", path)
		if pair := regexp.MustCompile(`^(webhook|artifact-tls)-(cert|key)-file`); pair.MatchString(one) {
			// Of two files that go together, neither is good alone.
			if code != command.ExitUsage || !strings.Contains(out, "go together") {
				t.Errorf("%q: exit %d: %s", one, code, out)
			}
			continue
		}
		if strings.Contains(out, "open /etc/limpet/") && strings.Contains(out, "no such file") { // of a token
			continue
		}
		if code != 0 {
			t.Errorf("%q: exit %d: %s%s", one, code, out, errs)
		}
	}
	for _, line := range strings.Split(string(text), "\n") {
		if len(line) > 84 {
			t.Errorf("a line of %d: %s", len(line), line)
		}
	}
}

// TestGrafanaVariables: server, token and certificates of Grafana's own tool are
// taken together, and only where nothing that is meant for limpet names any of them.
func TestGrafanaVariables(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "c.yaml")
	all := map[string]string{
		"GRAFANA_SERVER": "https://g.example", "GRAFANA_TOKEN": "gsecret-token", "GRAFANA_TLS_CERT_FILE": "/g.crt",
		"GRAFANA_TLS_KEY_FILE": "/g.key", "GRAFANA_TLS_CA_FILE": "/g.ca",
	}
	type made struct{ Server, Token, Cert, Key, CA string }
	whole := made{"https://g.example", "gsecret-token", "/g.crt", "/g.key", "/g.ca"}
	for _, tt := range []struct {
		name string
		args []string
		env  map[string]string
		file string
		want made
	}{
		{"nothing else", nil, nil, "", whole},
		{"what is beside them", []string{"--drivers=2", "--tls-insecure=false"}, nil, "namespace: team\n", whole},
		{"a server by flag", []string{"--provisioning-server-url=https://f"}, nil, "", made{Server: "https://f"}},
		{"a server in the environment", nil, map[string]string{"LIMPET_PROVISIONING_SERVER_URL": "https://e"}, "", made{Server: "https://e"}},
		{"a server in the file", nil, nil, "provisioning-server-url: https://c\n", made{Server: "https://c"}},
		{"none, in words", nil, map[string]string{"LIMPET_PROVISIONING_SERVER_URL": ""}, "", made{}},
		{"a token by flag", []string{"--token=mine"}, nil, "", made{Token: "mine"}},
		{"a token in the file", nil, nil, "token-file: /t\n", made{}},
		{"a token exchange in the file", nil, nil, "token-exchange-url: https://x\n", made{}},
		{"another place for dashboards", nil, map[string]string{"LIMPET_DASHBOARDS_SERVER_URL": "https://d"}, "", made{}},
		{"a certificate of another", []string{"--tls-ca-file=/mine"}, nil, "", made{CA: "/mine"}},
		{"a kubeconfig", []string{"--kubeconfig=/k"}, nil, "", made{}},
		{"files for the embedded API", nil, nil, "manifests: /m\n", made{}},
		{"a token without its server", nil, map[string]string{"GRAFANA_SERVER": ""}, "", made{}},
		{"a server alone", nil, map[string]string{"GRAFANA_TOKEN": "", "GRAFANA_TLS_CERT_FILE": "", "GRAFANA_TLS_KEY_FILE": "",
			"GRAFANA_TLS_CA_FILE": ""}, "", made{Server: "https://g.example"}},
	} {
		s := newSite(t)
		for _, set := range []map[string]string{all, tt.env} {
			for name, value := range set {
				s.Env[name] = value
			}
		}
		args := append([]string{"status"}, tt.args...)
		if tt.file != "" {
			if err := os.WriteFile(file, []byte(tt.file), 0o600); err != nil {
				t.Fatal(err)
			}
			args = append(args, "--config="+file)
		}
		e, _, err := s.parse(args...)
		if err != nil {
			t.Fatal(err)
		}
		c := e.Flags
		if got := (made{c.ProvisioningServerURL, c.Token, c.TLSCertFile, c.TLSKeyFile, c.TLSCAFile}); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
	s := newSite(t)
	for name, value := range all {
		s.Env[name] = value
	}
	for _, own := range []string{"api", "demo"} {
		if e, _, err := s.parse(own); err != nil || e.Flags.Token+e.Flags.ProvisioningServerURL+e.Flags.TLSCertFile != "" {
			t.Errorf("limpet %s, which is a server itself, takes them: %v", own, err)
		}
	}
}
