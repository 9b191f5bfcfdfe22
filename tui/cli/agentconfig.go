package cli

import (
	"cmp"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/auth"
	"limpet/sync/jobs"
	"limpet/sync/netx"
)

// localHistory is how long finished jobs are kept in the state file when
// --history-expiration does not say. A week covers the question "since when?".
const localHistory = 168 * time.Hour

// agentConfig turns the flags into what an agent is made of. It judges all of
// them before anything is opened or written.
func (r *run) agentConfig(store *state.Store, path string, log *slog.Logger) (agent.Config, error) {
	g := r.g
	if err := g.bounds(); err != nil {
		return agent.Config{}, err
	}
	apiCfg, err := r.apiConfig()
	if err != nil {
		return agent.Config{}, err
	}
	apiCfg.Logger = log
	selector := labels.Everything()
	if g.RepositorySelector != "" {
		if selector, err = labels.Parse(g.RepositorySelector); err != nil {
			return agent.Config{}, usage("limpet --repository-selector 'site=east'", "--repository-selector: %w", err)
		}
	}
	if g.Manifests != "" && !r.embedded() {
		return agent.Config{}, usage("", "--manifests fills the embedded API; it cannot be used with --provisioning-server-url or --kubeconfig")
	}
	rules, err := r.gitRules()
	if err != nil {
		return agent.Config{}, err
	}
	demands, err := r.gitVerify()
	if err != nil {
		return agent.Config{}, err
	}
	dir := g.CredentialsDir
	if dir == "" {
		dir = r.Getenv("CREDENTIALS_DIRECTORY")
	}
	history, local := g.HistoryExpiration, g.HistoryExpiration
	if local == 0 {
		local = localHistory
	}
	if r.embedded() {
		// Nobody else prunes what the embedded API holds.
		history = local
	}
	options := jobs.Options{
		Drivers: g.Drivers, Timeout: g.MaxJobTimeout, Interval: g.JobInterval, Expiry: g.ClaimExpiry, Renew: g.LeaseRenewalInterval,
		MaxAttempts: g.MaxAttempts, Cleanup: g.Cleanup, Selector: selector, Actions: g.Actions,
		HistoryExpiration: history, LocalHistory: local, LocalRecords: g.HistoryMaxRecords, LocalBytes: int64(g.HistoryMaxBytes), Agent: hostname(), Namespace: g.listNamespace(), Logger: log, Drained: g.Drain,
	}
	if err := options.Validate(); err != nil {
		return agent.Config{}, usage("limpet --help", "%w", err)
	}
	limits, err := g.limits()
	if err != nil {
		return agent.Config{}, err
	}
	guard, err := netx.ParseGuard(g.GitPrivateNetworks)
	if err != nil {
		return agent.Config{}, usage("limpet --help", "--git-private-networks: %w", err)
	}
	if g.GitTimeout < 0 {
		return agent.Config{}, usage("limpet --help", "--git-timeout is %s: it must be more than 0, or 0 for three quarters of --max-job-timeout", g.GitTimeout)
	}
	for _, fault := range netx.ReadEnvironment(r.Getenv).Faults() {
		log.Warn("a variable for proxies is wrong", "err", fault, "next", "correct "+fault.Name+" and start again")
	}
	hooks, err := r.webhooks()
	if err != nil {
		return agent.Config{}, err
	}
	return agent.Config{
		Store: store, StatePath: path, Version: Version,
		API: apiCfg, Dashboards: g.DashboardsServerURL, Folders: g.FoldersServerURL, Namespace: g.listNamespace(), Manifests: g.Manifests,
		Jobs: options, Resync: g.ResyncInterval, Controllers: g.Controllers, Limits: limits,
		CredentialsDir: dir, GitRules: rules, Demands: demands, TokenCache: g.TokenCacheMaxSize, AllowInsecureGit: g.AllowInsecureGit, Guard: guard, GitTimeout: cmp.Or(g.GitTimeout, g.MaxJobTimeout*3/4), LocalGit: g.LocalGitPrefix, SinkPrefixes: g.SinkPrefix,
		Socket: true, Telemetry: g.TelemetryListen, Webhooks: hooks, Logger: log,
	}, nil
}

// gitRules reads the credentials by URL pattern from the config file, and
// refuses what no look-up could use.
func (r *run) gitRules() ([]auth.Rule, error) {
	key, ok := r.config.key(gitRulesKey)
	if !ok {
		return nil, nil
	}
	if err := r.config.refused(r.config.listFaults(gitRulesKey)); err != nil {
		return nil, err
	}
	data, err := yaml.Marshal(r.config.Values[key])
	if err != nil {
		return nil, err
	}
	var rules []auth.Rule
	if err := yaml.UnmarshalStrict(data, &rules); err != nil {
		return nil, usage("", "config file %s: %s: %w", r.config.Path, gitRulesKey, err)
	}
	for _, rule := range rules {
		if err := rule.Check(); err != nil {
			return nil, usage("", "config file %s: %w", r.config.Path, err)
		}
	}
	return rules, nil
}
