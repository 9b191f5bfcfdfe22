package command

import (
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Flags are the flags that every command takes. Each has an environment variable LIMPET_<NAME> and
// a key <name> in the config file; a flag overrides the variable, the variable overrides the file,
// the file overrides the default.
type Flags struct {
	Config  string `help:"Config file: YAML, or the ini file of Grafana's operator." placeholder:"FILE" type:"path"`
	Context string `help:"Site to work with, of those in the config file; none is this host." placeholder:"NAME"`
	State   string `help:"State file. Default: ~/.local/state/limpet/limpet.db." placeholder:"FILE"`

	APIFlags `group:"API"`

	Output    string        `short:"o" help:"Output format: ${enum}." enum:"table,wide,json,jsonl,yaml,name" default:"table" group:"Output"`
	JSON      []string      `help:"JSON with these fields only, such as metadata.name,spec.action." placeholder:"FIELDS" group:"Output"`
	NoHeaders bool          `help:"Omit the header line of tables." group:"Output"`
	Color     string        `help:"Colours: ${enum}; NO_COLOR means never." enum:"auto,always,never" default:"auto" group:"Output"`
	Theme     string        `help:"Theme: ${enum}." enum:"terminal,high-contrast,blue-orange,mono" default:"terminal" group:"Output"`
	Mouse     bool          `help:"Mouse in the dashboard; the terminal selects text with Shift held." group:"Output"`
	FPS       int           `help:"Maximum frames a second of the dashboard, 1 to 60. 0 = 10, over SSH 4." default:"0" group:"Output"`
	Quiet     bool          `short:"q" help:"No progress and no notes on stderr." group:"Output"`
	Yes       bool          `help:"Do not ask for confirmation." group:"Output"`
	ReadOnly  bool          `help:"Refuse every command and key that changes anything." group:"Output"`
	LogLevel  string        `help:"Log level: ${enum}." enum:"debug,info,warn,error" default:"info" group:"Output"`
	LogFormat string        `help:"Log format: text or json. Default: text on a terminal." enum:",text,json" default:"" group:"Output"`
	Timeout   time.Duration `help:"Give up after this long (exit code 10). 0 = never." default:"0s" group:"Output"`

	Accessible bool `help:"For screen readers: names and values instead of tables, no dashboard." group:"Output"`

	AgentFlags `group:"Agent"`

	writes bool          // the command has the tag "writes"
	level  slog.LevelVar // of the log
}

// Common implements tree.
func (g *Flags) Common() *Flags { return g }

// FieldValidation returns --validate as an option of the API; "false" and "true" are kubectl's.
func (g *Flags) FieldValidation() string {
	switch g.Validate {
	case "warn":
		return metav1.FieldValidationWarn
	case "off", "ignore", "false":
		return metav1.FieldValidationIgnore
	}
	return metav1.FieldValidationStrict
}

// Headless implements Tree: only the daemon runs without a screen.
func (g *Flags) Headless() bool { return false }

// APIFlags select the server and the namespace.
type APIFlags struct {
	ProvisioningServerURL string `help:"Base URL of the provisioning API. Without it and --kubeconfig: the embedded API." placeholder:"URL"`
	DashboardsServerURL   string `help:"Base URL for dashboards. Default: the provisioning server." placeholder:"URL"`
	FoldersServerURL      string `help:"Base URL for folders. Default: the provisioning server." placeholder:"URL"`
	Kubeconfig            string `help:"Kubeconfig of a Kubernetes API that has the CRDs of 'limpet crds'." placeholder:"FILE"`
	Namespace             string `short:"n" help:"Namespace to work in; * is all of them." default:"*"`
	Token                 string `help:"Token for the API. Others see it in the process list: prefer --token-file." placeholder:"TOKEN"`
	TokenFile             string `help:"File that holds the token; read again when it changes." placeholder:"FILE"`
	TokenExchangeURL      string `help:"Endpoint that exchanges the token for an access token." placeholder:"URL"`
	TLSInsecure           *bool  `negatable:"" help:"Do not verify the server's certificate. Default: true for loopback."`
	TLSCertFile           string `help:"Client certificate for mutual TLS." placeholder:"FILE"`
	TLSKeyFile            string `help:"Private key of the client certificate." placeholder:"FILE"`
	TLSCAFile             string `name:"tls-ca-file" help:"CA certificates for the server's certificate." placeholder:"FILE"`
}

// AgentFlags configure the agent of 'limpet', 'limpet --daemon' and 'limpet demo'.
type AgentFlags struct {
	Drivers                   int           `help:"Jobs that may run at once." default:"3"`
	MaxSyncWorkers            int           `help:"Parallel writes inside one job; three times as many into the embedded API." default:"10"`
	MaxJobTimeout             time.Duration `help:"Maximum duration of one attempt of a job." default:"20m"`
	JobInterval               time.Duration `help:"Period of the full job list, in case the watch misses something." default:"30s"`
	ClaimExpiry               time.Duration `help:"Age at which a claim that is not renewed counts as abandoned." default:"60s"`
	LeaseRenewalInterval      time.Duration `help:"Period of lease renewals." default:"10s"`
	ResyncInterval            time.Duration `help:"Pause before a failing repository is checked again." default:"60s"`
	Controllers               string        `help:"Reconcile repositories and connections: ${enum}." enum:"auto,on,off" default:"auto"`
	Sources                   string        `help:"Reconcile GitRepositories, as Flux does: ${enum}." enum:"auto,on,off" default:"auto"`
	MaxRepositories           *int64        `help:"Repositories per namespace. 0 = no limit. Default: status.quota."`
	MaxResourcesPerRepository *int64        `help:"Objects per repository. 0 = no limit. Default: status.quota."`
	MaxIncrementalChanges     int           `help:"Changes beyond which a pull is full. 0 = no limit." default:"1000"`
	MaxAttempts               int           `help:"Attempts of one job that may end without a result." default:"3"`
	Drain                     bool          `help:"Start drained: claim no job until limpet drain --off."`
	Cleanup                   string        `help:"Abandoned claims: requeue, fail or off." enum:"requeue,fail,off" default:"requeue"`
	HistoryExpiration         time.Duration `help:"Prune history older than this. 0 = the local one only, after 7d." default:"0s"`
	HistoryMaxRecords         int           `help:"Finished jobs in the local history; 0 = no limit." default:"50000"`
	HistoryMaxBytes           Size          `help:"Size of the local history, such as 64MiB; 0 = no limit." default:"64MiB"`
	StateMaxSize              Size          `help:"Size of the state file, such as 256MiB. Objects of the embedded API are in it." default:"1GiB"`
	RepositorySelector        string        `help:"Label selector of the repositories to take." placeholder:"SELECTOR"`
	Actions                   []string      `help:"Job actions to take. Default: all." placeholder:"ACTION"`
	Resources                 []string      `help:"Kinds that files may hold. Default: see 'limpet help kinds'." placeholder:"GROUP/KIND"`
	SinkPrefix                []string      `help:"Directory for sinks (limpet/sink-dir). Repeatable." placeholder:"DIR" sep:"none"`
	SinkExec                  []string      `help:"Program that limpet/sink-exec may run. Repeatable." placeholder:"PROGRAM" sep:"none"`
	CredentialsDir            string        `help:"Directory with <namespace>.<repository>/<key> files." placeholder:"DIR"`
	TokenCacheMaxSize         int           `help:"Git tokens that each identity provider caches." default:"100"`
	Manifests                 string        `help:"Directory of YAML files whose objects are kept present on the API." placeholder:"DIR"`
	ManifestsSelector         string        `help:"Label selector of the objects of --manifests to take." placeholder:"SELECTOR"`
	ManifestsPrune            bool          `help:"Delete objects whose manifest is gone. The embedded API always does."`
	Validate                  string        `help:"Unknown fields: ${enum}." enum:"strict,warn,off,true,false,ignore" default:"strict"`
	TelemetryListen           string        `help:"Address of the page, /metrics, /healthz and /readyz; empty = off." default:"127.0.0.1:9440"`
	NoPage                    bool          `help:"Serve no page on --telemetry-listen, and no /status.json."`
	WebhookListen             string        `help:"Address that receives webhooks of Git hosts; empty = off." placeholder:"ADDRESS"`
	WebhookURL                string        `help:"Public https URL of --webhook-listen, to register webhooks." placeholder:"URL"`
	WebhookCertFile           string        `help:"Certificate of --webhook-listen. Default: a proxy speaks TLS." placeholder:"FILE"`
	WebhookKeyFile            string        `help:"Private key of --webhook-cert-file." placeholder:"FILE"`
	WebhookTrustedProxy       []string      `help:"Proxy whose X-Forwarded-For is trusted. Repeatable." placeholder:"CIDR"`
	ArtifactListen            string        `help:"Address that serves the artifacts of sources; empty = off." placeholder:"ADDRESS"`
	ArtifactURL               string        `help:"URL of --artifact-listen. Default: made of the host name." placeholder:"URL"`
	ArtifactTokenFile         string        `help:"Bearer token that --artifact-listen asks for. Default: none." placeholder:"FILE"`
	ArtifactTLSCertFile       string        `help:"Certificate of --artifact-listen. Default: plain http." placeholder:"FILE"`
	ArtifactTLSKeyFile        string        `help:"Private key of --artifact-tls-cert-file." placeholder:"FILE"`
	ArtifactRetentionRecords  int           `help:"Revisions of a source that are kept." default:"10"`
	ArtifactRetentionTTL      time.Duration `help:"Delete replaced revisions after this. 0 = never." default:"0s"`
	ArtifactMaxSize           Size          `help:"Size of the files of an artifact, such as 512MiB; 0 = no limit." default:"1GiB"`
	ArtifactMaxFiles          int           `help:"Files and directories of an artifact; 0 = no limit." default:"100000"`
	HelmIndexMaxSize          Size          `help:"Size of the index of a Helm repository." default:"50MiB"`
	Notify                    []string      `help:"Target of 'limpet help notifications'. Repeatable." placeholder:"URL" sep:"none"`
	NotifyHMACKeyFile         string        `help:"Key that signs notifications to webhooks." placeholder:"FILE"`
	LokiURL                   string        `help:"Loki that gets a line for each job that has ended." placeholder:"URL"`
	LokiUser                  string        `help:"User for Loki. Default: the password is a bearer token." placeholder:"NAME"`
	LokiPasswordFile          string        `help:"Password or token for Loki; read again when it changes." placeholder:"FILE"`
	LokiTenantID              string        `help:"Tenant of Loki (X-Scope-OrgID)." placeholder:"ID"`
	Heartbeat                 string        `help:"URL that is called once a minute while nothing fails." placeholder:"URL"`
	CommitStatus              bool          `help:"Report each sync on its commit at the Git host, as a commit status."`
	AllowInsecureGit          bool          `help:"Send credentials over plain http."`
	GitTimeout                time.Duration `help:"Maximum duration of a fetch. 0 = 3/4 of --max-job-timeout." default:"0s"`
	GitPrivateNetworks        []string      `help:"Private networks of Git hosts: all, none, or a list." default:"all" placeholder:"CIDR"`
	LocalGitPrefix            []string      `help:"Directory of file:// repositories. Repeatable." placeholder:"DIR" sep:"none"`
	RegistryMirror            []string      `help:"What is asked before a container registry. Repeatable." placeholder:"HOST=MIRROR" sep:"none"`
	LocalPrefix               []string      `help:"Directory for repositories of type local. Repeatable." placeholder:"DIR" sep:"none"`
}

// mapDuration reads a duration as Go writes it, with days before it: 90s, 24h, 7d, 1d12h.
func mapDuration(ctx *kong.DecodeContext, target reflect.Value) error {
	t, err := ctx.Scan.PopValue("duration")
	if err != nil {
		return err
	}
	d, err := ParseDuration(t.String())
	target.SetInt(int64(d))
	return err
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
			return 0, fmt.Errorf("%q is not a duration (like 90s, 5m, 24h, 7d)", text)
		}
	}
	const most = int(1 << 63 / uint64(24*time.Hour))
	if days <= -most || days >= most {
		return 0, fmt.Errorf("%q is longer than a duration can be", text)
	}
	return time.Duration(days)*24*time.Hour + d, nil
}

// Size is a number of bytes, written plain or with a unit: 512KiB, 64MiB, 1GiB, or 500KB, 64MB, 1GB
// for powers of ten.
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
	return fmt.Errorf("%q is not a size (like 65536, 64MiB, 1GB)", text)
}
