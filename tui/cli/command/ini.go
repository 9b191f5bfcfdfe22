package command

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// isINI reports whether a config file has the form of Grafana's operator.ini.
func isINI(path string, data []byte) bool {
	if ext := filepath.Ext(path); ext == ".ini" || ext == ".toml" {
		return ext == ".ini"
	}
	first := firstLine(data)
	key, _, _ := strings.Cut(first, "=")
	return iniSection.MatchString(first) || slices.Contains(iniIgnored, strings.TrimSpace(key))
}

// isTOML reports whether a config file that is no YAML looks like TOML.
func isTOML(path string, data []byte) bool {
	key, _, assigned := strings.Cut(firstLine(data), "=")
	return filepath.Ext(path) == ".toml" || assigned && !strings.ContainsAny(strings.TrimSpace(key), ": ")
}

// firstLine returns the first line that is no comment.
func firstLine(data []byte) string {
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && !strings.ContainsAny(line[:1], ";#") {
			return line
		}
	}
	return ""
}

// parseINI reads a file of Grafana's form into c.
func (c *ConfigFile) parseINI(data []byte) error {
	section, number := "", 0
	for line := range strings.Lines(string(data)) {
		number++
		refuse := func(format string, args ...any) error {
			return Usagef("limpet help config    # lists the settings", "%s:%d: %w", c.Path, number, fmt.Errorf(format, args...))
		}
		line = strings.TrimSpace(line)
		if line == "" || strings.ContainsAny(line[:1], ";#") {
			continue
		}
		if found := iniSection.FindStringSubmatch(line); found != nil {
			section = strings.TrimSpace(found[1])
			if meant := Suggestion(section, iniSections); meant != "" && !ofOperator(section) {
				return refuse("unknown section [%s]%s", section, meant)
			}
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if key = strings.TrimSpace(key); !ok || !iniKey.MatchString(key) {
			return refuse("neither [section] nor key = value")
		}
		if slices.Contains(iniIgnored, key) || section != "" && !ofOperator(section) {
			c.Ignored = append(c.Ignored, strings.TrimPrefix(section+"."+key, "."))
			continue
		}
		if section == "" {
			return refuse("key %q is in no section; try [operator]", key)
		}
		name, value := cmp.Or(iniRenamed[key], strings.ReplaceAll(key, "_", "-")), iniValue(value)
		if file, ok := strings.CutPrefix(value, "$__file{"); ok && (name == "token" || name == "loki-password") {
			name, value = name+"-file", strings.TrimSuffix(file, "}")
		}
		switch _, twice := c.Values[name]; {
		case strings.Contains(value, "${") || strings.HasPrefix(value, "$__"):
			return refuse("%s: variables are not expanded here; set %s instead", key, Variable(name))
		case name == "loki-password" && value != "":
			return refuse("%s: a password has a file of its own; try %s = $__file{PATH}", key, key)
		case twice:
			return refuse("%s is set twice", key)
		case value != "": // Grafana takes an empty value for the default
			c.Values[name], c.nodes[name] = value, [2]*yamlv3.Node{{Line: number}}
		}
	}
	return nil
}

// ofOperator reports whether a section is one of iniSections, or below one.
func ofOperator(section string) bool {
	return slices.ContainsFunc(iniSections, func(s string) bool { return section == s || strings.HasPrefix(section, s+".") })
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

var (
	// iniRenamed are the keys of Grafana's operator.ini that have another name here.
	iniRenamed = map[string]string{"concurrent_drivers": "drivers", "cleanup_interval": "claim-expiry"}
	// iniIgnored are keys, also those before any section, that have no meaning here.
	iniIgnored = []string{"token_namespace", "provisioning_server_public_url", "worker_count", "jobs_enabled", "folders_api_version",
		"home_path", "local_permitted_prefixes", "repository_types", "leader_election", "max_queued_jobs_per_repository", "max_queued_jobs_per_namespace", "name", "app_mode", "instance_name", "target",
		"force_migration", "allowed_git_urls", "public_root_url", "git_max_concurrent_requests_per_host", "git_rate_limit_rps_per_host",
		"git_rate_limit_burst_per_host"}
	// iniSections have settings, also with a suffix: [operators.provisioning.jobs]. All others are those of Grafana's server.
	iniSections = []string{"operator", "operators.provisioning", "grafana_api_server", "grpc_client_authentication", "provisioning"}

	iniSection = regexp.MustCompile(`^\[([^\[\]]+)\]\s*([;#].*)?$`)
	// iniKey is no token: a line that is no setting may hold one, and is not shown.
	iniKey = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,40}$`)
)
