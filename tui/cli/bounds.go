package cli

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// bounds refuses settings of the agent that nobody can mean. What is behind them
// takes a zero for the default, so that an agent with no drivers would have three.
func (g *Globals) bounds() error {
	refuse := func(flag, format string, args ...any) error {
		return usage("limpet --help    # says what --"+flag+" takes", "--%s: %w", flag, fmt.Errorf(format, args...))
	}
	for _, f := range []struct {
		flag  string
		value int
	}{{"drivers", g.Drivers}, {"max-sync-workers", g.MaxSyncWorkers}, {"max-attempts", g.MaxAttempts}, {"token-cache-max-size", g.TokenCacheMaxSize}} {
		if f.value < 1 {
			return refuse(f.flag, "%d is less than 1", f.value)
		}
	}
	for _, f := range []struct {
		flag  string
		value time.Duration
	}{{"max-job-timeout", g.MaxJobTimeout}, {"job-interval", g.JobInterval}, {"claim-expiry", g.ClaimExpiry}, {"lease-renewal-interval", g.LeaseRenewalInterval}, {"resync-interval", g.ResyncInterval}} {
		if f.value <= 0 {
			return refuse(f.flag, "%s is not more than 0", f.value)
		}
	}
	if n := g.listNamespace(); n != "" && len(validation.IsDNS1123Label(n)) > 0 {
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
	for _, f := range []struct{ flag, value string }{{"dashboards-server-url", g.DashboardsServerURL}, {"folders-server-url", g.FoldersServerURL}} {
		if u, err := url.Parse(f.value); f.value != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http") {
			return refuse(f.flag, "it has to be https://HOST[:PORT]") // the error of url.Parse quotes the text, which may hold a password
		}
	}
	return nil
}

// listenAddress refuses what is no HOST:PORT. Whether it can be had is another
// matter: the network may come later.
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
