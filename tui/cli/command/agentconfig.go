package command

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/apiserver"
	"limpet/sync/apiserver/manifests"
	"limpet/sync/fileid"
	"limpet/sync/jobs"
	"limpet/sync/kube"
	"limpet/sync/netx"
	"limpet/sync/notify"
	"limpet/sync/resources"
	"limpet/sync/source/kind/ocirepository"
	"limpet/sync/webhook"
)

// localHistory is how long finished jobs are kept in the state file when
// --history-expiration does not say. A week covers the question "since when?".
const localHistory = 168 * time.Hour

// AgentConfig builds the configuration of an agent from the flags. It validates all of them before
// anything is opened or written.
func (e *Env) AgentConfig(store *state.Store, path string, log *slog.Logger) (cfg agent.Config, err error) {
	g := e.Flags
	if err := g.bounds(); err != nil {
		return cfg, err
	}
	server, err := e.apiConfig()
	if err != nil {
		return cfg, err
	}
	server.Logger = log
	selector, err := labels.Parse(g.RepositorySelector)
	if err != nil {
		return cfg, Usagef("limpet --repository-selector 'site=east'", "--repository-selector: %w", err)
	}
	declared, err := e.Manifests()
	if err != nil {
		return cfg, err
	}
	rules, err := e.GitRules()
	if err != nil {
		return cfg, err
	}
	policies, err := e.GitVerify()
	if err != nil {
		return cfg, err
	}
	history, local := g.HistoryExpiration, cmp.Or(g.HistoryExpiration, localHistory)
	if e.Embedded() {
		history = local // the embedded API has no other process that prunes it
	}
	options := jobs.Options{
		Drivers: g.Drivers, Timeout: g.MaxJobTimeout, Interval: g.JobInterval, Expiry: g.ClaimExpiry, Renew: g.LeaseRenewalInterval,
		MaxAttempts: g.MaxAttempts, Cleanup: g.Cleanup, Selector: selector, Actions: g.Actions,
		HistoryExpiration: history, LocalHistory: local, LocalRecords: g.HistoryMaxRecords, LocalBytes: int64(g.HistoryMaxBytes),
		Agent: Hostname(), Namespace: g.ListNamespace(), Logger: log, Drained: g.Drain, QueueHistory: g.LokiURL != "",
	}
	if e.Config.INI && 3*options.Renew > options.Expiry { // Grafana's own defaults are no safe ones
		options.Renew = options.Expiry / 3
		log.Warn("lease_renewal_interval is above a third of cleanup_interval", "file", e.Config.Path, "used", options.Renew)
	}
	if err := options.Validate(); err != nil {
		return cfg, Usagef("limpet --help", "%w", err)
	}
	guard, err := netx.ParseGuard(g.GitPrivateNetworks)
	if err != nil {
		return cfg, Usagef("limpet --help", "--git-private-networks: %w", err)
	}
	for _, fault := range netx.ReadEnvironment(e.Getenv).Faults() {
		log.Warn("a variable for proxies is wrong", "err", fault, "next", "correct "+fault.Name+" and start again")
	}
	kinds, err := g.Kinds()
	if err != nil {
		return cfg, err
	}
	mirrors, err := ocirepository.ParseMirrors(g.RegistryMirror)
	if err != nil {
		return cfg, Usagef("limpet --daemon --registry-mirror ghcr.io=mirror.example.com/ghcr", "--registry-mirror: %w", err)
	}
	hooks, err := g.webhooks()
	if err != nil {
		return cfg, err
	}
	artifacts, err := g.artifacts(log)
	if err != nil {
		return cfg, err
	}
	targets, err := g.NotifyTargets(log)
	if err != nil {
		return cfg, err
	}
	var beat *notify.Target // nil = there is none
	if g.Heartbeat != "" {
		if beat, err = notify.ParseHeartbeat(g.Heartbeat, g.AllowInsecureGit); err != nil {
			return cfg, Usagef("limpet help notifications", "--heartbeat: %w", err)
		}
	}
	return agent.Config{
		Store: store, StatePath: path, Version: Version,
		API: server, Dashboards: g.DashboardsServerURL, Folders: g.FoldersServerURL, Namespace: g.ListNamespace(),
		Manifests: declared,
		Jobs:      options, Resync: g.ResyncInterval, Controllers: g.Controllers, Sources: g.Sources,
		Limits: agent.Limits{Repositories: g.MaxRepositories, Resources: g.MaxResourcesPerRepository,
			IncrementalChanges: g.MaxIncrementalChanges, Parallel: g.MaxSyncWorkers},
		CredentialsDir: cmp.Or(g.CredentialsDir, e.Getenv("CREDENTIALS_DIRECTORY")),
		GitRules:       rules, Policies: policies, TokenCache: g.TokenCacheMaxSize, AllowInsecureGit: g.AllowInsecureGit,
		Guard: guard, GitTimeout: cmp.Or(g.GitTimeout, g.MaxJobTimeout*3/4), LocalGit: g.LocalGitPrefix, LocalDirs: g.LocalPrefix,
		RegistryMirrors: mirrors,
		SinkPrefixes:    g.SinkPrefix, SinkPrograms: g.SinkExec,
		Kinds: kinds, CommitStatus: g.CommitStatus,
		Socket: true, Telemetry: g.TelemetryListen, NoPage: g.NoPage, Webhooks: hooks, Artifacts: artifacts, Notify: targets, Heartbeat: beat, Logger: log,
	}, nil
}

