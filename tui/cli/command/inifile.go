package command

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// iniKeys are the settings of Grafana's operator.ini by the flags that mean the same; "" = there is none.
var iniKeys = map[string]string{
	"token": "token", "token_exchange_url": "token-exchange-url", "token_namespace": "",
	"provisioning_server_url": "provisioning-server-url", "dashboards_server_url": "dashboards-server-url",
	"folders_server_url": "folders-server-url", "provisioning_server_public_url": "",
	"tls_insecure": "tls-insecure", "tls_cert_file": "tls-cert-file", "tls_key_file": "tls-key-file", "tls_ca_file": "tls-ca-file",
	"resync_interval": "resync-interval", "concurrent_drivers": "drivers", "max_sync_workers": "max-sync-workers",
	"max_job_timeout": "max-job-timeout", "job_interval": "job-interval", "lease_renewal_interval": "lease-renewal-interval",
	"cleanup_interval": "claim-expiry", "history_expiration": "history-expiration", "max_repositories": "max-repositories",
	"max_resources_per_repository": "max-resources-per-repository", "max_incremental_changes": "max-incremental-changes",
	"worker_count": "", "jobs_enabled": "", "folders_api_version": "", "home_path": "", "local_permitted_prefixes": "",
	"repository_types": "", "leader_election": "", "loki_url": "", "loki_user": "", "loki_password": "", "loki_tenant_id": "",
	"max_queued_jobs_per_repository": "", "max_queued_jobs_per_namespace": "",
}

var (
	// iniSections have the keys of iniKeys, also with a suffix: [operators.provisioning.jobs].
	iniSections = []string{"operator", "operators.provisioning", "grafana_api_server", "grpc_client_authentication", "provisioning"}
	// iniForeign are sections of Grafana that do not concern a sync agent.
	iniForeign = []string{"analytics", "auth", "database", "feature_toggles", "log", "metrics", "paths", "secrets_manager", "security", "server",
		"tracing", "unified_storage"}

	iniSection = regexp.MustCompile(`^\[([^\[\]]+)\]\s*([;#].*)?$`)
)

// isINI reports whether a config file has the form of Grafana's operator.ini.
func isINI(path string, data []byte) bool {
	if ext := filepath.Ext(path); ext == ".ini" || ext == ".toml" {
		return ext == ".ini"
	}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && !strings.ContainsAny(line[:1], ";#") {
			return iniSection.MatchString(line)
		}
	}
	return false
}

// parseINI reads a file of Grafana's form into c.
func (c *ConfigFile) parseINI(data []byte) error {
	section, number := "", 0
	for line := range strings.Lines(strings.TrimPrefix(string(data), "\ufeff")) {
		number++
		refuse := func(format string, args ...any) error {
			return Usagef("limpet help config    # lists the settings", "%s:%d: %w", c.Path, number, fmt.Errorf(format, args...))
		}
		line = strings.TrimSpace(line)
		if line == "" || strings.ContainsAny(line[:1], ";#") {
			continue
		}
		if found := iniSection.FindStringSubmatch(line); found != nil {
			if section = strings.TrimSpace(found[1]); !inSections(section, iniSections) && !inSections(section, iniForeign) {
				return refuse("unknown section [%s]%s", section, Meant(section, slices.Concat(iniSections, iniForeign)))
			}
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if key = strings.TrimSpace(key); !ok || key == "" {
			return refuse("neither [section] nor key = value")
		}
		name, known := iniKeys[key]
		switch {
		case inSections(section, iniForeign), known && name == "":
			c.Ignored = append(c.Ignored, section+"."+key)
			continue
		case !known || section == "":
			return refuse("unknown key %q in section [%s]%s", key, section, Meant(key, slices.Sorted(maps.Keys(iniKeys))))
		}
		value = iniValue(value)
		if file, ok := strings.CutPrefix(value, "$__file{"); ok && name == "token" {
			name, value = "token-file", strings.TrimSuffix(file, "}")
		}
		switch _, twice := c.Values[name]; {
		case strings.Contains(value, "${") || strings.HasPrefix(value, "$__"):
			return refuse("%s: variables are not expanded here; set %s instead", key, Variable(name))
		case twice:
			return refuse("%s is set twice", key)
		case value != "": // Grafana takes an empty value for the default
			c.Values[name], c.nodes[name] = value, [2]*yamlv3.Node{{Line: number}}
		}
	}
	return nil
}

// inSections reports whether a section is one of these, or below one.
func inSections(section string, of []string) bool {
	return slices.ContainsFunc(of, func(s string) bool { return section == s || strings.HasPrefix(section, s+".") })
}

// iniValue returns a value without quotes, or without the comment behind it.
func iniValue(value string) string {
	value = strings.TrimSpace(value)
	for _, quote := range []string{`"""`, `"`, "`", "'"} {
		if rest, ok := strings.CutPrefix(value, quote); ok {
			if inner, _, closed := strings.Cut(rest, quote); closed {
				return inner
			}
		}
	}
	if i := strings.IndexAny(value, ";#"); i >= 0 {
		value = value[:i]
	}
	return strings.TrimSpace(value)
}

// otherFormat refuses what is neither YAML nor Grafana's operator.ini; nil where it may be YAML.
func (c *ConfigFile) otherFormat(data []byte, parsed error) error {
	text := strings.TrimSpace(string(data))
	ext := filepath.Ext(c.Path)
	key, _, assigned := strings.Cut(text[:max(0, strings.IndexAny(text+"\n", "\n"))], "=")
	toml := parsed != nil && assigned && !strings.ContainsAny(strings.TrimSpace(key), ": ")
	if ext != ".toml" && ext != ".json" && !strings.HasPrefix(text, "{") && !toml {
		return nil
	}
	return Usagef("limpet config init    # writes an example",
		"config file %s: this looks like %s; a config file is YAML (key: value), or an ini file of Grafana's operator", c.Path,
		map[bool]string{true: "JSON", false: "TOML"}[ext == ".json" || strings.HasPrefix(text, "{")])
}
