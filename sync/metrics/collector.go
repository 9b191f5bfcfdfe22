package metrics

import (
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"limpet/sync/api"
	"limpet/sync/auth"
)

// maxSeries bounds the objects of a kind with series of their own. Above it only
// totals are exported: a part would look like all.
const maxSeries = 2000

// Repository is the state of a Repository for its series.
type Repository struct {
	Namespace, Name string
	Type, Target    string
	Connection      string // "" = none
	Suspended       bool
	Checked         bool // its health was
	Healthy         bool
	Pulled          time.Time // the end of the last pull; zero = there was none
	Pull            string    // the state of the present or last one
}

// Connection is the state of a Connection for its series.
type Connection struct {
	Namespace, Name, Type string
	Checked, Healthy      bool
}

// The values of labels that are known. Source: Grafana's types.
var (
	repositoryTypes = []string{"local", "github", "githubEnterprise", "git", "bitbucket", "gitlab"}
	connectionTypes = []string{"github", "githubEnterprise", "githubOAuth", "githubEnterpriseOAuth", "gitlab", "bitbucket"}
	syncTargets     = []string{"instance", "folder", "folderless", ""}
)

func oneOf(known []string, value string) string {
	if slices.Contains(known, value) {
		return value
	}
	return other
}

// collector exports Repositories, Connections and tokens at each scrape.
type collector struct {
	source Source

	sum, info, healthy           gauge
	pulled, pullOK               gauge
	connectionInfo, connectionOK gauge
	held, oldest                 gauge
	events, requests, evictions  gauge
}

func newCollector(s Source) *collector {
	k := &collector{
		source:         s,
		sum:            describe("limpet_repositories", "Repositories by their health.", "health"),
		info:           describe("limpet_repository_info", "Always 1; what a repository is and how it does is in the labels.", "namespace", "name", "type", "target", "connection", "ready", "suspended"),
		healthy:        describe("limpet_repository_healthy", "1 when the last check found the repository in order.", "namespace", "name"),
		pulled:         describe("limpet_repository_last_sync_timestamp_seconds", "When the last pull of the repository has ended.", "namespace", "name"),
		pullOK:         describe("limpet_repository_last_sync_success", "1 when the last pull went well, 0 when it did not; not told while one is under way.", "namespace", "name"),
		connectionInfo: describe("limpet_connection_info", "Always 1; what a connection is and how it does is in the labels.", "namespace", "name", "type", "ready"),
		connectionOK:   describe("limpet_connection_healthy", "1 when the last check found that the host takes the connection.", "namespace", "name"),
		held:           describe("limpet_token_cached_items", "Minted tokens in memory.", "provider"),
		oldest:         describe("limpet_token_cache_oldest_age_seconds", "Age of the oldest minted token in memory; 0 = there is none.", "provider"),
		events:         describe("limpet_token_cache_events_total", "Tokens that were asked for, by whether memory had one.", "provider", "event_type"),
		requests:       describe("limpet_token_cache_requests_total", "Attempts to mint a token.", "provider", "status"),
		evictions:      describe("limpet_token_cache_evictions_total", "Tokens that were dropped before their end, by why.", "provider", "reason"),
	}
	for _, g := range []*gauge{&k.events, &k.requests, &k.evictions} {
		g.kind = prometheus.CounterValue
	}
	return k
}

// Describe implements prometheus.Collector: what there is depends on the source.
func (k *collector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(k, out) }

// Collect implements prometheus.Collector.
func (k *collector) Collect(out chan<- prometheus.Metric) {
	if k.source.Repositories != nil {
		k.repositories(out, k.source.Repositories())
	}
	if k.source.Connections != nil {
		k.connections(out, k.source.Connections())
	}
	if k.source.Tokens != nil {
		for provider, counts := range k.source.Tokens() {
			k.tokens(out, provider, counts)
		}
	}
}

func (k *collector) repositories(out chan<- prometheus.Metric, all []Repository) {
	sums := map[string]int{"healthy": 0, "unhealthy": 0, "unknown": 0, "suspended": 0}
	for _, r := range all {
		switch {
		case r.Suspended:
			sums["suspended"]++
		case !r.Checked:
			sums["unknown"]++
		case r.Healthy:
			sums["healthy"]++
		default:
			sums["unhealthy"]++
		}
	}
	for health, n := range sums {
		k.sum.at(out, float64(n), health)
	}
	if len(all) > maxSeries {
		return
	}
	for _, r := range all {
		k.info.at(out, 1, r.Namespace, r.Name, oneOf(repositoryTypes, r.Type), oneOf(syncTargets, r.Target), r.Connection, ready(r.Checked, r.Healthy), strconv.FormatBool(r.Suspended))
		if r.Checked {
			k.healthy.at(out, number(r.Healthy), r.Namespace, r.Name)
		}
		if !r.Pulled.IsZero() {
			k.pulled.at(out, float64(r.Pulled.UnixMilli())/1000, r.Namespace, r.Name)
		}
		switch r.Pull {
		case api.StateSuccess, api.StateWarning:
			k.pullOK.at(out, 1, r.Namespace, r.Name)
		case api.StateError:
			k.pullOK.at(out, 0, r.Namespace, r.Name)
		}
	}
}

func (k *collector) connections(out chan<- prometheus.Metric, all []Connection) {
	if len(all) > maxSeries {
		return
	}
	for _, c := range all {
		k.connectionInfo.at(out, 1, c.Namespace, c.Name, oneOf(connectionTypes, c.Type), ready(c.Checked, c.Healthy))
		if c.Checked {
			k.connectionOK.at(out, number(c.Healthy), c.Namespace, c.Name)
		}
	}
}

func (k *collector) tokens(out chan<- prometheus.Metric, provider string, c auth.TokenCounts) {
	k.held.at(out, float64(c.Held), provider)
	k.oldest.at(out, c.Oldest.Seconds(), provider)
	k.events.at(out, float64(c.Hits), provider, "cache_hit")
	k.events.at(out, float64(c.Minted+c.Failed), provider, "cache_miss")
	k.requests.at(out, float64(c.Minted), provider, "success")
	k.requests.at(out, float64(c.Failed), provider, "failure")
	k.evictions.at(out, float64(c.Refused), provider, "refused")
	k.evictions.at(out, float64(c.Overflow), provider, "overflow")
}

// ready is what a condition of that name says.
func ready(checked, healthy bool) string {
	switch {
	case !checked:
		return "Unknown"
	case healthy:
		return "True"
	}
	return "False"
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
