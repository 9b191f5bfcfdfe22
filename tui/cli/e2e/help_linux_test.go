package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"limpet/sync/testenv"
	"limpet/sync/testenv/forgetest"
	"limpet/sync/testenv/nettest"
	"limpet/sync/testenv/suite"
	"limpet/tui/cli/help"
)

// helpEnv names the built program: this process has a mount and a network namespace of its own, so
// that the ports and the paths of the texts are free.
const helpEnv = "LIMPET_TEST_HELP"

// helpDenied is what that process says where it may not mount.
const helpDenied = "no namespaces"

// helpFast are the texts of the fast lane.
var helpFast = []string{"topic sinks", "topic notifications", "repo create", "repo validate", "config init", "service install", "history export"}

// helpNever are the lines that do not run here, and why.
var helpNever = map[string]string{
	"kubectl -n flux-system port-forward svc/source-controller 8080:80": "the cluster of the tests has no Flux: 'source get --via' runs",
	"limpet repo create site --url ssh://git@git.example.com/site.git --identity-file id_ed25519 --known-hosts known_hosts": "the Git " +
		"host of the tests speaks no ssh, which 'doctor' says",
	"limpet delete connection NAME --force": "in its text no Connection is there yet",
	"limpet manifests --controllers on --storage 1Gi | kubectl apply -f -": "the API machinery of the tests runs no " +
		"workloads: TestDeployment reads what is printed",
	"kubectl -n limpet logs deployment/limpet":                               "the same",
	"sudo mv /var/lib/limpet/limpet.db /var/lib/limpet/newer.db":             "no older release was here: TestUpgrade goes back",
	"sudo mv /var/lib/limpet/limpet.db.schema-1-* /var/lib/limpet/limpet.db": "the same",
	"ssh site-7 limpet relay":                                                "no host has that name: TestContexts has one",
}