// Manifests returns what the flags say of --manifests.
func (e *Env) Manifests() (o manifests.Options, err error) {
	g := e.Flags
	o = manifests.Options{Dir: g.Manifests, Prune: g.ManifestsPrune, Validation: g.FieldValidation()}
	if g.ManifestsSelector != "" {
		if o.Selector, err = labels.Parse(g.ManifestsSelector); err != nil {
			return o, Usagef("limpet --manifests DIR --manifests-selector 'site=east'", "--manifests-selector: %w", err)
		}
	}
	return o, nil
}

// Kinds reads --resources.
func (g *Flags) Kinds() (resources.Kinds, error) {
	kinds, err := resources.ParseKinds(g.Resources)
	if err != nil {
		return nil, Usagef("limpet help kinds", "--resources: %w", err)
	}
	return kinds, nil
}

// NotifyTargets reads --notify and --loki-url.
func (g *Flags) NotifyTargets(log *slog.Logger) ([]*notify.Target, error) {
	var key []byte
	if g.NotifyHMACKeyFile != "" && len(g.Notify) > 0 {
		data, err := fileid.Read(g.NotifyHMACKeyFile, fileid.MaxSettings)
		if key = bytes.TrimSpace(data); err == nil && len(key) == 0 {
			err = fmt.Errorf("%s is empty", g.NotifyHMACKeyFile)
		}
		if err != nil {
			return nil, Usagef("limpet help notifications", "--notify-hmac-key-file: %w", err)
		}
	}
	targets, err := notify.ParseTargets(g.Notify, key, g.AllowInsecureGit)
	if err != nil {
		return nil, Usagef("limpet help notifications", "--notify: %w", err)
	}
	o := notify.LokiOptions{URL: g.LokiURL, User: g.LokiUser, PasswordFile: g.LokiPasswordFile, Tenant: g.LokiTenantID,
		Insecure: g.AllowInsecureGit, Logger: log}
	switch {
	case o.URL != "":
		history, err := notify.NewLoki(o)
		if err != nil {
			return nil, Usagef("limpet help notifications", "--loki-url: %w", err)
		}
		return append(targets, history), nil
	case o.User+o.PasswordFile+o.Tenant != "":
		return nil, Usagef("limpet help notifications", "--loki-user, --loki-password-file and --loki-tenant-id need --loki-url")
	}
	return targets, nil
}

// leastState is the size of a state file that holds the records of a few repositories.
const leastState = 4 << 20

