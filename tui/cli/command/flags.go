package command

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// Flags are the flags that every command takes. Each has an environment variable LIMPET_<NAME> and a key
// <name> in the config file; a flag overrides the variable, the variable overrides the file, the file
// overrides the default.
type Flags struct {
	Config string `help:"Config file (YAML)." placeholder:"FILE" type:"path"`
	State  string `help:"State file. Default: ~/.local/state/limpet/limpet.db." placeholder:"FILE"`

	ProvisioningServerURL string `name:"provisioning-server-url" help:"Base URL of the provisioning API, such as https://localhost:6446. Without it and without --kubeconfig limpet serves its own, embedded API." placeholder:"URL" group:"API"`
	DashboardsServerURL   string `name:"dashboards-server-url" help:"Base URL for dashboards. Default: the provisioning server." placeholder:"URL" group:"API"`
	FoldersServerURL      string `name:"folders-server-url" help:"Base URL for folders. Default: the provisioning server." placeholder:"URL" group:"API"`
	Kubeconfig            string `help:"Kubeconfig of a Kubernetes API that has the definitions of 'limpet crds'." placeholder:"FILE" group:"API"`
	Namespace             string `short:"n" help:"Namespace to work in; * is all of them." default:"*" group:"API"`
	Token                 string `help:"Token for the API. Other users can see it in the process list: prefer --token-file or LIMPET_TOKEN." placeholder:"TOKEN" group:"API"`
	TokenFile             string `help:"File that holds the token; read again when it changes." placeholder:"FILE" group:"API"`
	TokenExchangeURL      string `name:"token-exchange-url" help:"Token exchange endpoint that turns the token into an access token." placeholder:"URL" group:"API"`
	TLSInsecure           *bool  `name:"tls-insecure" negatable:"" help:"Skip the check of the server's certificate. Default: true for loopback hosts only." group:"API"`
	TLSCertFile           string `name:"tls-cert-file" help:"Client certificate for mutual TLS." placeholder:"FILE" group:"API"`
	TLSKeyFile            string `name:"tls-key-file" help:"Private key of the client certificate." placeholder:"FILE" group:"API"`
	TLSCAFile             string `name:"tls-ca-file" help:"CA certificates that may sign the server's certificate." placeholder:"FILE" group:"API"`

	Output    string        `short:"o" help:"Output format: table, wide, json, jsonl (one object in a line), yaml or name." enum:"table,wide,json,jsonl,yaml,name" default:"table" group:"Output"`
	JSON      []string      `name:"json" help:"JSON with these fields only, such as metadata.name,spec.action; what an object lacks is null." placeholder:"FIELDS" group:"Output"`
	NoHeaders bool          `name:"no-headers" help:"Omit the header line of tables." group:"Output"`
	Color     string        `help:"Colours of the dashboard and of the words of state in tables: always, never, or auto: on a terminal, without NO_COLOR." enum:"auto,always,never" default:"auto" group:"Output"`
	Theme     string        `help:"Which colours: terminal, high-contrast, blue-orange or mono." enum:"terminal,high-contrast,blue-orange,mono" default:"terminal" group:"Output"`
	Mouse     bool          `help:"The dashboard takes clicks and the wheel. The terminal then selects text with Shift held only." group:"Output"`
	FPS       int           `name:"fps" help:"Maximum frames a second of the dashboard, 1 to 60. 0 = 10, over SSH 4." default:"0" group:"Output"`
	Quiet     bool          `short:"q" help:"No progress and no notes on stderr." group:"Output"`
	Yes       bool          `help:"Do not ask for confirmation." group:"Output"`
	ReadOnly  bool          `name:"read-only" help:"Refuse every command that changes anything; the dashboard sends no actions." group:"Output"`
	LogLevel  string        `name:"log-level" help:"Log level: debug, info, warn or error." enum:"debug,info,warn,error" default:"info" group:"Output"`
	LogFormat string        `name:"log-format" help:"Log format: text or json. Default: text on a terminal, else json." enum:",text,json" default:"" group:"Output"`
	Timeout   time.Duration `help:"Give up after this long (exit code 10). 0 = never." default:"0s" group:"Output"`

	Accessible bool `help:"For screen readers: tables are lists of names and values, status --watch says what changes in sentences, and there is no dashboard. Nothing moves, and there is no escape sequence." group:"Output"`

	AgentFlags `group:"Agent"`

	writes bool // the command has the tag "writes"
}

