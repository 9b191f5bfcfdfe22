package cli_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"limpet/sync/snapshot"
	"limpet/sync/testenv"
)

// TestResultWaitsForTheRealAPI: the work is done, the API takes no result, then
// does not answer at all, then the power goes. Every screen says so all the time,
// and the result is sent once when the API is back.
func TestResultWaitsForTheRealAPI(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, testenv.Options{})
	way := server.Proxy(t, "agent", server.URL)
	h := newHome(t)
	h.args = []string{"--provisioning-server-url", way.URL, "--tls-ca-file", server.CAFile, "--token-file", h.file(t, "token", server.TokenOf("agent"))}
	d := h.daemon(t)
	server.Break(t, testenv.Fault{Method: http.MethodDelete, Path: "/jobs/", Status: http.StatusServiceUnavailable})
	h.must(t, 0, "repo", "create", "boards", "--url", testenv.Git(t, testenv.GitOptions{}).Serve("boards.git", testenv.Repo(t, 1, 3).Dir), "--branch", testenv.Branch, "--path", testenv.Directory)
	h.must(t, 0, "repo", "pull", "boards", "--full")
	says := func(what string, args ...string) func() bool {
		return func() bool { r := h.run(t, args...); return strings.Contains(r.out+r.err, what) }
	}
	unsent := func() bool {
		var rep struct{ Live *snapshot.Snapshot }
		r := h.run(t, "status", "-o", "json")
		if err := json.Unmarshal([]byte(r.out), &rep); err != nil || rep.Live == nil || len(rep.Live.Jobs) != 1 {
			return false
		}
		j := rep.Live.Jobs[0]
		return !j.Unsent.IsZero() && j.State == "success" && rep.Live.Counts.Unsent == 1 && rep.Live.Counts.All() == 1
	}
	until(t, "the list of jobs says what waits", says("success, done, waiting for the API", "job", "list"))
	until(t, "the status says so", says("boards-sync: success, done, waiting for the API", "status"))
	until(t, "the picture says so", unsent)

	way.Down(t)
	until(t, "the list of jobs is what the daemon knows", func() bool {
		r := h.run(t, "job", "list")
		return r.code == 8 && strings.Contains(r.out, "done, waiting for the API") && strings.Contains(r.err, "shown is what the daemon knows, as of")
	})
	if r := h.run(t, "job", "list", "-o", "json"); r.code != 8 || r.out != "" {
		t.Errorf("an old list was printed as if it were the present one: exit %d %s", r.code, r.out)
	}

	d.kill()
	if n := claimsOf(t, h); n != 1 {
		t.Errorf("%d claims in the state file", n)
	}
	next := h.command(context.WithoutCancel(t.Context()), t, "--daemon", "--log-format", "json")
	if err := next.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { next.Process.Kill(); next.Wait() })
	until(t, "the next process knows of it", unsent)

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
