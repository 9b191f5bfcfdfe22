package command

import (
	"github.com/alecthomas/kong"
)

// grafanaSet are the variables of Grafana's own command line tool and the flags that they stand for.
var grafanaSet = []struct{ variable, flag string }{
	{"GRAFANA_SERVER", "provisioning-server-url"},
	{"GRAFANA_TOKEN", "token"},
	{"GRAFANA_TLS_CERT_FILE", "tls-cert-file"},
	{"GRAFANA_TLS_KEY_FILE", "tls-key-file"},
	{"GRAFANA_TLS_CA_FILE", "tls-ca-file"},
}

// takeGrafana takes the server of Grafana's own tool when no setting of limpet names a server or a token. It
// takes all of them or none: a token goes only to the server that it was set with, and that server gets no
// certificate meant for another.
func takeGrafana(env func(string) string, config *ConfigFile, call *kong.Context) {
	if env("GRAFANA_SERVER") == "" || ownServer(call) {
		return
	}
	given := map[string]bool{}
	for name := range config.From {
		given[name] = true
	}
	for _, p := range call.Path {
		if p.Flag != nil {
			given[p.Flag.Name] = true
		}
	}
	for _, name := range []string{
		"provisioning-server-url", "kubeconfig", "manifests", "dashboards-server-url", "folders-server-url", "token", "token-file",
		"token-exchange-url", "tls-cert-file", "tls-key-file", "tls-ca-file",
	} {
		if given[name] {
			return
		}
	}
	flags := FlagsOf(call.Model.Node)
	for _, v := range grafanaSet {
		if value := env(v.variable); value != "" {
			flags[v.flag].Target.SetString(value)
			config.From[v.flag] = Origin{Kind: FromEnv, Name: v.variable}
		}
	}
}

// ownServer reports whether a command is a server itself or brings one.
func ownServer(call *kong.Context) bool {
	switch CallText(call.Selected()) {
	case "limpet api", "limpet demo":
		return true
	}
	return false
}

// noteGrafana notes a token that is not used because no server is named.
func (e *Env) noteGrafana(call *kong.Context) {
	if e.Embedded() && !ownServer(call) && !fileless(call.Selected()) && e.Getenv("GRAFANA_TOKEN") != "" &&
		e.Getenv("GRAFANA_SERVER") == "" {
		e.Notef("GRAFANA_TOKEN is not used: GRAFANA_SERVER does not say whom it is for")
	}
}