// Common implements tree.
func (g *Flags) Common() *Flags { return g }

// Headless implements Tree: only the daemon runs without a screen.
func (g *Flags) Headless() bool { return false }

// AgentFlags configure the agent of 'limpet', 'limpet --daemon' and 'limpet demo'.
type AgentFlags struct {
	Drivers              int           `help:"Jobs that may run at once." default:"3"`
	MaxSyncWorkers       int           `name:"max-sync-workers" help:"Parallel writes inside one job." default:"10"`
	MaxJobTimeout        time.Duration `name:"max-job-timeout" help:"Maximum duration of one attempt of a job." default:"20m"`
	JobInterval          time.Duration `name:"job-interval" help:"Period of the full job list, in case the watch misses something." default:"30s"`
	ClaimExpiry          time.Duration `name:"claim-expiry" help:"Age at which a claim that is not renewed counts as abandoned." default:"60s"`
	LeaseRenewalInterval time.Duration `name:"lease-renewal-interval" help:"Period of lease renewals." default:"10s"`
	ResyncInterval       time.Duration `name:"resync-interval" help:"Pause before a failing repository is checked again." default:"60s"`
	Controllers          string        `help:"Manage repositories and connections: health, conditions, interval pulls. on, off or auto: on for the embedded API, off elsewhere. Several agents with on share one Lease." enum:"auto,on,off" default:"auto"`
	MaxRepositories      *int64        `name:"max-repositories" help:"Repositories that a namespace may have; with more, none of them is pulled. 0 = any number. Default: any number on the embedded API, elsewhere what status.quota says."`
	MaxResources         *int64        `name:"max-resources-per-repository" help:"Maximum number of objects of a repository; further ones are left out. 0 = no limit. Default: as for --max-repositories."`
	MaxIncremental       int           `name:"max-incremental-changes" help:"Changes beyond which a pull compares everything. 0 = no limit." default:"1000"`
	MaxAttempts          int           `name:"max-attempts" help:"Attempts of one job that may end without a result: its agent stopped, a host was unavailable or busy, the time was up." default:"3"`
	Drain                bool          `help:"Start drained: finish earlier claims, claim nothing new (until limpet drain --off)."`
	Cleanup              string        `help:"What to do with abandoned claims: requeue, fail or off." enum:"requeue,fail,off" default:"requeue"`
	HistoryExpiration    time.Duration `name:"history-expiration" help:"Prune HistoricJobs and local history older than this. 0 leaves the API's HistoricJobs alone; local history is then kept for 7d." default:"0s"`
	HistoryMaxRecords    int           `name:"history-max-records" help:"Maximum number of finished jobs in the local history; 0 = no limit." default:"50000"`
	HistoryMaxBytes      Size          `name:"history-max-bytes" help:"Maximum size of the local history, such as 64MiB; 0 = no limit." default:"64MiB"`
	RepositorySelector   string        `name:"repository-selector" help:"Label selector of the repositories that this agent takes." placeholder:"SELECTOR"`
	Actions              []string      `help:"Job actions that this agent takes. Default: all that it can run." placeholder:"ACTION"`
	SinkPrefix           []string      `name:"sink-prefix" help:"Directory under which a repository may write its tree (limpet/sink-dir). Repeatable." placeholder:"DIR" sep:"none"`
	CredentialsDir       string        `name:"credentials-dir" help:"Directory with <namespace>.<repository>/<key> files. Default: $$CREDENTIALS_DIRECTORY." placeholder:"DIR"`
	TokenCacheMaxSize    int           `name:"token-cache-max-size" help:"Git tokens that each identity provider caches in memory." default:"100"`
	Manifests            string        `help:"Directory of YAML files that are applied to the embedded API at start and on change." placeholder:"DIR"`
	TelemetryListen      string        `name:"telemetry-listen" help:"Address of /metrics, /healthz and /readyz; empty = off." default:"127.0.0.1:9440"`
	WebhookListen        string        `name:"webhook-listen" help:"Address that receives webhooks of Git hosts; empty = off." placeholder:"ADDRESS"`
	WebhookURL           string        `name:"webhook-url" help:"Public https address of --webhook-listen. With it webhooks are registered at the hosts of repositories that have workflows." placeholder:"URL"`
	WebhookCertFile      string        `name:"webhook-cert-file" help:"Certificate of --webhook-listen. Without it a proxy in front has to speak TLS." placeholder:"FILE"`
	WebhookKeyFile       string        `name:"webhook-key-file" help:"Private key of --webhook-cert-file." placeholder:"FILE"`
	WebhookTrustedProxy  []string      `name:"webhook-trusted-proxy" help:"Address or network of a proxy whose X-Forwarded-For tells the client. Repeatable. Default: none." placeholder:"CIDR"`
	AllowInsecureGit     bool          `name:"allow-insecure-git" help:"Send credentials over plain http."`
	GitTimeout           time.Duration `name:"git-timeout" help:"Maximum duration of a fetch from a Git host, without its time in the queue. 0 = three quarters of --max-job-timeout." default:"0s"`
	GitPrivateNetworks   []string      `name:"git-private-networks" help:"Private networks in which Git hosts, their APIs and proxies may be: all, none, or a list such as 10.1.0.0/16,127.0.0.0/8." default:"all" placeholder:"CIDR"`
	LocalGitPrefix       []string      `name:"local-git-prefix" help:"Directory under which file:// repositories may be read. Repeatable." placeholder:"DIR" sep:"none"`
}