// TestHelpLines runs each command line of the topics of help and of the examples of the commands as
// it is printed, on a site that has what they name: a daemon, a Git host, an API.
func TestHelpLines(t *testing.T) {
	program := os.Getenv(helpEnv)
	if program == "" {
		t.Parallel()
		cmd := tied(exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelpLines$", "-test.v", "-test.timeout=9m"))
		cmd.Env = append(os.Environ(), helpEnv+"="+limpetBinary(t))
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		out, err := cmd.CombinedOutput()
		switch denied := errors.Is(err, syscall.EPERM) || bytes.Contains(out, []byte(helpDenied)); {
		case denied && !suite.IsFull(): // 'make test' has to pass where containers must not mount
			t.Logf("no command line runs: %v\n%s", err, out)
		case err != nil:
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := helpHost(program); err != nil {
		t.Fatalf("%s: %v", helpDenied, err)
	}
	binary.once.Do(func() { binary.path = "/opt/limpet" })
	s := newHelpSite(t)
	seen := map[string]bool{}
	for _, text := range helpTexts(t) {
		for _, line := range text.lines {
			seen[line] = true
		}
		if suite.HasAll() || slices.Contains(helpFast, text.name) {
			t.Run(text.name, func(t *testing.T) { s.run(t, text) })
		}
	}
	for line := range helpNever {
		if !seen[line] {
			t.Errorf("no text has %q", line)
		}
	}
}

// helpHost makes the namespaces look like a host: loopback is up, and what the texts write to is
// empty memory.
func helpHost(program string) error {
	kept := map[string][]byte{}
	built, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	for _, name := range []string{"group", "nsswitch.conf", "manpath.config"} {
		kept[name], _ = os.ReadFile("/etc/" + name)
	}
	kept["passwd"] = []byte("root:x:0:0::/root:/bin/sh\ngrafana:x:0:0::/:/bin/sh\n")
	kept["hosts"] = []byte("127.0.0.1 localhost\n")
	for _, dir := range []string{"/etc", "/var/lib", "/run", "/opt", "/srv"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			return err
		}
	}
	for _, dir := range []string{"/etc/limpet/site", "/etc/bash_completion.d", "/etc/systemd/system", "/var/lib/grafana/dashboards",
		"/run/systemd/system", "/srv/boards"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	for name, data := range kept {
		if err := os.WriteFile("/etc/"+name, data, 0o644); err != nil {
			return err
		}
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err := errors.Join(err, os.WriteFile("/opt/limpet", built, 0o755),
		os.WriteFile("/opt/systemctl", []byte("#!/bin/sh\n"), 0o755),
		os.WriteFile("/opt/sudo", []byte("#!/bin/sh\nexec \"$@\"\n"), 0o755)); err != nil {
		return err
	}
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return errors.Join(unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo), unix.Close(fd))
}

// helpText is a topic, or the examples of a command.
type helpText struct {
	name  string
	lines []string
}

var (
	helpBlock = regexp.MustCompile("(?s)```(\\w*)\n(.*?)```")
	helpShort = regexp.MustCompile("`(limpet [^`]+|curl [^`]+|kubectl [^`]+)`|(limpet\\s+help\\s+[a-z-]+)")
)

// helpTexts returns the command lines of all texts, in the order in which they are read.
func helpTexts(t *testing.T) (texts []helpText) {
	t.Helper()
	for _, topic := range help.Topics() {
		text := helpText{name: "topic " + topic.Name}
		prose := helpBlock.ReplaceAllStringFunc(topic.Text, func(block string) string {
			m := helpBlock.FindStringSubmatch(block)
			if m[1] == "sh" {
				text.lines = append(text.lines, statements(m[2])...)
			} else if strings.Contains(m[2], "limpet --") || strings.Contains(m[2], "curl ") {
				t.Errorf("topic %s: a command in a block of %q, which does not run: %s", topic.Name, m[1], m[2])
			}
			return ""
		})
		for _, m := range helpShort.FindAllStringSubmatch(prose, -1) {
			if line := strings.Join(strings.Fields(m[1]+m[2]), " "); !slices.Contains(text.lines, line) {
				text.lines = append(text.lines, line)
			}
		}
		texts = append(texts, text)
	}
	examples, err := os.ReadFile("../help/examples.txt")
	if err != nil {
		t.Fatal(err)
	}
	for paragraph := range strings.SplitSeq(strings.TrimSpace(string(examples)), "\n\n") {
		name, lines, _ := strings.Cut(paragraph, "\n")
		texts = append(texts, helpText{name, strings.Split(lines, "\n")})
	}
	return texts
}

// statements splits a block of shell at the ends of its commands.
func statements(block string) (out []string) {
	all := ""
	for line := range strings.Lines(block) {
		all += line
		if !strings.HasSuffix(line, "\\\n") && strings.Count(all, "'")%2 == 0 {
			out, all = append(out, strings.TrimSpace(all)), ""
		}
	}
	return out
}

// helpSite is the host on which the lines run.
type helpSite struct {
	*home
	t       *testing.T // of the site: a text has its own
	repo    *testenv.Repository
	commit  string // that 'repo rollback' goes back to
	changed bool   // since its last reset
}

// helpWorld are the objects that the texts name.
const helpWorld = `---
apiVersion: provisioning.grafana.app/v0alpha1
kind: Connection
metadata: {name: github, namespace: default}
spec: {title: Git host, type: gitlab, url: "https://git.example.com"}
secure: {token: {create: ` + gitToken + `}}
---
apiVersion: provisioning.grafana.app/v0alpha1
kind: Repository
metadata: {name: team, namespace: default}
spec:
  title: Team
  type: git
  workflows: [write, branch]
  git: {url: "https://git.example.com/team.git", branch: main, path: grafana/}
  sync: {enabled: true, target: folder, intervalSeconds: 3600}
secure: {token: {create: ` + gitToken + `}}
`

// newHelpSite starts what the lines ask: a Git host as git.example.com, a server of artifacts, systemd, a cluster.
func newHelpSite(t *testing.T) *helpSite {
	t.Helper()
	repo := testenv.Repo(t, 3, 6)
	repo.Git(t, "config", "http.receivepack", "true")
	var files []testenv.Change
	for _, name := range []string{"old/cpu", "net/core", "attic/y", "attic/z", "a/x"} {
		files = append(files, testenv.Change{Path: "grafana/" + name + ".json",
			Data: fmt.Appendf(nil, `{"uid":%q,"title":%[1]q,"tags":[],"panels":[],"schemaVersion":41}`, filepath.Base(name))})
	}
	repo.Commit(t, "files", files...)
	repo.Git(t, "tag", "v1.2.3", testenv.Branch)
	git, forge := testenv.Git(t, testenv.GitOptions{}), forgetest.New(t, forgetest.Options{TLS: true, Speaks: []string{"gitlab"}})
	for _, name := range []string{"team", "site", "apps", "fleet"} {
		git.Serve(name+".git", repo.Dir)
	}
	forge.Behind(git)
	forge.Token(gitToken, forgetest.Rights{Hooks: true})
	proxy := nettest.Start(t, nettest.Options{Names: map[string]string{"git.example.com:443": strings.TrimPrefix(forge.URL, "https://")}})
	served := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "127.0.0.1:9090"}) // of the daemon
	artifacts := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/gitrepository/") { // as a forwarded port
			served.ServeHTTP(w, r)
		}
	}))
	var err error
	if artifacts.Listener, err = net.Listen("tcp", "127.0.0.1:8080"); err != nil {
		t.Fatal(err)
	}
	artifacts.Start()
	t.Cleanup(artifacts.Close)

	s := &helpSite{home: newHome(t), t: t, repo: repo}
	s.env = []string{"HOME=" + s.dir, "PATH=/opt:" + os.Getenv("PATH"), "LANG=C.UTF-8", "TERM=dumb",
		"STATE_DIRECTORY=" + filepath.Dir(s.state()), "HTTPS_PROXY=http://" + proxy.Addr,
		"NO_PROXY=localhost,127.0.0.1", "SSL_CERT_FILE=" + forge.CAFile, "FPATH=" + s.dir}
	if suite.HasAll() {
		server := testenv.Start(t, testenv.Options{})
		s.env = append(s.env, "KUBECONFIG="+s.file(t, "kubeconfig", fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: x, "+
			"clusters: [{name: x, cluster: {server: %q, certificate-authority: %q}}], users: [{name: x, user: {token: %s}}], "+
			"contexts: [{name: x, context: {cluster: x, user: x}}]}", server.URL, server.CAFile, server.Token)))
	}
	s.file(t, "token.txt", testenv.SignToken)
	for _, dir := range []string{"grafana", "DIR"} {
		s.file(t, filepath.Join(dir, "cpu.json"), `{"uid":"cpu","title":"CPU","tags":[],"panels":[],"schemaVersion":41}`)
	}
	s.file(t, "team.yaml", helpWorld)
	s.file(t, "site.yaml", strings.ReplaceAll(helpWorld, "team", "site"))
	s.file(t, "apps.yaml", sourceYAML("apps", "https://git.example.com/apps.git", "ref: {branch: main}"))
	if err := os.WriteFile("/etc/limpet/site/team.yaml", []byte(helpWorld), 0o600); err != nil {
		t.Fatal(err)
	}
	s.daemon(t, "--artifact-listen", "127.0.0.1:9090", "--notify", artifacts.URL+"/hook", "--sink-prefix", "/var/lib/grafana/dashboards",
		"--local-prefix", "/srv", "--local-git-prefix", "/srv")
	s.reset(t)
	return s
}

