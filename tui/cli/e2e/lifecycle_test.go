package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/failpoint"
	"limpet/sync/testenv"
	"limpet/sync/testenv/forgetest"
	"limpet/sync/testenv/suite"
)

var (
	boards  = schema.GroupVersionResource{Group: api.DashboardGroup, Version: "v1", Resource: "dashboards"}
	folders = schema.GroupVersionResource{Group: api.FolderGroup, Version: "v1", Resource: "folders"}
)

// lifecycle is one Repository on the API machinery, default/boards at a GitLab-like host in
// front of git http-backend, and the agent that manages it.
type lifecycle struct {
	*home
	t     *testing.T
	api   *testenv.Server
	user  *apiClient
	forge *forgetest.Host
	git   *testenv.GitServer
	repo  *testenv.Repository
	agent *daemon
	url   string // of the webhook listener
	mark  testenv.Mark
}

func newLifecycle(t *testing.T) *lifecycle {
	t.Helper()
	l := &lifecycle{home: newHome(t), t: t, api: testenv.Start(t, testenv.Options{Leases: true}), repo: testenv.Repo(t, 3, 5),
		forge: forgetest.New(t, forgetest.Options{TLS: true, Speaks: []string{"gitlab"}})}
	l.forge.Add("ops/boards", forgetest.Repository{DefaultBranch: testenv.Branch})
	l.forge.Token(gitToken, forgetest.Rights{Hooks: true})
	l.git = testenv.Git(t, testenv.GitOptions{User: "oauth2", Password: gitToken})
	l.git.Serve("ops/boards.git", l.repo.Dir)
	l.forge.Behind(l.git)
	l.file(t, "credentials/default.boards/token", gitToken)
	l.file(t, "credentials/default.boards/ca.crt", string(l.forge.CA))
	l.args = []string{"--provisioning-server-url", l.api.URL, "--tls-ca-file", l.api.CAFile, "--token-file",
		l.file(t, "token", l.api.TokenOf("agent-0")+"\n")}
	l.user = connectUser(t, l.api, "user", "default")
	l.agent = l.daemon(t, "--controllers", "on", "--credentials-dir", filepath.Join(l.dir, "credentials"), "--claim-expiry", "6s",
		"--lease-renewal-interval", "2s",
		"--webhook-listen", "127.0.0.1:0", "--webhook-url", "https://limpet.example.com")
	until(t, "webhooks are received", func() bool {
		found := listening.FindStringSubmatch(l.agent.log.String())
		if found != nil {
			l.url = "http://" + found[1]
		}
		return found != nil
	})
	l.mark = l.api.Mark(t)
	return l
}

// create creates the Repository as a user does on an API without defaults.
func (l *lifecycle) create() {
	l.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"title": "Boards", "type": "gitlab",
		"workflows": []any{"write"},
		"gitlab":    map[string]any{"url": l.forge.URL + "/ops/boards", "branch": testenv.Branch, "path": testenv.Directory},
		"sync":      map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(10)}}}}
	u.SetAPIVersion(api.Repositories.GroupVersion().String())
	u.SetKind("Repository")
	u.SetName("boards")
	u.SetFinalizers([]string{api.FinalizerRemove, api.FinalizerRemoveJobs, api.FinalizerCleanup})
	if _, err := l.user.Resource(api.Repositories).Namespace("default").Create(l.t.Context(), u, metav1.CreateOptions{}); err != nil {
		l.t.Fatal(err)
	}
}

// until waits for a state of the Repository and returns it.
func (l *lifecycle) until(what string, ok func(api.Repository) bool) (repo api.Repository) {
	l.t.Helper()
	until(l.t, what, func() bool {
		u, err := l.user.Resource(api.Repositories).Namespace("default").Get(l.t.Context(), "boards", metav1.GetOptions{})
		if err != nil {
			l.t.Fatal(err)
		}
		if repo, err = api.RepositoryView(u); err != nil {
			l.t.Fatal(err)
		}
		return ok(repo)
	})
	return repo
}

// awaitPull waits until a commit is synced and its job is gone.
func (l *lifecycle) awaitPull(commit string) api.Repository {
	l.t.Helper()
	repo := l.until("it is pulled", func(repo api.Repository) bool {
		return repo.Status.Sync.LastRef == commit && repo.Status.Sync.State == api.StateSuccess
	})
	until(l.t, "the job is gone", func() bool { return len(l.user.list(api.Jobs)) == 0 })
	return repo
}

