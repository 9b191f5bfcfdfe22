package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"limpet/sync/testenv/suite"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/testenv"
)

// TestWritesOfASite: files are deleted and moved from the command line, at the remote and
// in the API, on a site where every commit has to be signed.
func TestWritesOfASite(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	repo := testenv.EmptyRepo(t)
	repo.Git(t, "config", "http.receivepack", "true")
	board := func(name string) []byte {
		return []byte(`{"uid":"` + name + `","title":"` + name + `","tags":[],"panels":[],"schemaVersion":41}`)
	}
	repo.Commit(t, "first", testenv.Change{Path: "x.json", Data: board("x")}, testenv.Change{Path: "y.json", Data: board("y")},
		testenv.Change{Path: "a/z.json", Data: board("z")})
	signer, public := sshSigner(t)
	signHead(t, repo, signer)
	host := testenv.Git(t, testenv.GitOptions{User: "git", Password: gitToken})
	url := host.Serve("boards.git", repo.Dir)
	h := newHome(t)
	key, err := os.ReadFile(strings.TrimPrefix(signer[3], "user.signingKey="))
	if err != nil {
		t.Fatal(err)
	}
	h.file(t, "credentials/default.site/commitSigningKey", string(key))
	h.file(t, "credentials/default.site/a.sshpub", public)
	d := h.daemon(t, "--allow-insecure-git", "--credentials-dir", filepath.Join(h.dir, "credentials"))
	site := h.runWithInput(t, `apiVersion: provisioning.grafana.app/v0alpha1
kind: Repository
metadata: {name: site, namespace: default, annotations: {limpet/git-verify: HEAD}}
spec:
  title: Site
  type: git
  workflows: [write, branch]
  git: {url: "`+url+`", branch: main}
  sync: {enabled: true, target: folder, intervalSeconds: 3600}
secure: {token: {create: "`+gitToken+`"}}
`, "apply", "-f", "-")
	if site.code != 0 {
		t.Fatalf("%+v", site)
	}
	objects := func() string {
		return strings.Join(strings.Fields(h.must(t, 0, "get", "dashboards", "-o", "name").out), " ")
	}
	until(t, "the first pull", func() bool { return len(strings.Fields(objects())) == 3 })

	h.must(t, 2, "job", "create", "site", "--action", "delete")
	h.must(t, 2, "job", "create", "site", "--action", "move", "--path", "y.json", "--target-path", "b")
	h.must(t, 2, "job", "create", "site", "--path", "y.json")
	h.must(t, 2, "job", "create", "site", "--action", "delete", "--path", "../y.json")

	h.must(t, 0, "job", "create", "site", "--action", "delete", "--path", "x.json", "--message", "Away with x", "--wait")
	if got := repo.Git(t, "ls-tree", "-r", "--name-only", "main"); got != "a/z.json\ny.json" {
		t.Errorf("files\n%s", got)
	}
	if got := objects(); strings.Contains(got, "/x") || len(strings.Fields(got)) != 2 {
		t.Errorf("objects %s", got)
	}
	if got := repo.Git(t, "log", "-1", "--format=%s|%an <%ae>", "main"); got != "Away with x|Grafana <noreply@grafana.com>" {
		t.Errorf("commit %s", got)
	}
	allowed := h.file(t, "allowed_signers", "noreply@grafana.com "+public)
	repo.Git(t, "-c", "gpg.ssh.allowedSignersFile="+allowed, "verify-commit", "main")
	h.must(t, 0, "job", "create", "site", "--action", "move", "--path", "y.json", "--target-path", "b/c/", "--wait")
	h.must(t, 0, "job", "create", "site", "--action", "delete", "--path", "a/", "--ref", "edit/a", "--wait")
	if got := repo.Git(t, "ls-tree", "-r", "--name-only", "main") + "|" + repo.Git(t, "ls-tree", "-r", "--name-only",
		"edit/a"); got != "a/z.json\nb/c/y.json|b/c/y.json" {
		t.Errorf("files\n%s", got)
	}
	if got := objects(); len(strings.Fields(got)) != 2 {
		t.Errorf("objects %s", got)
	}
	h.must(t, 1, "job", "create", "site", "--action", "delete", "--path", "x.json", "--wait") // it is gone
	repo.Git(t, "-c", "gpg.ssh.allowedSignersFile="+allowed, "verify-commit", "main", "edit/a")
	repo.Git(t, "fsck", "--full", "--strict")
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	h.noSecret(t, d.log.String(), gitToken, strings.Split(string(key), "\n")[1])
}

