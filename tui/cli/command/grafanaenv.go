package command

import (
	"slices"

	"github.com/alecthomas/kong"
)

// grafanaFlags maps the variables of Grafana's own command line tool to flags.
var grafanaFlags = map[string]string{
	"GRAFANA_SERVER": "provisioning-server-url", "GRAFANA_TOKEN": "token", "GRAFANA_TLS_CERT_FILE": "tls-cert-file",
	"GRAFANA_TLS_KEY_FILE": "tls-key-file", "GRAFANA_TLS_CA_FILE": "tls-ca-file",
}

// ServerFlags are the settings that name a server, a token or a certificate.
var ServerFlags = []string{
	"provisioning-server-url", "kubeconfig", "manifests", "dashboards-server-url", "folders-server-url", "token", "token-file",
	"token-exchange-url", "tls-cert-file", "tls-key-file", "tls-ca-file",
}

// takeGrafana takes the server of Grafana's own tool when none of ServerFlags is set and the
// command is no server itself. It takes all of them or none: a token goes only to the server that
// it was set with, and that server gets no certificate meant for another.
func takeGrafana(env func(string) string, config *ConfigFile, call *kong.Context) {
	words := CallText(call.Selected())
	if env("GRAFANA_SERVER") == "" || config.Context != nil || words == "limpet api" || words == "limpet demo" ||
		slices.ContainsFunc(call.Path, func(p *kong.Path) bool { return p.Flag != nil && slices.Contains(ServerFlags, p.Flag.Name) }) {
		return
	}
	flags := FlagsOf(call.Model.Node)
	for variable, flag := range grafanaFlags {
		if value := env(variable); value != "" {
			flags[flag].Target.SetString(value)
			config.From[flag] = Origin{Kind: FromEnv, Name: variable}
		}
	}
}