// mapDuration reads a duration as Go writes it, with days before it: 90s, 24h, 7d, 1d12h.
func mapDuration(ctx *kong.DecodeContext, target reflect.Value) error {
	t, err := ctx.Scan.PopValue("duration")
	if err != nil {
		return err
	}
	d, err := ParseDuration(t.String())
	if err != nil {
		return err
	}
	target.SetInt(int64(d))
	return nil
}

func ParseDuration(text string) (time.Duration, error) {
	rest, days := text, 0
	if number, after, ok := strings.Cut(text, "d"); ok {
		n, err := strconv.Atoi(number)
		if err == nil {
			rest, days = after, n
		}
	}
	var d time.Duration
	if rest != "" || text == "" {
		var err error
		if d, err = time.ParseDuration(rest); err != nil {
			return 0, fmt.Errorf("%q is no duration such as 90s, 5m, 24h or 7d", text)
		}
	}
	const most = int(1 << 63 / uint64(24*time.Hour))
	if days <= -most || days >= most {
		return 0, fmt.Errorf("%q is longer than a duration can be", text)
	}
	return time.Duration(days)*24*time.Hour + d, nil
}

// Size is a number of bytes, written plain or with a unit: 512KiB, 64MiB, 1GiB,
// or 500KB, 64MB, 1GB for powers of ten.
type Size int64

var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}, {"", 1},
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Size) UnmarshalText(text []byte) error {
	for _, unit := range sizeUnits {
		number, ok := strings.CutSuffix(string(text), unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/unit.bytes {
			break
		}
		*s = Size(n * unit.bytes)
		return nil
	}
	return fmt.Errorf("%q is no size such as 65536, 64MiB or 1GB", text)
}
