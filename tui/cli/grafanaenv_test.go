package cli

import (
	"os"
	"path/filepath"
	"testing"
)

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
