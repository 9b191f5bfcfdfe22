package cli

import (
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"limpet/sync/auth"
)

// gitVerifyKey holds rules of what has to be signed in Repositories, whatever those ask
// for. It has no flag: who may start a command must not take it away by leaving it out.
const gitVerifyKey = "git-verify"

// gitVerifyFields are the keys of a rule.
var gitVerifyFields = []string{"url", "repositories", "mode", "principals", "values", "files"}

// gitVerify reads the rules of what has to be signed from the config file, and refuses
// what could not be met or asks for nothing.
func (r *run) gitVerify() ([]auth.Demand, error) {
	key, ok := r.config.key(gitVerifyKey)
	if !ok {
		return nil, nil
	}
	raw := r.config.Values[key]
	list, _ := raw.([]any)
	for _, one := range list {
		fields, _ := one.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if slices.Contains(gitVerifyFields, name) {
				continue
			}
			if near := nearest(name, gitVerifyFields); near != "" {
				return nil, usage("", "config file %s: %s: unknown key %q, did you mean %q?", r.config.Path, gitVerifyKey, name, near)
			}
			return nil, usage("", "config file %s: %s: unknown key %q, known are %s", r.config.Path, gitVerifyKey, name, strings.Join(gitVerifyFields, ", "))
		}
	}
	data, err := yaml.Marshal(raw)
	if err != nil {
		return nil, err
	}
	var rules []auth.Demand
	if err := yaml.UnmarshalStrict(data, &rules); err != nil {
		return nil, usage("", "config file %s: %s: %w", r.config.Path, gitVerifyKey, err)
	}
	for _, rule := range rules {
		if err := rule.Check(); err != nil {
			return nil, usage("", "config file %s: %w", r.config.Path, err)
		}
	}
	return rules, nil
}
