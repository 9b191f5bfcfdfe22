package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// hostilePeak is what the agent may hold at most while hosts are hostile. Unit: KiB.
const hostilePeak = 256 << 10

// TestHostileHosts lets one agent pull from hosts that send bombs, damaged packs,
// names that lead elsewhere and pages of portals, all at once and over and over,
// while a repository of a good host is changed. Every one of them is refused in
// words, the good one goes on, and the process stays small.
func TestHostileHosts(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	const token = "canary-77aa-hostile"
	good, damaged := testenv.Repo(t, 2, 5), testenv.Repo(t, 5, 40)
	host := testenv.Git(t, testenv.GitOptions{})
	evil := testenv.Hostile(t, damaged.Dir)
	says := map[string]string{
		testenv.HostileBlob: "object of 1073741824 bytes exceeds the limit", testenv.HostileLie: "damaged pack", testenv.HostileDelta: "exceeds the limit",
		testenv.HostileDeltas: "exceeds the limit", testenv.HostileObjects: "number of objects", testenv.HostileTrees: "files and directories",
		testenv.HostileRefs: "list of refs", testenv.HostilePortal: "a web page", testenv.HostileElsewhere: "another host, localhost",
		testenv.HostileCut: "the connection ended too early", testenv.HostileFlipped: "damaged pack",
		testenv.HostileNames: "symbolic link",
	}
	h := newHome(t)
	for path := range says {
		h.file(t, "credentials/default."+strings.TrimSuffix(path, ".git")+"/token", token)
	}
	d := h.daemon(t, "--allow-insecure-git", "--credentials-dir", filepath.Join(h.dir, "credentials"), "--sink-prefix", h.dir, "--drivers", "3")
	create := func(name, url, path string) {
		h.must(t, 0, "repo", "create", name, "--url", url, "--branch", testenv.Branch, "--path", path, "--interval", "24h", "--sink-dir", filepath.Join(h.dir, "sinks", name))
	}
	create("good", host.Serve("good.git", good.Dir), testenv.Directory)
	for path := range says {
		dir := ""
		if path == testenv.HostileCut || path == testenv.HostileFlipped {
			dir = testenv.Directory
		}
		create(strings.TrimSuffix(path, ".git"), evil.URL+"/"+path, dir)
	}
	rounds := 1
	if suite.IsFull() {
		rounds = 20
	}
	pulls := 0
	for range rounds {
		var mu sync.Mutex // guards told
		told := map[string]result{}
		var wg sync.WaitGroup
		turns := make(chan struct{}, 4)
		for path := range says {
			wg.Go(func() {
				turns <- struct{}{}
				defer func() { <-turns }()
				patience := "60s"
				if path == testenv.HostileCut && !suite.IsFull() { // it is tried three times within half a minute
					patience = "4s"
				}
				r := result{err: "already exists"} // the pull that the agent itself begins
				for end := time.Now().Add(callTimeout); strings.Contains(r.err, "already exists") && time.Now().Before(end); {
					var err error
					if r, err = h.call(t, "", "repo", "pull", strings.TrimSuffix(path, ".git"), "--full", "--wait", "--timeout", patience)(); err != nil {
						t.Error(err)
						return
					}
				}
				mu.Lock()
				defer mu.Unlock()
				told[path] = r
			})
		}
		ended := make(chan struct{})
		go func() { defer close(ended); wg.Wait() }()
		for going := true; going; {
			good.Edit(t, good.Dashboards()[0].Path)
			began := time.Now()
			if r := h.run(t, "repo", "pull", "good", "--wait"); r.code != 0 && !strings.Contains(r.err, "already exists") {
				t.Fatalf("the good repository: exit %d: %s", r.code, r.err)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("a good repository took %s", took)
			}
			pulls++
			select {
			case <-ended:
				going = false
			default:
			}
		}
		for path, want := range says {
			r := told[path]
			text := r.out + r.err
			if r.code == 0 || !strings.Contains(text, want) {
				t.Errorf("%s: exit %d, want the words %q in: %s", path, r.code, want, text)
			}
			if path == testenv.HostileNames && strings.Count(text, "is not allowed") < 9 {
				t.Errorf("names that lead elsewhere: %s", text)
			}
			if strings.ContainsAny(text, "\x1b\u202e") {
				t.Errorf("%s: control characters: %q", path, text)
			}
		}
	}
	if strays := evil.Strays(); len(strays) > 0 {
		t.Errorf("the other host was asked: %q", strays)
	}
	if sink, err := os.ReadDir(filepath.Join(h.dir, "sinks", "names")); err != nil || !slices.ContainsFunc(sink, func(e os.DirEntry) bool { return e.Name() == "good.json" }) {
		t.Errorf("what is good among bad names was not pulled: %v %v", sink, err)
	}
	w := readWeight(t, d.cmd.Process.Pid)
	t.Logf("fault: %d rounds of %d hostile repositories, %d pulls of the good one meanwhile: %s", rounds, len(says), pulls, w)
	if w.peak > hostilePeak {
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

// TestSlowFetch: a host that sends its pack in drops is left after --git-timeout,
// and told; it is asked again later, and another one is pulled meanwhile.
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
	until(t, "what takes so long is told", func() bool {
		said := h.run(t, "job", "list", "-o", "json").out
		return strings.Contains(said, "it takes more than 2s, with ") && strings.Contains(said, "--git-timeout")
	})
	good := testenv.Repo(t, 1, 3)
	create("good", testenv.Git(t, testenv.GitOptions{}).Serve("good.git", good.Dir), testenv.Directory)
	until(t, "the good one is pulled", func() bool {
		return strings.Contains(h.run(t, "history", "list", "-o", "json").out, `"good"`)
	})
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// TestHostileWords: what looks like an option or a command is no URL and no branch.
func TestHostileWords(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	d := h.daemon(t)
	mark := filepath.Join(h.dir, "run")
	for _, url := range []string{"--upload-pack=touch " + mark, "ext::sh -c touch% " + mark, "/etc", "-oProxyCommand=touch " + mark, "ssh://-oProxyCommand=touch%20" + mark + "/x",
		"https://user:canary-url-password@git.example.com/x", "git://git.example.com/x", "https://git.example.com/x\x1b[2J"} {
		r := h.run(t, "repo", "create", "x", "--url="+url, "--branch", "main")
		if r.code == 0 || strings.Contains(r.out+r.err, "canary-url-password") || strings.Contains(r.err, "\x1b") {
			t.Errorf("%q: exit %d: %q", url, r.code, r.err)
		}
	}
	h.must(t, 0, "repo", "create", "local", "--url", "file:///etc", "--branch", "main", "--path", "")
	until(t, "a local path is no remote, and what makes it one is said", func() bool {
		return strings.Contains(h.run(t, "repo", "show", "local").out, "local paths are not allowed (use https or ssh, or start the agent with --local-git-prefix and a directory above it)")
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

// TestBadInput calls the binary with what people get wrong. Each call must end
// with its exit code, say what was wrong, and change nothing.
func TestBadInput(t *testing.T) {
	t.Parallel()
	portal := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "<html><title>Welcome to the hotel network</title></html>")
	}))
	t.Cleanup(portal.Close)
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
		{"CA that is none", append(server, "--tls-ca-file", notPEM, "get", "jobs"), "", 2, []string{"--tls-ca-file"}},
		{"certificate without a key", append(server, "--tls-cert-file", notPEM, "get", "jobs"), "", 2, []string{"--tls-key-file"}},
		{"CA and insecure", append(server, "--tls-ca-file", notPEM, "--tls-insecure", "get", "jobs"), "", 2, []string{"--tls-insecure"}},
		{"token twice", append(server, "--token", "a", "--token-file", "b", "get", "jobs"), "", 2, []string{"--token-file"}},
		{"server twice", append(server, "--kubeconfig", "x", "get", "jobs"), "", 2, []string{"--kubeconfig"}},
		{"server that is down", append(server, "get", "jobs"), "", 8, []string{"127.0.0.1:1"}},
		{"server that is no API", []string{"--provisioning-server-url", portal.URL, "get", "jobs"}, "", 6, []string{"try:"}},
		{"lease without margin", []string{"--daemon", "--claim-expiry", "20s", "--lease-renewal-interval", "10s"}, "", 2, []string{"expiry"}},
		{"fewer than no repositories", []string{"--daemon", "--max-repositories=-1"}, "", 2, []string{"--max-repositories", "no limit"}},
		{"fewer than no changes", []string{"--daemon", "--max-incremental-changes=-3"}, "", 2, []string{"--max-incremental-changes", "no limit"}},
		{"no drivers", []string{"--daemon", "--drivers", "-1"}, "", 2, []string{"drivers"}},
		{"bad selector", []string{"--daemon", "--repository-selector", "a=b=c"}, "", 2, []string{"--repository-selector"}},
		{"webhooks without a port", []string{"--daemon", "--webhook-listen", "localhost"}, "", 2, []string{"--webhook-listen"}},
		{"webhooks by way of a word", []string{"--daemon", "--webhook-listen", ":0", "--webhook-trusted-proxy", "proxy"}, "", 2, []string{"--webhook-trusted-proxy", "proxy"}},
		{"private networks by a word", []string{"--daemon", "--git-private-networks", "office"}, "", 2, []string{"--git-private-networks", "office", "10.1.0.0/16"}},
		{"fetches of less than no time", []string{"--daemon", "--git-timeout=-1s"}, "", 2, []string{"--git-timeout", "more than 0"}},
		{"webhook certificate without a key", []string{"--daemon", "--webhook-listen", ":0", "--webhook-cert-file", notPEM}, "", 2, []string{"--webhook-key-file"}},
		{"webhook certificate that is none", []string{"--daemon", "--webhook-listen", ":0", "--webhook-cert-file", notPEM, "--webhook-key-file", notPEM}, "", 2, []string{"--webhook-cert-file"}},
		{"manifests with a server", append(server, "--daemon", "--manifests", "/tmp"), "", 2, []string{"--manifests"}},
		{"apply nothing", []string{"apply", "-f", "-"}, "", 2, []string{"no objects"}},
		{"apply broken YAML", []string{"apply", "-f", "-"}, "a: [\n", 2, []string{"document 1"}},
		{"apply an unknown kind", []string{"apply", "-f", "-"}, "apiVersion: provisioning.grafana.app/v0alpha1\nkind: Repostory\nmetadata: {name: x}\n", 2, []string{"Repostory", "Repository"}},
		{"get an unknown kind", []string{"get", "repositoris"}, "", 2, []string{"repositories"}},
		{"time that is none", []string{"history", "list", "--since", "yesterday"}, "", 2, []string{"yesterday", "24h"}},
		{"window that is empty", []string{"history", "export", "--since", "24h", "--until", "7d"}, "", 2, []string{"--since 24h", "--until 7d", "try: limpet history list --since 7d --until 24h"}},
		{"end of a job that is none", []string{"history", "list", "--status", "failed"}, "", 2, []string{"--status", "cancelled", "dead"}},
		{"priority beyond", []string{"job", "create", "x", "--priority", "10"}, "", 2, []string{"from 0 to 9", "try: limpet job create x --priority 9"}},
		{"priority in words", []string{"job", "create", "x", "--priority", "high"}, "", 2, []string{`--priority is "high": it must be a number from 0 to 9`, "try: limpet job create x --priority 9"}},
		{"empty priority", []string{"job", "create", "x", "--priority="}, "", 2, []string{"from 0 to 9"}},
		{"prune what", []string{"history", "prune"}, "", 2, []string{"--older-than, --before or --keep is missing", "try: limpet history prune --older-than 7d"}},
		{"prune twice", []string{"history", "prune", "--keep", "1", "--before", "24h"}, "", 2, []string{"--keep", "--before"}},
		{"prune before", []string{"history", "prune", "--before", "yesterday"}, "", 2, []string{`--before "yesterday" is neither a duration`, "try: limpet history prune --before 24h"}},
		{"prune all but", []string{"history", "prune", "--keep", "few"}, "", 2, []string{`--keep is "few": it must be a number of records`, "try: limpet history prune --keep 1000"}},
		{"prune all but less than none", []string{"history", "prune", "--keep=-1"}, "", 2, []string{"0 or more"}},
		{"drain both ways", []string{"drain", "--wait", "--off"}, "", 2, []string{"--off", "--wait"}},
		{"size that is none", []string{"--daemon", "--history-max-bytes", "5kg"}, "", 2, []string{"5kg", "64MiB"}},
		{"retry of nothing", []string{"job", "retry", "nothing"}, "", 1, []string{"neither live nor finished", "try: limpet job list; limpet history list -o wide"}},
		{"negative age", []string{"history", "prune", "--older-than", "-1h"}, "", 2, []string{"--older-than"}},
		{"job options that are no JSON", []string{"job", "create", "x", "--spec", "{"}, "", 2, []string{"--spec"}},
		{"both depths", []string{"job", "create", "x", "--full", "--incremental"}, "", 2, []string{"--full"}},
		{"default token beyond loopback", []string{"api", "--listen", "0.0.0.0:0"}, "", 2, []string{"--listen", "--token-file"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := h.feed(t, tt.in, tt.args...)
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
	r := h.feed(t, good+"---\n"+bad, "apply", "-f", "-")
	if r.code != 1 || !strings.Contains(r.err, "spec.sync.target") || !strings.Contains(r.err, "document 2") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	if r := h.must(t, 0, "get", "repositories", "-o", "name"); r.out != "" {
		t.Errorf("half of the file was applied: %s", r.out)
	}
	for _, verb := range []string{"created", "unchanged"} {
		if r := h.feed(t, good, "apply", "-f", "-"); r.code != 0 || r.out != "repository/good "+verb+"\n" {
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

func TestStateFileTroubles(t *testing.T) {
	t.Parallel()
	t.Run("held by another process", func(t *testing.T) {
		t.Parallel()
		h := newHome(t)
		d := h.daemon(t)
		r := h.run(t, "--daemon")
		if r.code != 9 || !strings.Contains(r.err, fmt.Sprint(d.cmd.Process.Pid)) {
			t.Errorf("exit %d, want 9 and the pid %d: %s", r.code, d.cmd.Process.Pid, r.err)
		}
	})
	t.Run("damaged", func(t *testing.T) {
		t.Parallel()
		h := newHome(t)
		h.feed(t, "apiVersion: provisioning.grafana.app/v0alpha1\nkind: Repository\nmetadata: {name: a}\nspec: {title: A, type: git, git: {url: https://git.example.com/a.git}, sync: {enabled: false, target: folder}}\n", "apply", "-f", "-")
		data, err := os.ReadFile(h.state())
		if err != nil {
			t.Fatal(err)
		}
		for i := range data {
			data[i] ^= 0x5a
		}
		if err := os.WriteFile(h.state(), data, 0o600); err != nil {
			t.Fatal(err)
		}
		r := h.must(t, 0, "repo", "list")
		if !strings.Contains(r.err, "corrupt-") {
			t.Errorf("no word of the damage: %s", r.err)
		}
		kept, err := filepath.Glob(h.state() + ".corrupt-*")
		if err != nil || len(kept) != 1 {
			t.Errorf("kept files: %v, %v", kept, err)
		}
		d := h.daemon(t)
		if code := d.stop(t); code != 0 {
			t.Errorf("exit %d", code)
		}
	})
	t.Run("in a directory that cannot be made", func(t *testing.T) {
		t.Parallel()
		h := newHome(t)
		file := h.file(t, "plain", "")
		r := h.run(t, "--state", filepath.Join(file, "limpet.db"), "repo", "list")
		if r.code == 0 || !strings.Contains(r.err, "plain") {
			t.Errorf("exit %d: %s", r.code, r.err)
		}
	})
}

func TestRefusalsOfTheServer(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	server := testenv.Start(t, testenv.Options{Deny: []string{"list jobs *"}})
	h := newHome(t)
	base := []string{"--provisioning-server-url", server.URL, "--tls-ca-file", server.CAFile}
	t.Run("wrong token", func(t *testing.T) {
		r := h.run(t, append(base, "--token", "canary-wrong-token", "get", "jobs")...)
		if r.code != 3 || !strings.Contains(r.err, "--token") || strings.Contains(r.err, "canary-wrong-token") {
			t.Errorf("exit %d: %s", r.code, r.err)
		}
	})
	t.Run("wrong token at the exchange", func(t *testing.T) {
		r := h.run(t, append(base, "--token", "canary-wrong-token", "--token-exchange-url", server.SignURL, "get", "jobs")...)
		if r.code != 3 || !strings.Contains(r.err, "exchange") || strings.Contains(r.err, "canary-wrong-token") {
			t.Errorf("exit %d: %s", r.code, r.err)
		}
	})
	t.Run("forbidden", func(t *testing.T) {
		r := h.run(t, append(base, "--token", server.Token, "get", "jobs")...)
		if r.code != 3 || !strings.Contains(r.err, "--namespace") {
			t.Errorf("exit %d: %s", r.code, r.err)
		}
	})
	t.Run("unknown authority", func(t *testing.T) {
		r := h.run(t, "--provisioning-server-url", server.URL, "--tls-insecure=false", "--token", server.Token, "get", "jobs")
		if r.code != 8 || !strings.Contains(r.err, "--tls-ca-file") {
			t.Errorf("exit %d: %s", r.code, r.err)
		}
	})
}

// TestJobsThatCannotBeDone asks a running agent for what it cannot do.
func TestJobsThatCannotBeDone(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	host := testenv.Git(t, testenv.GitOptions{})
	full, empty := testenv.Repo(t, 2, 3), testenv.EmptyRepo(t)
	h := newHome(t)
	h.daemon(t, "--controllers", "off") // they would know, and ask for no pull
	last := func(name string) string {
		t.Helper()
		until(t, "a pull of "+name+" has ended", func() bool {
			for _, r := range h.history(t) {
				if r.Repository == name {
					return true
				}
			}
			return false
		})
		for _, r := range h.history(t) {
			if r.Repository == name {
				if r.State != "error" {
					t.Errorf("%s ended in %s", name, r.State)
				}
				return r.Message
			}
		}
		return ""
	}
	tests := []struct {
		name, dir string
		flags     []string
		says      []string
	}{
		{"no-branch", full.Dir, []string{"--branch", "mian"}, []string{"mian", "main"}},
		{"empty", empty.Dir, nil, []string{"empty"}},
		{"wrong-path", full.Dir, []string{"--path", "grafanna"}, []string{"grafanna", "grafana"}},
	}
	for _, tt := range tests {
		h.must(t, 0, append([]string{"repo", "create", tt.name, "--url", host.Serve(tt.name+".git", tt.dir)}, tt.flags...)...)
		h.must(t, 0, "repo", "pull", tt.name)
		message := last(tt.name)
		for _, word := range tt.says {
			if !strings.Contains(message, word) {
				t.Errorf("%s: no word of %q in %q", tt.name, word, message)
			}
		}
	}
	job := func(name, action, repository string) string {
		return fmt.Sprintf("apiVersion: provisioning.grafana.app/v0alpha1\nkind: Job\nmetadata: {name: %s, namespace: default}\nspec: {action: %s, repository: %s, pull: {incremental: false}}\n", name, action, repository)
	}
	t.Run("a job for a repository that does not exist", func(t *testing.T) {
		if r := h.feed(t, job("lost", "pull", "nowhere"), "apply", "-f", "-"); r.code != 0 {
			t.Fatalf("exit %d: %s", r.code, r.err)
		}
		if m := last("nowhere"); !strings.Contains(m, "nowhere") {
			t.Errorf("message %q", m)
		}
	})
	t.Run("an unknown action is refused by the server", func(t *testing.T) {
		if r := h.feed(t, job("odd", "dance", "empty"), "apply", "-f", "-"); r.code != 1 || !strings.Contains(r.err, "spec.action") {
			t.Errorf("exit %d: %s", r.code, r.err)
		}
	})
}