var (
	helpServes  = regexp.MustCompile(`^limpet (--daemon|api|demo$|status --watch|logs -f)`) // lines that run until they are stopped
	helpReady   = regexp.MustCompile(`agent started|API on|success|^\d{4}-|\d\d:\d\d:\d\d`) // what they print when they serve
	helpChanges = regexp.MustCompile(`create|delete|drain|suspend|retry|cancel|apply|prune`)
	helpNames   = strings.NewReplacer("source show NAME", "source show apps", "source test NAME", "source test apps",
		"source reconcile NAME",
		"source reconcile apps", "source suspend NAME", "source suspend apps", "source get NAME", "source get apps",
		"source diff NAME", "source diff apps", "source resume NAME", "source resume apps", "NAME", "team", "JOB",
		"team-sync", "FILE", "team.yaml", "~/.local/state/limpet/", "state/",
		"limpet edit", "EDITOR=true limpet edit --yes")
	helpValue = regexp.MustCompile(`^([A-Z]+)=`)
	// helpAlone are the texts that start what their other lines ask.
	helpAlone = []string{"topic air-gap", "topic api", "topic concepts", "topic kinds", "topic sinks"}
)

// run runs the lines of a text.
func (s *helpSite) run(t *testing.T, text helpText) {
	h, alone := *s.home, slices.Contains(helpAlone, text.name)
	h.env = slices.Clone(h.env)
	if alone {
		h.env = append(h.env, "STATE_DIRECTORY="+t.TempDir())
	} else if s.changed {
		s.reset(t)
	}
	for _, line := range text.lines {
		if helpNever[line] != "" {
			continue
		}
		if !alone {
			s.prepare(t, line)
		}
		line = strings.ReplaceAll(helpNames.Replace(line), "3f2a91c", s.commit)
		if helpServes.MatchString(line) {
			h.serve(t, line, alone)
			continue
		}
		name := helpValue.FindStringSubmatch(line)
		if name != nil {
			line += "\nprintf %s \"$" + name[1] + `"`
		}
		r := h.shell(t, line)
		if r.code != 0 || strings.Contains(r.out, `"status":"Failure"`) {
			t.Errorf("%s\nexit %d\n%s%s", line, r.code, tail(r.out, 3_000), r.err)
		}
		if name != nil {
			h.env = append(h.env, name[1]+"="+r.out)
		}
	}
}

