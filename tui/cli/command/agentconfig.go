package command

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
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

// AgentConfig builds the configuration of an agent from the flags. It validates all of them before anything is
// opened or written.
func (e *Env) AgentConfig(store *state.Store, path string, log *slog.Logger) (agent.Config, error) {
	g := e.Flags
	if err := g.bounds(); err != nil {
		return agent.Config{}, err
	}
	apiCfg, err := e.apiConfig()
	if err != nil {
		return agent.Config{}, err
	}
	apiCfg.Logger = log
	selector := labels.Everything()
	if g.RepositorySelector != "" {
		if selector, err = labels.Parse(g.RepositorySelector); err != nil {
			return agent.Config{}, Usagef("limpet --repository-selector 'site=east'", "--repository-selector: %w", err)
		}
	}
	if g.Manifests != "" && !e.Embedded() {
		return agent.Config{}, Usagef("", "--manifests fills the embedded API; it cannot be used with --provisioning-server-url or --kubeconfig")
	}
	rules, err := e.GitRules()
	if err != nil {
		return agent.Config{}, err
	}
	policies, err := e.GitVerify()
	if err != nil {
		return agent.Config{}, err
	}
	dir := g.CredentialsDir
	if dir == "" {
		dir = e.Getenv("CREDENTIALS_DIRECTORY")
	}
	history, local := g.HistoryExpiration, g.HistoryExpiration
	if local == 0 {
		local = localHistory
	}
	if e.Embedded() {
		// The embedded API has no other process that prunes it.
		history = local
	}
	options := jobs.Options{
		Drivers: g.Drivers, Timeout: g.MaxJobTimeout, Interval: g.JobInterval, Expiry: g.ClaimExpiry, Renew: g.LeaseRenewalInterval,
		MaxAttempts: g.MaxAttempts, Cleanup: g.Cleanup, Selector: selector, Actions: g.Actions,
		HistoryExpiration: history, LocalHistory: local, LocalRecords: g.HistoryMaxRecords, LocalBytes: int64(g.HistoryMaxBytes),
		Agent: Hostname(), Namespace: g.ListNamespace(), Logger: log, Drained: g.Drain,
	}
	if err := options.Validate(); err != nil {
		return agent.Config{}, Usagef("limpet --help", "%w", err)
	}
	limits, err := g.limits()
	if err != nil {
		return agent.Config{}, err
	}
	guard, err := netx.ParseGuard(g.GitPrivateNetworks)
	if err != nil {
		return agent.Config{}, Usagef("limpet --help", "--git-private-networks: %w", err)
	}
	if g.GitTimeout < 0 {
		return agent.Config{}, Usagef("limpet --help",
			"--git-timeout is %s: it must be more than 0, or 0 for three quarters of --max-job-timeout", g.GitTimeout)
	}
	for _, fault := range netx.ReadEnvironment(e.Getenv).Faults() {
		log.Warn("a variable for proxies is wrong", "err", fault, "next", "correct "+fault.Name+" and start again")
	}
	hooks, err := e.webhooks()
	if err != nil {
		return agent.Config{}, err
	}
	return agent.Config{
		Store: store, StatePath: path, Version: Version,
		API: apiCfg, Dashboards: g.DashboardsServerURL, Folders: g.FoldersServerURL, Namespace: g.ListNamespace(), Manifests: g.Manifests,
		Jobs: options, Resync: g.ResyncInterval, Controllers: g.Controllers, Limits: limits,
		CredentialsDir: dir, GitRules: rules, Policies: policies, TokenCache: g.TokenCacheMaxSize, AllowInsecureGit: g.AllowInsecureGit,
		Guard: guard, GitTimeout: cmp.Or(g.GitTimeout, g.MaxJobTimeout*3/4), LocalGit: g.LocalGitPrefix, SinkPrefixes: g.SinkPrefix,
		Socket: true, Telemetry: g.TelemetryListen, Webhooks: hooks, Logger: log,
	}, nil
}

// GitRules reads credentials by URL pattern from the config file and rejects rules that could never apply.
func (e *Env) GitRules() ([]auth.Rule, error) { return listOf[auth.Rule](e.Config, GitRulesKey) }

// listOf reads a list of the config file and checks each entry.
func listOf[T interface{ Check() error }](c *ConfigFile, name string) (entries []T, err error) {
	key, ok := c.Key(name)
	if !ok {
		return nil, nil
	}
	if err := c.refused(c.listFaults(name)); err != nil {
		return nil, err
	}
	data, err := yaml.Marshal(c.Values[key])
	if err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalStrict(data, &entries); err != nil {
		return nil, Usagef("", "config file %s: %s: %w", c.Path, name, err)
	}
	for _, entry := range entries {
		if err := entry.Check(); err != nil {
			return nil, Usagef("", "config file %s: %w", c.Path, err)
		}
	}
	return entries, nil
}

