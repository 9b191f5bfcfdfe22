package cli

import "limpet/sync/agent"

// limits are those of the flags.
func (g *Globals) limits() (agent.Limits, error) {
	l := agent.Limits{Repositories: g.MaxRepositories, Resources: g.MaxResources, IncrementalChanges: g.MaxIncremental, Parallel: g.MaxSyncWorkers}
	incremental := int64(l.IncrementalChanges)
	for _, flag := range []struct {
		name  string
		value *int64
	}{{"--max-repositories", l.Repositories}, {"--max-resources-per-repository", l.Resources}, {"--max-incremental-changes", &incremental}} {
		if flag.value != nil && *flag.value < 0 {
			return l, usage("limpet --daemon "+flag.name+" 0", "%s %d: the least is 0, which is no limit", flag.name, *flag.value)
		}
	}
	return l, nil
}
