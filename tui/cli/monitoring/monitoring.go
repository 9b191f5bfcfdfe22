// Package monitoring has the commands that print what Prometheus, Grafana and kube-state-metrics
// need to watch limpet: boards, rules, scrape jobs and a configuration.
package monitoring

import (
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"

	"limpet/tui/cli/command"
)

// files are the boards, a file each, and the rules.
//
//go:embed boards/*.json rules.yaml
var files embed.FS

// Command has the commands of 'limpet monitoring'.
type Command struct {
	Dashboards dashboardsCmd `cmd:"" help:"Print the boards for Grafana, or write them to a directory."`
	Rules      rulesCmd      `cmd:"" help:"Print the alert rules for Prometheus."`
	Scrape     scrapeCmd     `cmd:"" help:"Print the scrape job for Prometheus."`
	Podmonitor podMonitorCmd `cmd:"" name:"podmonitor" help:"Print the PodMonitor for the Prometheus operator."`
	KSM        ksmCmd        `cmd:"" name:"ksm" help:"Print the configuration of kube-state-metrics for Flux and Grafana."`
}

// printText prints a file as it is; as data it is a member.
func printText(e *command.Env, name, text string) error {
	return e.PrintOne(map[string]string{"name": name, "text": text}, name, func(w io.Writer) { io.WriteString(w, text) })
}

type dashboardsCmd struct {
	Name string `arg:"" optional:"" help:"Which one to print: cluster, jobs or fleet."`
	Dir  string `help:"Write all of them to this directory, as for file provisioning." placeholder:"DIR"`
}

// board is what is listed of a board.
type board struct {
	Name   string `json:"name"`
	UID    string `json:"uid"`
	Title  string `json:"title"`
	Panels int    `json:"panels"`
}

// Boards returns the boards by the names of their files.
func Boards() map[string][]byte {
	boards := map[string][]byte{}
	entries, _ := files.ReadDir("boards") // they are part of the program, as their texts
	for _, entry := range entries {
		boards[entry.Name()], _ = files.ReadFile("boards/" + entry.Name())
	}
	return boards
}

func (c dashboardsCmd) Run(e *command.Env) error {
	boards := Boards()
	switch {
	case c.Dir != "" && c.Name != "":
		return command.Usagef("limpet monitoring dashboards --dir "+c.Dir, "--dir writes all boards, and takes no name")
	case c.Dir != "":
		return c.write(e, boards)
	case c.Name != "":
		text, ok := boards[c.Name+".json"]
		if !ok {
			return command.Usagef("limpet monitoring dashboards", "there is no board %q", c.Name)
		}
		return printText(e, c.Name+".json", string(text))
	}
	var items []any
	t := command.Table{Columns: []string{"NAME", "UID", "TITLE", "PANELS"}}
	for _, file := range slices.Sorted(maps.Keys(boards)) {
		var stored struct {
			UID, Title string
			Panels     []any
		}
		if err := json.Unmarshal(boards[file], &stored); err != nil {
			return err
		}
		b := board{strings.TrimSuffix(file, ".json"), stored.UID, stored.Title, len(stored.Panels)}
		items = append(items, b)
		t.Add("", "dashboard/"+b.Name, b.Name, b.UID, b.Title, fmt.Sprint(b.Panels))
	}
	return e.PrintList(items, t)
}

// write writes all boards, after it has looked at all places.
func (c dashboardsCmd) write(e *command.Env, boards map[string][]byte) error {
	names := slices.Sorted(maps.Keys(boards))
	for _, name := range names {
		if err := command.Writable(filepath.Join(c.Dir, "limpet-"+name), "limpet monitoring dashboards --dir"); err != nil {
			return err
		}
	}
	for _, name := range names {
		// Grafana reads them as another user.
		if err := command.WriteText(filepath.Join(c.Dir, "limpet-"+name), 0o644, string(boards[name])); err != nil {
			return err
		}
	}
	return e.PrintDone(map[string]any{"dir": c.Dir, "files": len(names)}, c.Dir, "%d boards written to %s", len(names), c.Dir)
}

type rulesCmd struct {
	Operator bool `help:"Print them as a PrometheusRule of the Prometheus operator."`
}

func (c rulesCmd) Run(e *command.Env) error {
	text, err := files.ReadFile("rules.yaml")
	if err != nil || !c.Operator {
		return cmp.Or(err, printText(e, "rules.yaml", string(text)))
	}
	spec := "  " + strings.TrimSpace(strings.ReplaceAll(string(text), "\n", "\n  ")) + "\n"
	return printText(e, "prometheusrule.yaml", prometheusRule+spec)
}

const prometheusRule = `apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: limpet
  labels:
    release: kube-prometheus-stack
spec:
`

type scrapeCmd struct {
	Targets []string `arg:"" optional:"" help:"HOST:PORT or SITE=HOST:PORT; default: the telemetry address." placeholder:"TARGET"`
}

// Prometheus renames the label namespace of metrics only where the target has one, and boards of
// Flux read exported_namespace.
const scrapeJob = `# The label namespace stands for that of a pod: Prometheus then renames the metrics' own
# to exported_namespace, which the boards read.
scrape_configs:
  - job_name: limpet
    scrape_interval: 30s
    static_configs:
`

func (c scrapeCmd) Run(e *command.Env) error {
	targets := c.Targets
	if len(targets) == 0 {
		targets = []string{cmp.Or(e.Flags.TelemetryListen, "127.0.0.1:9440")}
	}
	text := scrapeJob
	for _, target := range targets {
		site, address, named := strings.Cut(target, "=")
		if !named {
			address = target
		}
		host, port, err := net.SplitHostPort(address)
		if err != nil || host == "" || port == "" || site == "" {
			return command.Usagef("limpet monitoring scrape site-7=10.0.0.7:9440", "%q is not HOST:PORT or SITE=HOST:PORT", target)
		}
		if !named {
			site = host
		}
		text += fmt.Sprintf("      - targets: [%q]\n        labels: {namespace: limpet, site: %q}\n", address, site)
	}
	return printText(e, "scrape.yaml", text)
}

type podMonitorCmd struct{}

func (podMonitorCmd) Run(e *command.Env) error { return printText(e, "podmonitor.yaml", podMonitor) }

const podMonitor = `apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: limpet
  labels:
    release: kube-prometheus-stack
spec:
  selector:
    matchLabels:
      app.kubernetes.io/name: limpet
  podMetricsEndpoints:
    - port: http-prom
      relabelings:
        - sourceLabels: [__meta_kubernetes_pod_node_name]
          targetLabel: site
`
