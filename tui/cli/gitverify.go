package cli

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"limpet/sync/api"
	"limpet/sync/auth"
	"limpet/sync/text"
	"limpet/sync/worker"
)

// gitVerifyKey holds rules of what has to be signed in Repositories, whatever those ask
// for. It has no flag: who may start a command must not take it away by leaving it out.
const gitVerifyKey = "git-verify"

// gitVerify reads the rules of what has to be signed from the config file, and refuses
// what could not be met or asks for nothing.
func (r *run) gitVerify() ([]auth.Demand, error) {
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

// signatures says what has to be signed in a repository: as it asks itself, and as the
// config file of this call wants it. Which keys were good is told by its condition.
func (r *run) signatures(u *unstructured.Unstructured, repo api.Repository) string {
	var parts []string
	if repo.GitVerify != "" {
		parts = append(parts, repo.GitVerify+", by annotation "+api.AnnoGitVerify)
	}
	rules, err := r.gitVerify()
	if err != nil {
		parts = append(parts, "the rules of the config file cannot be read: "+err.Error())
	}
	for _, rule := range auth.DemandsFor(rules, u.GetNamespace(), u.GetName(), worker.URLs(repo)...) {
		parts = append(parts, rule.Mode+", by rule "+rule.Name()+" of "+r.config.Path)
	}
	return text.Clean(strings.Join(parts, "; "))
}
