package e2e

import (
	"encoding/json"
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

// TestHostileHosts lets one agent pull from hosts that send bombs, damaged packs, names that lead elsewhere and pages
// of portals, all at once, while a repository of a good host is changed. Each of them is refused, the good one goes
// on, and the process stays small.
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

// TestHostileArguments: what looks like an option or a command is refused as URL and branch.
func TestHostileArguments(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	d := h.daemon(t)
	mark := filepath.Join(h.dir, "run")
	for _, url := range []string{"--upload-pack=touch " + mark, "ext::sh -c touch% " + mark, "/etc", "-oProxyCommand=touch " + mark,
		"ssh://-oProxyCommand=touch%20" + mark + "/x",
		"https://user:canary-url-password@git.example.com/x", "git://git.example.com/x", "https://git.example.com/x\x1b[2J"} {
		r := h.run(t, "repo", "create", "x", "--url="+url, "--branch", "main")
		if r.code == 0 || strings.Contains(r.out+r.err, "canary-url-password") || strings.Contains(r.err, "\x1b") {
			t.Errorf("%q: exit %d: %q", url, r.code, r.err)
		}
	}
	h.must(t, 0, "repo", "create", "local", "--url", "file:///etc", "--branch", "main", "--path", "")
	until(t, "a local path is refused, with the flag that allows it", func() bool {
		return strings.Contains(h.run(t, "repo", "show", "local").out, "--local-git-prefix")
	})
	for _, branch := range []string{"--upload-pack=touch " + mark, "-x", "a..b", "main\nx", "refs/../x", "@{u}", "a b", "x.lock", "\x1b[2J"} {
		r := h.run(t, "repo", "create", "x", "--url", "https://git.example.com/x", "--branch="+branch)
		if r.code == 0 || strings.Contains(r.err, "\x1b") {
			t.Errorf("branch %q: exit %d: %q", branch, r.code, r.err)
		}
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a command was run")
	}
	d.stop(t)
}

// TestBadInput calls the binary with common mistakes. Each call ends with its exit code, names
// the mistake, and changes nothing.
func TestBadInput(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	config := h.file(t, "config.yaml", "drivers: 2\nprovisioning-server-ulr: https://x\n")
	broken := h.file(t, "broken.yaml", "drivers: [\n")
	notPEM := h.file(t, "ca.pem", "this is no certificate\n")
	open := h.file(t, "open.yaml", "token: secret\n")
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	server := []string{"--provisioning-server-url", "https://127.0.0.1:1"}
	tests := []struct {
		name string
		args []string
		in   string
		code int
		says []string
	}{
		{"unknown flag", []string{"--drivres", "3", "status"}, "", 2, []string{"drivres", "--drivers"}},
		{"unknown command", []string{"stauts"}, "", 2, []string{"stauts", "status"}},
		{"wrong type", []string{"--drivers", "many", "status"}, "", 2, []string{"drivers", "many"}},
		{"unknown config key", []string{"--config", config, "status"}, "", 2, []string{"provisioning-server-ulr", "provisioning-server-url"}},
		{"broken config", []string{"--config", broken, "status"}, "", 2, []string{"broken.yaml"}},
		{"config that is not there", []string{"--config", "/no/such/file", "status"}, "", 2, []string{"/no/such/file"}},
		{"token that others can read", []string{"--config", open, "status"}, "", 2, []string{"chmod 600"}},
		{"unreadable CA", append(server, "--tls-ca-file", "/no/such/ca.pem", "get", "jobs"), "", 2, []string{"--tls-ca-file", "/no/such/ca.pem"}},
		{"certificate without a key", append(server, "--tls-cert-file", notPEM, "get", "jobs"), "", 2, []string{"--tls-key-file"}},
		{"CA and insecure", append(server, "--tls-ca-file", notPEM, "--tls-insecure", "get", "jobs"), "", 2, []string{"--tls-insecure"}},
		{"token twice", append(server, "--token", "a", "--token-file", "b", "get", "jobs"), "", 2, []string{"--token-file"}},
		{"server twice", append(server, "--kubeconfig", "x", "get", "jobs"), "", 2, []string{"--kubeconfig"}},
		{"lease without margin", []string{"--daemon", "--claim-expiry", "20s", "--lease-renewal-interval", "10s"}, "", 2, []string{"expiry"}},
		{"fewer than no repositories", []string{"--daemon", "--max-repositories=-1"}, "", 2, []string{"--max-repositories", "less than 0"}},
		{"no drivers", []string{"--daemon", "--drivers", "-1"}, "", 2, []string{"drivers"}},
		{"bad selector", []string{"--daemon", "--repository-selector", "a=b=c"}, "", 2, []string{"--repository-selector"}},
		{"webhooks without a port", []string{"--daemon", "--webhook-listen", "localhost"}, "", 2, []string{"--webhook-listen"}},
		{"fetches of less than no time", []string{"--daemon", "--git-timeout=-1s"}, "", 2, []string{"--git-timeout", "less than 0"}},
		{"webhook certificate without a key", []string{"--daemon", "--webhook-listen", ":0", "--webhook-cert-file", notPEM}, "", 2,
			[]string{"--webhook-key-file"}},
		{"bad selector of manifests", []string{"--daemon", "--manifests", "/tmp", "--manifests-selector", "a=b=c"}, "", 2,
			[]string{"--manifests-selector"}},
		{"apply nothing", []string{"apply", "-f", "-"}, "", 2, []string{"no objects"}},
		{"apply broken YAML", []string{"apply", "-f", "-"}, "a: [\n", 2, []string{"document 1"}},
		{"apply an unknown kind", []string{"apply", "-f", "-"},
			"apiVersion: provisioning.grafana.app/v0alpha1\nkind: Repostory\nmetadata: {name: x}\n", 2, []string{"Repostory", "Repository"}},
		{"validate a dashboard", []string{"repo", "validate", "-"}, `{"uid":"a","title":"A"}`, 2, []string{"a Repository", "limpet repo pull"}},
		{"validate an object", []string{"repo", "validate", "-"},
			"apiVersion: dashboard.grafana.app/v1\nkind: Dashboard\nmetadata: {name: x}\n", 2,
			[]string{"expects a Repository", "try: limpet apply -f - --dry-run"}},
		{"get an unknown kind", []string{"get", "repositoris"}, "", 2, []string{"repositories"}},
		{"time that is none", []string{"history", "list", "--since", "yesterday"}, "", 2, []string{"yesterday", "24h"}},
		{"window that is empty", []string{"history", "export", "--since", "24h", "--until", "7d"}, "", 2,
			[]string{"--since 24h", "--until 7d", "try: limpet history list --since 7d --until 24h"}},
		{"priority beyond", []string{"job", "create", "x", "--priority", "10"}, "", 2,
			[]string{"from 0 to 9", "try: limpet job create x --priority 9"}},
		{"prune what", []string{"history", "prune"}, "", 2, []string{"--older-than, --before or --keep",
			"try: limpet history prune --older-than 7d"}},
		{"drain both ways", []string{"drain", "--wait", "--off"}, "", 2, []string{"--off", "--wait"}},
		{"retry of nothing", []string{"job", "retry", "nothing"}, "", 1,
			[]string{"not found", "try: limpet job list; limpet history list"}},
		{"job options that are no JSON", []string{"job", "create", "x", "--spec", "{"}, "", 2, []string{"--spec"}},
		{"tokens without TLS", []string{"api", "--listen", "127.0.0.1:0", "--sign-listen", "0.0.0.0:0", "--token", "abcdefgh"}, "", 2,
			[]string{"without TLS", "--sign-tls"}},
		{"default token beyond loopback", []string{"api", "--listen", "0.0.0.0:0"}, "", 2, []string{"--listen", "--token-file"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := h.runWithInput(t, tt.in, tt.args...)
			if r.code != tt.code {
				t.Errorf("exit %d, want %d; stderr: %s", r.code, tt.code, r.err)
			}
			for _, word := range tt.says {
				if !strings.Contains(r.err, word) {
					t.Errorf("no word of %q in: %s", word, r.err)
				}
			}
			if r.out != "" {
				t.Errorf("stdout has %q", r.out)
			}
		})
	}
	t.Cleanup(func() {
		if _, err := os.Stat(h.state()); err == nil && !t.Failed() {
			// The kinds that are refused before the store is opened leave none.
			r := h.run(t, "store", "info", "-o", "json")
			var info struct{ Objects, History int }
			if err := json.Unmarshal([]byte(r.out), &info); err != nil || info.Objects+info.History > 0 {
				t.Errorf("bad input left something behind: %s", r.out)
			}
		}
	})
}

func TestBadObjectsAreRefusedWhole(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	good := "apiVersion: provisioning.grafana.app/v0alpha1\nkind: Repository\nmetadata: {name: good, namespace: default}\nspec: {title: Good, type: git, git: {url: https://git.example.com/a.git, branch: main}, sync: {enabled: false, target: folder}}\n"
	bad := strings.NewReplacer("name: good", "name: bad", "target: folder", "target: nowhere").Replace(good)
	r := h.runWithInput(t, good+"---\n"+bad, "apply", "-f", "-")
	if r.code != 1 || !strings.Contains(r.err, "spec.sync.target") || !strings.Contains(r.err, "document 2") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	if r := h.must(t, 0, "get", "repositories", "-o", "name"); r.out != "" {
		t.Errorf("half of the file was applied: %s", r.out)
	}
	for _, verb := range []string{"created", "unchanged"} {
		if r := h.runWithInput(t, good, "apply", "-f", "-"); r.code != 0 || r.out != "repository/good "+verb+"\n" {
			t.Errorf("exit %d, want %s: %s%s", r.code, verb, r.out, r.err)
		}
	}
	for _, args := range [][]string{
		{"get", "repository", "nope"}, {"delete", "repository", "nope"}, {"repo", "show", "nope"}, {"repo", "pull", "nope"},
		{"job", "show", "nope"}, {"job", "cancel", "nope"}, {"job", "watch", "nope"}, {"job", "retry", "nope"}, {"history", "show", "nope"},
	} {
		if r := h.run(t, args...); r.code != 1 || !strings.Contains(r.err, "nope") || !strings.Contains(r.err, "try:") {
			t.Errorf("%v: exit %d: %s", args, r.code, r.err)
		}
	}
	if r := h.run(t, "repo", "pull", "good", "--wait"); r.code != 1 || !strings.Contains(r.err, "limpet --daemon") {
		t.Errorf("waiting for an agent that does not run: exit %d: %s", r.code, r.err)
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
