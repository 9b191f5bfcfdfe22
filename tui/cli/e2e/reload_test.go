package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"limpet/sync/testenv"
)

// reloads returns the log lines of a daemon about reloads of its config file.
func (d *daemon) reloads(t *testing.T) (out []reloadLine) {
	t.Helper()
	for line := range strings.Lines(d.log.String()) {
		var l reloadLine
		if json.Unmarshal([]byte(line), &l) == nil && strings.HasPrefix(l.Msg, "config file ") {
			out = append(out, l)
		}
	}
	return out
}

type reloadLine struct {
	Level, Msg string
	Changed    []string
	Restart    []string `json:"needs_restart"`
}

// TestReload: SIGHUP during a pull. The pull goes on, the next fetch uses the changed credentials
// and the swapped CA, and a wrong file is refused as a whole.
func TestReload(t *testing.T) {
	t.Parallel()
	origin, gate := testenv.Repo(t, 1, 3), newGate(t, 3)
	host := testenv.Git(t, testenv.GitOptions{TLS: true, User: "bot", Password: "canary-new"})
	url := host.Serve("private.git", origin.Dir)
	rightCA, err := os.ReadFile(host.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	otherCA, err := os.ReadFile(testenv.Git(t, testenv.GitOptions{TLS: true}).CAFile)
	if err != nil {
		t.Fatal(err)
	}
	h := newHome(t)
	ca := h.file(t, "ca.crt", string(otherCA))
	configure := func(password, rest string) string {
		return h.file(t, "config.yaml", fmt.Sprintf("git-credentials:\n- url: %s\n  values: {username: bot, password: %s}\n  files: {ca.crt: %s}\n%s",
			host.URL, password, ca, rest))
	}
	d := h.daemon(t, "--config", configure("canary-old", "drivers: 3\n"))
	h.must(t, 0, "repo", "create", "gated", "--url", gate.URL, "--branch", testenv.Branch)
	h.must(t, 0, "repo", "pull", "gated", "--full")
	until(t, "the pull runs", func() bool { return strings.Contains(h.run(t, "job", "list", "--no-headers").out, "working") })
	reloaded := func() reloadLine {
		t.Helper()
		before := len(d.reloads(t))
		if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		until(t, "the config file is reloaded", func() bool { return len(d.reloads(t)) > before })
		return d.reloads(t)[before]
	}
	warnings := func() []string {
		var rep struct {
			Live struct{ Agent struct{ Warnings []string } }
		}
		if err := json.Unmarshal([]byte(h.run(t, "status", "-o", "json").out), &rep); err != nil {
			t.Fatal(err)
		}
		return rep.Live.Agent.Warnings
	}

	h.file(t, "ca.crt", string(rightCA))
	configure("canary-new", "drivers: 4\n")
	if l := reloaded(); l.Level != "INFO" || !slices.Equal(l.Changed, []string{"drivers", "git-credentials"}) ||
		!slices.Equal(l.Restart, []string{"drivers"}) {
		t.Errorf("%+v", l)
	}
	h.must(t, 0, "repo", "create", "private", "-n", "other", "--url", url, "--branch", testenv.Branch)
	h.must(t, 0, "repo", "pull", "private", "-n", "other", "--full", "--wait")

	configure("canary-bad", "driverz: 4\n")
	if l := reloaded(); l.Level != "ERROR" {
		t.Errorf("%+v", l)
	}
	until(t, "the status tells", func() bool { return len(warnings()) == 1 })
	origin.Edit(t, origin.Dashboards()[0].Path)
	h.must(t, 0, "repo", "pull", "private", "-n", "other", "--wait")

	configure("canary-new", "drivers: 3\n")
	if l := reloaded(); l.Level != "INFO" || len(l.Changed)+len(l.Restart) > 0 {
		t.Errorf("%+v", l)
	}
	until(t, "the status is good again", func() bool { return len(warnings()) == 0 })
	gate.open()
	until(t, "the first pull ends", func() bool {
		return strings.Contains(h.run(t, "history", "list", "--repository", "gated", "--no-headers").out, "success")
	})
	if r := h.must(t, 0, "history", "show", "gated-sync", "-o", "json"); strings.Contains(r.out, `"n": 2`) {
		t.Errorf("it took more than one attempt: %s", r.out)
	}
	if strings.Contains(d.log.String(), "canary") {
		t.Error("the log shows a secret")
	}
}
