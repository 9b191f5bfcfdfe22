package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"limpet/sync/testenv/suite"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/testenv"
)

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

// TestSelectorNarrowsTheWatch: an agent with a selector neither hears of the repositories of others
// nor asks about them or their jobs; one that gets the label later is served at once.
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