// serve runs a line that does not end until it serves, or to the end of the test.
func (h *home) serve(t *testing.T, line string, stays bool) {
	t.Helper()
	out := &log{}
	cmd := tied(exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", "exec "+line))
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = h.env, h.dir, out, out
	if !stays && !strings.HasPrefix(line, "limpet status") && !strings.HasPrefix(line, "limpet logs") {
		cmd.Env = append(slices.Clone(h.env), "STATE_DIRECTORY="+t.TempDir())
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); cmd.Wait() }()
	stop := func() {
		cmd.Process.Signal(os.Interrupt)
		if <-ended; cmd.ProcessState.ExitCode() != 0 && cmd.ProcessState.ExitCode() != exitCancelled {
			t.Errorf("%s\nends with %s\n%s", line, cmd.ProcessState, out)
		}
	}
	t.Cleanup(func() { cmd.Process.Kill(); <-ended })
	within(t, 30*time.Second, line, func() bool {
		select {
		case <-ended:
			t.Fatalf("%s\nends by itself: %s", line, out)
		default:
		}
		return helpReady.MatchString(out.String())
	})
	if stays {
		t.Cleanup(stop)
	} else {
		stop()
	}
}

// reset gives the site the objects and the job that the texts name.
func (s *helpSite) reset(t *testing.T) {
	t.Helper()
	s.must(t, 0, "drain", "--off")
	s.changed = false
	for _, name := range []string{"team", "site", "fixed", "boards"} {
		s.home.run(t, "delete", "repository", name, "--yes")
		s.gone(t, name)
	}
	for _, name := range []string{"ocirepository/team", "helmchart/web", "helmrepository/charts", "bucket/team"} {
		kind, name, _ := strings.Cut(name, "/")
		s.home.run(t, "delete", kind, name, "--yes")
	}
	for _, name := range []string{"limpet.yaml", "copy.db", "newer.db", "jobs.jsonl", "apps.tar.gz", ".config/limpet/config.yaml"} {
		os.Remove(filepath.Join(s.dir, name))
	}
	s.must(t, 0, "apply", "-f", "team.yaml")
	s.must(t, 0, "apply", "-f", "apps.yaml")
	s.must(t, 0, "source", "resume", "apps")
	s.must(t, 0, "source", "reconcile", "apps", "--wait")
	s.must(t, 0, "repo", "pull", "team", "--wait")
}

