package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// hostilePeak is what the agent may hold at most while hosts are hostile. Unit: KiB.
const hostilePeak = 256 << 10

// TestHostileHosts lets one agent pull from hosts that send bombs, damaged packs, names that lead
// elsewhere and pages of portals, all at once, while a repository of a good host is changed. Each
// of them is refused, the good one goes on, and the process stays small.
func TestHostileHosts(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	const token = "canary-77aa-hostile"
	good := testenv.Repo(t, 2, 5)
	host, evil := testenv.Git(t, testenv.GitOptions{}), testenv.Hostile(t, testenv.Repo(t, 5, 40).Dir)
	paths := []string{testenv.HostileBlob, testenv.HostileLie, testenv.HostileDelta, testenv.HostileDeltas, testenv.HostileObjects,
		testenv.HostileTrees,
		testenv.HostileRefs, testenv.HostilePortal, testenv.HostileElsewhere, testenv.HostileCut, testenv.HostileFlipped, testenv.HostileNames}
	h := newHome(t)
	name := func(path string) string { return strings.TrimSuffix(path, ".git") }
	for _, path := range paths {
		h.file(t, "credentials/default."+name(path)+"/token", token)
	}
	d := h.daemon(t, "--allow-insecure-git", "--credentials-dir", filepath.Join(h.dir, "credentials"), "--sink-prefix", h.dir)
	create := func(name, url, path string) {
		h.must(t, 0, "repo", "create", name, "--url", url, "--branch", testenv.Branch, "--path", path, "--interval", "24h",
			"--no-sink-strict", "--sink-dir", filepath.Join(h.dir, "sinks", name))
	}
	create("good", host.Serve("good.git", good.Dir), testenv.Directory)
	for _, path := range paths {
		dir := ""
		if path == testenv.HostileCut || path == testenv.HostileFlipped {
			dir = testenv.Directory
		}
		create(name(path), evil.URL+"/"+path, dir)
	}
	for range suite.Count(1, 5) {
		calls := map[string]func() result{}
		for _, path := range paths {
			calls[path] = h.runInBackground(t, "repo", "pull", name(path), "--full", "--wait", "--timeout", "60s")
		}
		good.Edit(t, good.Dashboards()[0].Path)
		began := time.Now()
		until(t, "the good repository is pulled", func() bool { return h.run(t, "repo", "pull", "good", "--wait").code == 0 })
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("a good repository took %s", took)
		}
		for path, ended := range calls {
			if r := ended(); r.code == 0 || strings.ContainsAny(r.out+r.err, "\x1b\u202e") {
				t.Errorf("%s: exit %d: %q", path, r.code, r.out+r.err)
			}
		}
	}
	if strays := evil.Strays(); len(strays) > 0 {
		t.Errorf("the other host was asked: %q", strays)
	}
	if sink, err := os.ReadDir(filepath.Join(h.dir, "sinks", "names")); err != nil ||
		!slices.ContainsFunc(sink, func(e os.DirEntry) bool { return e.Name() == "good.json" }) {
		t.Errorf("what is good among bad names was not pulled: %v %v", sink, err)
	}
	if w := readUsage(t, d.cmd.Process.Pid); w.peak > hostilePeak {
		t.Errorf("the agent held %d MiB", w.peak>>10)
	}
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(h.state()), "*", "tmp_*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	h.noSecret(t, d.log.String(), token)
}

// TestSlowFetch: a fetch in drops ends after --git-timeout with a message and is retried, and
// another repository is pulled meanwhile.
func TestSlowFetch(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	evil := testenv.Hostile(t, testenv.Repo(t, 1, 1).Dir)
	h := newHome(t)
	d := h.daemon(t, "--git-timeout", "2s", "--drivers", "1")
	create := func(name, url, path string) {
		h.must(t, 0, "repo", "create", name, "--url", url, "--branch", testenv.Branch, "--path", path, "--interval", "24h")
	}
	create("slow", evil.URL+"/"+testenv.HostileSlow, "")
	until(t, "the fetch has timed out", func() bool { return strings.Contains(h.run(t, "job", "list", "-o", "json").out, "--git-timeout") })
	good := testenv.Repo(t, 1, 3)
	create("good", testenv.Git(t, testenv.GitOptions{}).Serve("good.git", good.Dir), testenv.Directory)
	until(t, "the good one is pulled", func() bool {
		return strings.Contains(h.run(t, "history", "list", "-o", "json").out, `"good"`)
	})
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// TestRefusalsOfTheServer: wrong tokens, missing rights and unknown authorities have exit
// codes of their own, and no token is printed.
func TestRefusalsOfTheServer(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	server := testenv.Start(t, testenv.Options{Deny: []string{"list jobs *"}})
	h := newHome(t)
	ca := []string{"--tls-ca-file", server.CAFile}
	for _, c := range []struct {
		code int
		try  string
		args []string
	}{
		{exitAuth, "--token", append(ca, "--token", "canary-wrong")},
		{exitAuth, "", append(ca, "--token", "canary-wrong", "--token-exchange-url", server.SignURL)},
		{exitAuth, "--namespace", append(ca, "--token", server.Token)},
		{exitUnreachable, "--tls-ca-file", []string{"--tls-insecure=false", "--token", server.Token}},
	} {
		r := h.must(t, c.code, append(c.args, "--provisioning-server-url", server.URL, "get", "jobs")...)
		if !strings.Contains(r.err, c.try) || strings.Contains(r.err, "canary") || strings.Contains(r.err, server.Token) {
			t.Errorf("%v: %s", c.args, r.err)
		}
	}
}
