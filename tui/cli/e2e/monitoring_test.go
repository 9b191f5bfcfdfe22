package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// monitored is what TestPrometheus scrapes: pulls and sources that succeed, fail and are suspended.
const monitored = `apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: well, namespace: default}
spec: {interval: 10s, url: "%[1]s", ref: {branch: %[2]s}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: ill, namespace: default}
spec: {interval: 10s, url: "%[1]s", ref: {branch: none}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: rests, namespace: default}
spec: {interval: 10s, suspend: true, url: "%[1]s", ref: {branch: %[2]s}}
`

// TestPrometheus: a real Prometheus with the printed scrape job and rules answers every query of the
// boards, and every selector of the rules, about an agent with a short life behind it. Limpet makes
// no Kustomizations and HelmReleases: what the board of Flux asks about them is empty.
func TestPrometheus(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	address := freeAddress(t)
	h.env = append(h.env, "LIMPET_TELEMETRY_LISTEN="+address)
	boards := testenv.Repo(t, 2, 3)
	origin := testenv.Git(t, testenv.GitOptions{}).Serve("boards.git", boards.Dir)
	h.daemon(t, "--notify", "exec:/bin/cat")
	h.must(t, 0, "apply", "-f", h.file(t, "sources.yaml", fmt.Sprintf(monitored, origin, testenv.Branch)))
	h.must(t, 0, "repo", "create", "well", "--url", origin, "--branch", testenv.Branch, "--interval", "1h")
	h.must(t, 0, "repo", "create", "ill", "--url", origin, "--branch", "none", "--interval", "1h")
	h.must(t, 0, "repo", "pull", "well", "--full", "--wait")

	dir := t.TempDir()
	rules := h.must(t, 0, "monitoring", "rules").out
	h.file(t, "rules.yaml", rules)
	job := strings.Replace(h.must(t, 0, "monitoring", "scrape", "site-7="+address).out, "30s", "1s", 1)
	config := h.file(t, "prometheus.yaml", "rule_files: [rules.yaml]\n"+job)
	if out, err := exec.Command("promtool", "check", "config", config).CombinedOutput(); err != nil {
		t.Fatalf("promtool check config: %v\n%s", err, out)
	}
	check := exec.Command("promtool", "check", "metrics")
	check.Stdin = strings.NewReader(string(httpBody(t, "http://"+address+"/metrics")))
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
	at := freeAddress(t)
	prometheus := tied(exec.Command("prometheus", "--config.file", config, "--storage.tsdb.path", dir, "--web.listen-address", at))
	if err := prometheus.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		prometheus.Process.Kill()
		prometheus.Wait()
	})
	results := func(query string) int {
		resp, err := http.Get("http://" + at + "/api/v1/query?" + url.Values{"query": {query}}.Encode())
		if err != nil {
			return -1
		}
		defer resp.Body.Close()
		var answer struct {
			Status string
			Data   struct{ Result []any }
		}
		if json.NewDecoder(resp.Body).Decode(&answer) != nil || answer.Status != "success" {
			return -1
		}
		return len(answer.Data.Result)
	}
	until(t, "two scrapes", func() bool {
		// A pull after the first scrape makes rates of what had no series before.
		h.run(t, "repo", "pull", "well", "--full", "--wait")
		return results(`count_over_time(limpet_build_info[5m]) > 3`) > 0
	})
	for _, query := range promQueries(t, h, rules) {
		until(t, query, func() bool { return results(query) > 0 })
	}
}

// promQueries returns what has to have an answer: the queries of all boards, with all values of the
// variables, and the selectors of the rules, which themselves have one when something is wrong.
func promQueries(t *testing.T, h *home, rules string) (out []string) {
	t.Helper()
	variable := regexp.MustCompile(`\$\w+`)
	for _, board := range []string{"cluster", "jobs", "fleet"} {
		var b struct {
			Panels []struct{ Targets []struct{ Expr string } }
		}
		if err := json.Unmarshal([]byte(h.must(t, 0, "monitoring", "dashboards", board).out), &b); err != nil {
			t.Fatal(err)
		}
		for _, p := range b.Panels {
			for _, target := range p.Targets {
				if !strings.Contains(target.Expr, "Kustomization") {
					out = append(out, variable.ReplaceAllString(target.Expr, ".*"))
				}
			}
		}
	}
	for _, selector := range regexp.MustCompile(`(limpet|gotk)_\w+(\{[^}]*\})?`).FindAllString(rules, -1) {
		if selector != "limpet_repository_drifted_objects" { // the first check is an hour away
			out = append(out, selector)
		}
	}
	if len(out) < 40 {
		t.Fatalf("%d queries", len(out))
	}
	return out
}

// freeAddress returns an address of loopback that was free.
func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

func httpBody(t *testing.T, from string) []byte {
	t.Helper()
	resp, err := http.Get(from)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return body
}