// writes returns how often the agent wrote to Repositories, and the jobs that it created, since the
// last call.
func (l *lifecycle) writes() (repositories, jobs int) {
	l.t.Helper()
	for _, r := range l.api.Writes(l.t, l.mark) {
		_, rest, _ := strings.Cut(r.Path, "/namespaces/default/")
		switch {
		case r.User != "agent-0" || r.Code >= 300:
		case strings.HasPrefix(rest, "repositories/"):
			repositories++
		case rest == "jobs" && r.Method == http.MethodPost:
			jobs++
		}
	}
	l.mark = l.api.Mark(l.t)
	return repositories, jobs
}

// push delivers a push as GitLab does, with a secret.
func (l *lifecycle) push(secret, after string) (code int, answer string) {
	l.t.Helper()
	body := fmt.Appendf(nil, `{"object_kind":"push","ref":"refs/heads/%s","after":%q,"project":{"path_with_namespace":"ops/boards"},"total_commits_count":1,"commits":[{"id":%q,"added":[],"removed":[],"modified":["grafana/x.json"]}]}`, testenv.Branch, after, after)
	req, err := http.NewRequestWithContext(l.t.Context(), http.MethodPost, l.url+webhookPath, bytes.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Gitlab-Event", "Push Hook")
	req.Header.Set("X-Gitlab-Event-UUID", after)
	req.Header.Set("X-Gitlab-Token", secret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// TestRepositoryLifecycle follows a Repository through its creation, first pull, interval pulls, a
// push and its deletion, and counts the writes of the agent. Nothing is left on the API, at the
// host or in the state file.
func TestRepositoryLifecycle(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	l := newLifecycle(t)
	wrote := func(what string, repositories, jobs int) {
		t.Helper()
		if r, j := l.writes(); r > repositories || j != jobs {
			t.Errorf("%s: %d writes to Repositories, at most %d; %d jobs made, want %d", what, r, repositories, j, jobs)
		}
	}
	l.create()
	repo := l.awaitPull(l.repo.Head(t))
	wrote("created and pulled", 3, 1)
	if s := repo.Status; !s.Health.Healthy || s.ObservedGeneration != 1 || len(s.FieldErrors) > 0 {
		t.Errorf("status %+v", s)
	}
	hooks := l.forge.Hooks("ops/boards")
	if len(hooks) != 1 || hooks[0].URL != "https://limpet.example.com"+webhookPath {
		t.Fatalf("hooks %+v", hooks)
	}

	// Nothing new: the host is asked, nothing is written.
	l.git.Reset()
	checks := 0
	until(t, "the interval has come twice", func() bool { checks += l.git.Reset().InfoRefs; return checks >= 2 })
	wrote("nothing new", 0, 0)

	l.awaitPull(l.repo.Edit(t, l.repo.Dashboards()[1].Path))
	wrote("a new commit", 4, 1) // start, intent to write and end of the pull, and the controller's

	head := l.repo.Edit(t, l.repo.Dashboards()[2].Path)
	if code, answer := l.push(hooks[0].Secret, head); code != http.StatusAccepted {
		t.Errorf("push: %d %s", code, answer)
	}
	l.awaitPull(head)
	wrote("a push", 4, 1)

	if err := l.user.Resource(api.Repositories).Namespace("default").Delete(t.Context(), "boards", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "it is gone", func() bool { return len(l.user.list(api.Repositories)) == 0 })
	for _, kind := range []schema.GroupVersionResource{api.Jobs, boards, folders} {
		if left := l.user.list(kind); len(left) > 0 {
			t.Errorf("%d %s are left, such as %s", len(left), kind.Resource, left[0].GetName())
		}
	}
	if hooks := l.forge.Hooks("ops/boards"); len(hooks) > 0 {
		t.Errorf("hooks %+v are left", hooks)
	}
	if code := l.agent.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	l.verifyStateEmpty()
	l.noSecret(t, l.agent.log.String(), gitToken, hooks[0].Secret)
}

// verifyStateEmpty checks that the state file has nothing of the Repository.
func (l *lifecycle) verifyStateEmpty() {
	l.t.Helper()
	store, _, err := state.Open(l.t.Context(), state.Options{Path: l.state()})
	if err != nil {
		l.t.Fatal(err)
	}
	defer store.Close()
	claims, err := store.Claims(l.t.Context())
	if err != nil || len(claims) > 0 {
		l.t.Errorf("claims %+v, %v", claims, err)
	}
	facts, err := store.Facts(l.t.Context(), "")
	if err != nil {
		l.t.Fatal(err)
	}
	for key := range facts {
		if strings.Contains(key, "boards") && !strings.HasPrefix(key, "versions/") { // which is pruned each hour
			l.t.Errorf("fact %s is left", key)
		}
	}
	names, err := store.SecretNames(l.t.Context(), "")
	if err != nil {
		l.t.Fatal(err)
	}
	for _, name := range names {
		if strings.Contains(name, "boards") {
			l.t.Errorf("secret %s is left", name)
		}
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(l.state()), "mirrors")); err != nil {
		l.t.Error(err)
	}
}

// TestKilledWhileRequeueing: the agent dies after it has requeued the job of an agent that is gone.
func TestKilledWhileRequeueing(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	first, w := suite.Seed(t), newServers(t)
	m := newCrashAgent(t, w, "kill-requeued", first, few())
	kills := suite.Count(1, 10)
	for range kills {
		for _, name := range m.names() {
			m.edit(name)
			m.pull(name, map[string]string{api.LabelClaim: strconv.FormatInt(time.Now().Add(-time.Hour).UnixMilli(), 10),
				api.LabelClaimOwner: "somebody-gone"})
		}
		l := m.start(fmt.Sprintf("%s=kill@%d", failpoint.Requeued, 1+m.rng.IntN(len(m.sizes))))
		if !m.awaitEnd(l) {
			t.Fatal("not killed")
		}
	}
	m.finishJobs()
	m.verify()
}

// TestSecondAgentOnOneFile: an agent that finds its state file in use ends at once and
// names the process; a kill frees the file.
func TestSecondAgentOnOneFile(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	for range suite.Count(3, 20) {
		d := h.daemon(t)
		began := time.Now()
		r := h.must(t, exitStore, "--daemon")
		// One second is what people are promised; this machine may be busy.
		if took := time.Since(began); !strings.Contains(r.err, d.pid()) || took > 10*time.Second {
			t.Fatalf("after %s: %s", took, r.err)
		}
		d.kill()
	}
	h.must(t, 0, "store", "check")
}

// TestRestarts: an agent that is restarted all the time, in order or not, leaves no claim behind,
// does not make its file grow, and asks the API for no more than it needs.
func TestRestarts(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	first, w := suite.Seed(t), newServers(t)
	m := newCrashAgent(t, w, "restarts", first, few())
	m.ensureJobs(m.names()...)
	m.finishJobs()
	size := func() int64 {
		info, err := os.Stat(m.state())
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	before, since := size(), w.api.Mark(t)
	restarts := suite.Count(4, 100)
	for i := range restarts {
		m.ensureJobs(m.names()...)
		l := m.start("")
		signal := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[i%2]
		if m.rng.IntN(4) > 0 {
			m.awaitClaim(l)
		}
		timer := time.AfterFunc(time.Duration(m.rng.IntN(300))*time.Millisecond, func() { _ = l.cmd.Process.Signal(signal) })
		m.awaitEnd(l)
		timer.Stop()
	}
	lists := map[string]int{}
	for _, r := range w.api.Requests(t, since) {
		if dir, kind := filepath.Split(r.Path); r.Method == "GET" && !strings.Contains(r.Query, "watch=") && r.Agent != "user" &&
			strings.HasSuffix(dir, "/namespaces/"+m.namespace+"/") && (kind == "jobs" || kind == "repositories") {
			lists[kind]++
		}
	}
	for kind, n := range lists {
		if n > 3*restarts {
			t.Errorf("%d lists of %s for %d starts", n, kind, restarts)
		}
	}
	m.finishJobs()
	m.verify()
	grown := size() - before
	if grown >= 1<<20 {
		t.Errorf("the state file has grown by %d bytes", grown)
	}
	store, _, err := state.Open(context.Background(), state.Options{Path: m.state()})
	if err != nil {
		t.Fatal(err)
	}
	claims, err := store.Claims(context.Background())
	if err != nil || len(claims) != 0 {
		t.Errorf("%d claims are left, %v", len(claims), err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

// previous is the commit of the last release.
const previous = "2ec8c84"

// TestUpgradeInFlight: an agent of the last release is killed at its work, and
// one of this build goes on with the file that it finds. It needs the history of
// the checkout and a build of the old sources, so it is part of the long form.
func TestUpgradeInFlight(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	first, w := suite.Seed(t), newServers(t)
	dir := t.TempDir()
	old := filepath.Join(dir, "old", "limpet")
	build := exec.Command("sh", "-ec", `mkdir "$1/old"; git -C "$(go env GOMOD | xargs dirname)" archive "$2" | tar -x -C "$1/old"; cd "$1/old"; go build -o limpet .`, "sh", dir, previous)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rounds, taken := 3, 0
	for i := range rounds {
		m := newCrashAgent(t, w, fmt.Sprint("upgrade-", i), first+uint64(i), few())
		m.ensureJobs(m.names()...)
		l := m.startAs(old, "")
		until(t, "a job is at work", func() bool { return strings.Contains(m.log.String(), stepped("claimed")) })
		timer := time.AfterFunc(time.Duration(m.rng.IntN(150))*time.Millisecond, func() { _ = l.cmd.Process.Kill() })
		m.awaitEnd(l)
		timer.Stop()
		m.finishJobs()
		m.verify()
		taken += strings.Count(m.log.String(), stepped("resumed"))
	}
	if taken == 0 {
		t.Error("no claim of the old agent was left to take up")
	}
}

// TestSystemdCredentials: a daemon started with the command line of its unit reads config and
// token from $CREDENTIALS_DIRECTORY, which is read-only.
func TestSystemdCredentials(t *testing.T) {
	t.Parallel()
	var sent atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer handed-canary-token" {
			sent.Store(true)
		}
		http.Error(w, "later", http.StatusServiceUnavailable)
	}))
	t.Cleanup(server.Close)
	h := newHome(t)
	config := h.file(t, "etc/config.yaml",
		"drivers: 7\ngit-credentials:\n- url: https://git.example.com\n  values: {token: handed-canary-git}\n")
	token := h.file(t, "etc/token", "handed-canary-token\n")
	given, kept := filepath.Join(h.dir, "credentials"), filepath.Join(h.dir, "sd")
	h.env = without(h.env, "LIMPET_STATE")
	unit := h.must(t, 0, "service", "print", "--config", config, "--token-file", token, "--provisioning-server-url", server.URL).out
	_, line, _ := strings.Cut(unit, "\nExecStart=")
	line, _, _ = strings.Cut(line, "\n")
	// What systemd does with the unit.
	loaded := 0
	for text := range strings.Lines(unit) {
		rest, ok := strings.CutPrefix(text, "LoadCredential=")
		if !ok {
			continue
		}
		name, path, _ := strings.Cut(strings.TrimSpace(rest), ":")
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(h.file(t, "credentials/"+name, string(data)), 0o400); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil { // the user of the service may not look there
			t.Fatal(err)
		}
		loaded++
	}
	if err := os.Chmod(given, 0o500); err != nil || loaded != 2 {
		t.Fatalf("%v: %d files are handed over by\n%s", err, loaded, unit)
	}
	t.Cleanup(func() { os.Chmod(given, 0o700) })
	h.env = append(h.env, "CREDENTIALS_DIRECTORY="+given, "STATE_DIRECTORY="+kept)
	words := strings.Fields(strings.NewReplacer("${CREDENTIALS_DIRECTORY}", given, "${STATE_DIRECTORY}", kept).Replace(line))[1:]
	cmd, said := h.command(context.WithoutCancel(t.Context()), t, words...), &log{}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	until(t, "the token is sent", sent.Load)
	until(t, "the daemon says how many drivers it has", func() bool { return strings.Contains(said.String(), `"drivers":7`) })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || strings.Contains(said.String(), "canary") {
		t.Errorf("the daemon ends with %v\n%s", err, said)
	}
	if _, err := os.Stat(filepath.Join(kept, "limpet.db")); err != nil {
		t.Error(err)
	}
}