// gone waits until the finalizers of a repository that was deleted have ended.
func (s *helpSite) gone(t *testing.T, name string) {
	t.Helper()
	until(t, name+" is gone", func() bool { return s.home.run(t, "repo", "show", name).code != 0 })
}

// prepare brings the site into the state that a line is for.
func (s *helpSite) prepare(t *testing.T, line string) {
	t.Helper()
	s.changed = s.changed || helpChanges.MatchString(line)
	switch {
	case strings.HasPrefix(line, "limpet repo create team"):
		s.must(t, 0, "delete", "repository", "team", "--yes")
		s.gone(t, "team")
	case strings.HasPrefix(line, "limpet delete job"):
		s.gone(t, "team") // the line before has deleted it
		fallthrough
	case strings.HasPrefix(line, "limpet job cancel"):
		s.must(t, 0, "drain") // before the first pull
		s.must(t, 0, "apply", "-f", "team.yaml")
		s.home.run(t, "repo", "pull", "team") // unless the first pull is there already
	case line == "limpet repo set team --unpin":
		s.must(t, 0, "repo", "rollback", "team", s.repo.Head(t))
	case strings.HasPrefix(line, "limpet repo rollback"):
		s.home.run(t, "repo", "set", "team", "--unpin")
		s.commit = s.repo.Head(t)
		s.repo.Edit(t, s.repo.Dashboards()[0].Path)
		s.must(t, 0, "repo", "pull", "team", "--wait")
	case strings.Contains(line, "Dashboard/"):
		_, name, _ := strings.Cut(line, "Dashboard/")
		name, _, _ = strings.Cut(name, " ")
		s.runWithInput(t, fmt.Sprintf(`{"apiVersion":"dashboard.grafana.app/v1","kind":"Dashboard","metadata":{"name":%q},"spec":{"title":%[1]q}}`,
			name), "apply", "-f", "-")
	case strings.Contains(line, " carried"):
		s.must(t, 0, "repo", "export", "team", "--file", "team.bundle")
		s.must(t, 0, "apply", "-f", s.file(t, "carried.yaml", sourceYAML("carried", "bundle:///srv/carried", "ref: {branch: main}")))
		s.home.run(t, "repo", "create", "carried", "--url", "bundle:///srv/carried", "--sink-dir",
			"/var/lib/grafana/dashboards/carried") // the objects are those of team
		err := errors.Join(os.MkdirAll("/srv/carried", 0o700), os.WriteFile("/srv/carried/x.bundle", read(t, filepath.Join(s.dir, "team.bundle")), 0o600))
		if err != nil {
			t.Fatal(err)
		}
		s.must(t, 0, "repo", "pull", "carried", "--wait")
		s.must(t, 0, "source", "reconcile", "carried", "--wait")
	case strings.HasPrefix(line, "limpet source diff"), strings.Contains(line, "--revision 3f2a91c"):
		s.commit = s.repo.Head(t)
		s.must(t, 0, "source", "reconcile", "apps", "--wait")
		s.repo.Edit(t, s.repo.Dashboards()[0].Path)
		s.must(t, 0, "source", "reconcile", "apps", "--wait")
	case strings.HasPrefix(line, "limpet source"):
		s.must(t, 0, "apply", "-f", "apps.yaml")
		s.must(t, 0, "source", "resume", "apps")
		s.must(t, 0, "source", "reconcile", "apps", "--wait")
	case strings.HasPrefix(line, "limpet job diff"):
		s.repo.Commit(t, "cpu", testenv.Change{Path: "grafana/site/cpu.json",
			Data: []byte(`{"uid":"site-cpu","title":"` + time.Now().String() + `","tags":[],"panels":[],"schemaVersion":41}`)})
		s.must(t, 0, "repo", "pull", "team", "--wait")
	case strings.HasPrefix(line, "limpet fleet"):
		s.changed = true // by the config file
		s.file(t, ".config/limpet/config.yaml", "contexts:\n- name: site-1\n  state: "+s.state()+"\n")
	case strings.Contains(line, "newer.db"):
		s.must(t, 0, "store", "backup", "newer.db")
	case line == "limpet config validate limpet.yaml":
		s.home.run(t, "config", "init", "limpet.yaml")
	}
}