// TestResultWaitsForTheAPI: the work is done, the API takes no result, then does not
// answer at all, then the power goes. The result is sent once when the API is back.
func TestResultWaitsForTheAPI(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	server := testenv.Start(t, testenv.Options{})
	way := server.Proxy(t, "agent", server.URL)
	h := newHome(t)
	h.args = []string{"--provisioning-server-url", way.URL, "--tls-ca-file", server.CAFile, "--token-file",
		h.file(t, "token", server.TokenOf("agent"))}
	d := h.daemon(t)
	server.Break(t, testenv.Fault{Method: http.MethodDelete, Path: "/jobs/", Status: http.StatusServiceUnavailable})
	h.must(t, 0, "repo", "create", "boards", "--url", testenv.Git(t, testenv.GitOptions{}).Serve("boards.git", testenv.Repo(t, 1, 3).Dir),
		"--branch", testenv.Branch, "--path", testenv.Directory)
	h.must(t, 0, "repo", "pull", "boards", "--full")
	// ended reports whether the daemon shows the job as done and undelivered.
	ended := func() bool {
		var status struct {
			Live *struct{ Jobs []struct{ State string } }
		}
		r := h.run(t, "status", "-o", "json")
		return json.Unmarshal([]byte(r.out), &status) == nil && status.Live != nil && len(status.Live.Jobs) == 1 &&
			status.Live.Jobs[0].State == "success"
	}
	until(t, "the daemon shows the result", ended)

	way.Down(t)
	until(t, "the API is away", func() bool { return h.run(t, "job", "list").code == exitUnreachable })

	d.kill()
	if n := claimsOf(t, h); n != 1 {
		t.Errorf("%d claims in the state file", n)
	}
	next := h.command(context.WithoutCancel(t.Context()), t, "--daemon", "--log-format", "json")
	if err := next.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { next.Process.Kill(); next.Wait() })
	until(t, "the next process knows of it", ended)

	way.Set(t)
	server.Break(t)
	until(t, "the result is sent", func() bool {
		r := h.run(t, "job", "list", "-o", "name")
		return r.code == 0 && r.out == "" && claimsOf(t, h) == 0
	})
	if got := h.history(t); len(got) != 1 || got[0].State != "success" || got[0].HistoricJob != "posted" || len(got[0].Attempts) != 1 {
		t.Errorf("history %+v", got)
	}
	if out := h.must(t, 0, "get", "historicjobs", "-o", "name").out; strings.Count(out, "\n") != 1 {
		t.Errorf("HistoricJobs: %s", out)
	}
}

// TestSelectorNarrowsTheWatch: an agent with a selector neither hears of the repositories of others nor asks about
// them or their jobs; one that gets the label later is served at once.
func TestSelectorNarrowsTheWatch(t *testing.T) {
	suite.Full(t)
	server := testenv.Start(t, testenv.Options{})
	y, flags := realWorkload(t, server)
	y.repositories(2)
	repos := y.client.Resource(api.Repositories).Namespace("default")
	label := func(name, site string) {
		t.Helper()
		u, err := repos.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		u.SetLabels(map[string]string{"site": site})
		if _, err := repos.Update(t.Context(), u, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	label("r0000", "east")
	label("r0001", "west")
	h := newHome(t, flags...)
	h.daemon(t, "--repository-selector", "site=east")
	s := y.watchJobs()
	east, west := y.jobOf(0), y.jobOf(1)
	for _, u := range []*unstructured.Unstructured{west, east} {
		if _, err := y.jobs().Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if ended := <-s.deleted; ended != east.GetName() {
		t.Fatalf("%s ended first", ended)
	}
	for _, r := range server.Requests(t, 0) {
		if strings.HasPrefix(r.Agent, "limpet") && (strings.Contains(r.Path, "r0001") || strings.Contains(r.Path, west.GetName())) {
			t.Errorf("the agent asked: %s", r)
		}
	}
	began := time.Now()
	label("r0001", "east")
	y.await("the job of the repository that came", s.deleted, 1)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s, as long as the periodic look", took)
	}
}

// jobOf is a no-op job of one repository.
func (y *workload) jobOf(repo int) *unstructured.Unstructured {
	for {
		u := y.job()
		if int(y.posted.Load())%y.repositoryCount == repo {
			return u
		}
	}
}
