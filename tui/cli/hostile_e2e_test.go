package cli_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"limpet/sync/testenv"
)

// hostilePeak is what the agent may hold at most while hosts are hostile. Unit: KiB.
const hostilePeak = 256 << 10

// TestHostileHosts lets one agent pull from hosts that send bombs, damaged packs,
// names that lead elsewhere and pages of portals, all at once and over and over,
// while a repository of a good host is changed. Every one of them is refused in
// words, the good one goes on, and the process stays small.
func TestHostileHosts(t *testing.T) {
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
	if *long {
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
				if path == testenv.HostileCut && !*long { // it is tried three times within half a minute
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
