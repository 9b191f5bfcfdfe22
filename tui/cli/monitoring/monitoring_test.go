package monitoring

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"limpet/sync/metrics"
)

// queries returns all queries of the boards and the rules, by where they stand.
func queries(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, text := range Boards() {
		var b struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
			Templating struct {
				List []struct {
					Name, Type string
					Query      any
				}
			}
		}
		if err := json.Unmarshal(text, &b); err != nil {
			t.Fatal(name, err)
		}
		for _, p := range b.Panels {
			for _, target := range p.Targets {
				out[name+" "+p.Title+" "+target.Expr] = target.Expr
			}
		}
		for _, v := range b.Templating.List {
			if query, is := v.Query.(map[string]any); is && v.Type == "query" {
				out[name+" $"+v.Name], _ = query["query"].(string)
			}
		}
	}
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	text, err := files.ReadFile("rules.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range file.Groups[0].Rules {
		out["rule "+r.Alert] = r.Expr
	}
	return out
}

// exported returns the labels of all metrics that the binary exports; sync/metrics holds the list
// against its output.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../../testdata/golden/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	// The list leaves those of the client library out, which differ by system.
	out := map[string][]string{"process_resident_memory_bytes": nil}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		name, kind, labels := words[0], words[1], words[2:]
		if slices.Contains(labels, "namespace") { // Prometheus renames it, see scrapeJob
			labels = append(labels, "exported_namespace")
		}
		if kind != "histogram" {
			out[name] = labels
			continue
		}
		out[name+"_sum"], out[name+"_count"], out[name+"_bucket"] = labels, labels, append(slices.Clip(labels), "le")
	}
	return out
}

var (
	selector = regexp.MustCompile(`\b((?:limpet|gotk|grafana|workqueue|controller|process|go)_\w+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)
	grouping = regexp.MustCompile(`\b(?:by|on)\s*\(([^)]*)\)`)
	variable = regexp.MustCompile(`label_values\((\w+), (\w+)\)`)
)

// TestQueries: each query of each board and rule names metrics and labels that the binary exports,
// or that the printed scrape job adds.
func TestQueries(t *testing.T) {
	t.Parallel()
	all, of := queries(t), exported(t)
	if len(all) < 50 {
		t.Errorf("%d queries only", len(all))
	}
	added := []string{"instance", "job", "namespace", "site"}
	for where, query := range all {
		var labels []string
		found := selector.FindAllStringSubmatch(query, -1)
		if len(found) == 0 {
			t.Errorf("%s: no metric in %s", where, query)
		}
		for _, m := range found {
			have, known := of[m[1]]
			if !known {
				t.Errorf("%s: %s is not exported", where, m[1])
			}
			have = append(slices.Clip(have), added...)
			labels = append(labels, have...)
			for _, one := range matcher.FindAllStringSubmatch(m[2], -1) {
				if !slices.Contains(have, one[1]) {
					t.Errorf("%s: %s has no label %s", where, m[1], one[1])
				}
			}
		}
		groups := grouping.FindAllStringSubmatch(query, -1)
		if m := variable.FindStringSubmatch(query); m != nil {
			groups = append(groups, m[1:])
		}
		for _, g := range groups {
			for label := range strings.SplitSeq(g[1], ",") {
				if !slices.Contains(labels, strings.TrimSpace(label)) {
					t.Errorf("%s: nothing there has a label %s", where, label)
				}
			}
		}
	}
}

// TestCustomResourceState: the configuration gives each kind the labels that the agent exports, and
// the rights are those to read it.
func TestCustomResourceState(t *testing.T) {
	t.Parallel()
	of := exported(t)[metrics.InfoName]
	text, err := yaml.Marshal(helmValues())
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		KSM struct {
			Collectors []string
			RBAC       struct {
				ExtraRules []struct{ APIGroups, Resources, Verbs []string }
			}
			State struct {
				Config struct {
					Spec struct {
						Resources []struct {
							GroupVersionKind struct{ Group, Version, Kind string }
							MetricNamePrefix string
							Metrics          []struct {
								Name, Help     string
								LabelsFromPath map[string][]string
							}
						}
					}
				}
			} `json:"customResourceState"`
		} `json:"kube-state-metrics"`
	}
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	resources := values.KSM.State.Config.Spec.Resources
	if len(resources) != len(metrics.Kinds) || values.KSM.Collectors == nil || len(values.KSM.RBAC.ExtraRules) != 2 {
		t.Errorf("%s", text)
	}
	helps := map[string]bool{}
	for _, r := range resources {
		// kube-state-metrics 2.18 drops kinds whose family has the help of another one.
		if help := r.Metrics[0].Help; help == "" || helps[help] {
			t.Errorf("%s: help %q", r.GroupVersionKind.Kind, help)
		}
		helps[r.Metrics[0].Help] = true
		for label := range r.Metrics[0].LabelsFromPath {
			if !slices.Contains(of, label) {
				t.Errorf("%s: label %s is not exported", r.GroupVersionKind.Kind, label)
			}
		}
		if name := r.MetricNamePrefix + "_" + r.Metrics[0].Name; name != metrics.InfoName {
			t.Errorf("%s: %s", r.GroupVersionKind.Kind, name)
		}
	}
}