// bounds rejects settings that make no sense. The agent takes zero for the default, so that one with no
// drivers would have three.
func (g *Flags) bounds() error {
	refuse := func(flag, format string, args ...any) error {
		return Usagef("limpet --help    # says what --"+flag+" takes", "--%s: %w", flag, fmt.Errorf(format, args...))
	}
	for _, f := range []struct {
		flag  string
		value int
	}{{"drivers", g.Drivers}, {"max-sync-workers", g.MaxSyncWorkers}, {"max-attempts", g.MaxAttempts},
		{"token-cache-max-size", g.TokenCacheMaxSize}} {
		if f.value < 1 {
			return refuse(f.flag, "%d is less than 1", f.value)
		}
	}
	for _, f := range []struct {
		flag  string
		value time.Duration
	}{{"max-job-timeout", g.MaxJobTimeout}, {"job-interval", g.JobInterval}, {"claim-expiry", g.ClaimExpiry},
		{"lease-renewal-interval", g.LeaseRenewalInterval}, {"resync-interval", g.ResyncInterval}} {
		if f.value <= 0 {
			return refuse(f.flag, "%s is not more than 0", f.value)
		}
	}
	if n := g.ListNamespace(); n != "" && len(validation.IsDNS1123Label(n)) > 0 {
		return refuse("namespace", "%q is no name of a namespace", n)
	}
	for _, dir := range g.SinkPrefix {
		if !filepath.IsAbs(dir) {
			return refuse("sink-prefix", "%q is no absolute path", dir)
		}
	}
	if err := listenAddress(g.TelemetryListen); g.TelemetryListen != "" && err != nil {
		return refuse("telemetry-listen", "%w", err)
	}
	for _, f := range []struct{ flag, value string }{{"dashboards-server-url", g.DashboardsServerURL},
		{"folders-server-url", g.FoldersServerURL}} {
		if u, err := url.Parse(f.value); f.value != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http") {
			return refuse(f.flag, "it has to be https://HOST[:PORT]") // the error of url.Parse quotes the text, which may hold a password
		}
	}
	return nil
}

// listenAddress rejects what is not HOST:PORT. The address itself may become available later.
func listenAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("%q is no port", port)
	}
	return nil
}

// limits returns the limits that the flags set.
func (g *Flags) limits() (agent.Limits, error) {
	l := agent.Limits{Repositories: g.MaxRepositories, Resources: g.MaxResources, IncrementalChanges: g.MaxIncremental,
		Parallel: g.MaxSyncWorkers}
	incremental := int64(l.IncrementalChanges)
	for _, flag := range []struct {
		name  string
		value *int64
	}{{"--max-repositories", l.Repositories}, {"--max-resources-per-repository", l.Resources},
		{"--max-incremental-changes", &incremental}} {
		if flag.value != nil && *flag.value < 0 {
			return l, Usagef("limpet --daemon "+flag.name+" 0", "%s %d: the least is 0, which is no limit", flag.name, *flag.value)
		}
	}
	return l, nil
}

// webhooks reads the flags of the webhook listener. An address that is not available yet is no error: the
// network may come up later.
func (e *Env) webhooks() (agent.Webhooks, error) {
	g := e.Flags
	w := agent.Webhooks{Listen: g.WebhookListen, URL: g.WebhookURL, CertFile: g.WebhookCertFile, KeyFile: g.WebhookKeyFile}
	if w.Listen == "" && w.URL == "" {
		return w, nil
	}
	const next = "limpet --daemon --webhook-listen 127.0.0.1:9441"
	if err := listenAddress(w.Listen); err != nil {
		return w, Usagef(next, "--webhook-listen: %w", err)
	}
	for _, text := range g.WebhookTrustedProxy {
		prefix, err := netip.ParsePrefix(text)
		if addr, addrErr := netip.ParseAddr(text); addrErr == nil {
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return w, Usagef(next+" --webhook-trusted-proxy 127.0.0.1", "--webhook-trusted-proxy %q is neither an address nor a network",
				text)
		}
		w.Trusted = append(w.Trusted, prefix.Masked())
	}
	if (w.CertFile == "") != (w.KeyFile == "") {
		return w, Usagef(next+" --webhook-cert-file FILE --webhook-key-file FILE",
			"--webhook-cert-file and --webhook-key-file go together: one of them is missing")
	}
	if w.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(w.CertFile, w.KeyFile); err != nil {
			return w, Usagef("", "--webhook-cert-file %s, --webhook-key-file %s: %w", w.CertFile, w.KeyFile, err)
		}
	}
	return w, nil
}

// GitVerifyKey holds the signature policies of Repositories, whatever those ask for. It has no flag: leaving
// one out must not disable a policy.
const GitVerifyKey = "git-verify"

// GitVerify reads the signature policies from the config file and rejects those that could not be met or
// require nothing.
func (e *Env) GitVerify() ([]auth.VerificationPolicy, error) {
	return listOf[auth.VerificationPolicy](e.Config, GitVerifyKey)
}