// bounds rejects settings that make no sense. The agent takes zero for the default, so that one
// with no drivers would have three.
func (g *Flags) bounds() error {
	var first error
	refuse := func(flag string, bad bool, format string, args ...any) {
		if bad && first == nil {
			first = Usagef("limpet help flags    # says what --"+flag+" takes", "--%s: %w", flag, fmt.Errorf(format, args...))
		}
	}
	atLeast := func(flag string, value, least int64) { refuse(flag, value < least, "%d is less than %d", value, least) }
	positive := func(flag string, value time.Duration) { refuse(flag, value <= 0, "%s is not more than 0", value) }
	atLeast("state-max-size", int64(g.StateMaxSize), leastState)
	atLeast("drivers", int64(g.Drivers), 1)
	atLeast("max-sync-workers", int64(g.MaxSyncWorkers), 1)
	atLeast("max-attempts", int64(g.MaxAttempts), 1)
	atLeast("token-cache-max-size", int64(g.TokenCacheMaxSize), 1)
	atLeast("artifact-retention-records", int64(g.ArtifactRetentionRecords), 1)
	atLeast("artifact-max-files", int64(g.ArtifactMaxFiles), 0)
	atLeast("helm-index-max-size", int64(g.HelmIndexMaxSize), 1)
	refuse("artifact-retention-ttl", g.ArtifactRetentionTTL < 0, "%s is less than 0", g.ArtifactRetentionTTL)
	atLeast("max-incremental-changes", int64(g.MaxIncrementalChanges), 0)
	if g.MaxRepositories != nil {
		atLeast("max-repositories", *g.MaxRepositories, 0)
	}
	if g.MaxResourcesPerRepository != nil {
		atLeast("max-resources-per-repository", *g.MaxResourcesPerRepository, 0)
	}
	positive("max-job-timeout", g.MaxJobTimeout)
	positive("job-interval", g.JobInterval)
	positive("claim-expiry", g.ClaimExpiry)
	positive("lease-renewal-interval", g.LeaseRenewalInterval)
	positive("resync-interval", g.ResyncInterval)
	refuse("git-timeout", g.GitTimeout < 0, "%s is less than 0", g.GitTimeout)
	n := g.ListNamespace()
	refuse("namespace", n != "" && len(validation.IsDNS1123Label(n)) > 0, "%q is no name of a namespace", n)
	for flag, dirs := range map[string][]string{"sink-prefix": g.SinkPrefix, "sink-exec": g.SinkExec, "local-prefix": g.LocalPrefix} {
		refuse(flag, slices.ContainsFunc(dirs, func(dir string) bool { return !filepath.IsAbs(dir) }),
			"%q: each has to be an absolute path", dirs)
	}
	err := listenAddress(g.TelemetryListen)
	refuse("telemetry-listen", g.TelemetryListen != "" && err != nil, "%w", err)
	for flag, value := range map[string]string{"dashboards-server-url": g.DashboardsServerURL, "folders-server-url": g.FoldersServerURL} {
		u, err := url.Parse(value) // its error quotes the text, which may hold a password
		refuse(flag, value != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http"),
			"it has to be https://HOST[:PORT]")
	}
	return first
}

// listenAddress rejects what is not HOST:PORT. The address itself may become available later.
func listenAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q is no port", port)
	}
	return nil
}

func (g *Flags) webhooks() (webhook.Config, error) {
	w := webhook.Config{Listen: g.WebhookListen, URL: g.WebhookURL, CertFile: g.WebhookCertFile, KeyFile: g.WebhookKeyFile}
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
	return w, checkPair(next, "webhook-cert-file", w.CertFile, "webhook-key-file", w.KeyFile)
}

func checkPair(next, certFlag, cert, keyFlag, key string) error {
	if (cert == "") != (key == "") {
		return Usagef(next+" --"+certFlag+" FILE --"+keyFlag+" FILE", "--%s and --%s go together: one of them is missing", certFlag, keyFlag)
	}
	if cert == "" {
		return nil
	}
	if _, err := apiserver.ReadPair(cert, key); err != nil {
		return Usagef("", "--%s %s, --%s %s: %w", certFlag, cert, keyFlag, key, err)
	}
	return nil
}

func (g *Flags) artifacts(log *slog.Logger) (agent.ArtifactServer, error) {
	s := agent.ArtifactServer{Listen: g.ArtifactListen, URL: g.ArtifactURL, TokenFile: g.ArtifactTokenFile, CertFile: g.ArtifactTLSCertFile,
		KeyFile: g.ArtifactTLSKeyFile, Keep: g.ArtifactRetentionRecords, MaxAge: g.ArtifactRetentionTTL,
		MaxBytes: int64(g.ArtifactMaxSize), MaxFiles: g.ArtifactMaxFiles, MaxIndex: int64(g.HelmIndexMaxSize)}
	const next = "limpet --daemon --artifact-listen 127.0.0.1:9442"
	if s.Listen == "" {
		if s.URL+s.TokenFile+s.CertFile+s.KeyFile != "" {
			return s, Usagef(next, "--artifact-url, --artifact-token-file and --artifact-tls-cert-file need --artifact-listen, which is missing")
		}
		return s, nil
	}
	if err := listenAddress(s.Listen); err != nil {
		return s, Usagef(next, "--artifact-listen: %w", err)
	}
	if strings.HasSuffix(s.Listen, ":0") && s.URL == "" {
		return s, Usagef(next, "--artifact-listen %s: with the port 0, --artifact-url has to say where artifacts are served", s.Listen)
	}
	u, err := url.Parse(s.URL)
	if s.URL != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "") {
		return s, Usagef(next+" --artifact-url https://HOST", "--artifact-url has to be https://HOST[:PORT][/PATH]")
	}
	if s.TokenFile != "" {
		if _, err := kube.TokenFile("--artifact-token-file", s.TokenFile, log).Get(); err != nil {
			return s, Usagef("", "%w", err)
		}
	}
	return s, checkPair(next, "artifact-tls-cert-file", s.CertFile, "artifact-tls-key-file", s.KeyFile)
}
