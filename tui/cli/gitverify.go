package cli

import (
	"sigs.k8s.io/yaml"

	"limpet/sync/auth"
)

// gitVerifyKey holds rules of what has to be signed in Repositories, whatever those ask
// for. It has no flag: who may start a command must not take it away by leaving it out.
const gitVerifyKey = "git-verify"

// gitVerify reads the rules of what has to be signed from the config file, and refuses
// what could not be met or asks for nothing.
func (r *run) gitVerify() ([]auth.VerificationPolicy, error) {
	key, ok := r.config.key(gitVerifyKey)
	if !ok {
		return nil, nil
	}
	if err := r.config.refused(r.config.listFaults(gitVerifyKey)); err != nil {
		return nil, err
	}
	data, err := yaml.Marshal(r.config.Values[key])
	if err != nil {
		return nil, err
	}
	var rules []auth.VerificationPolicy
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
