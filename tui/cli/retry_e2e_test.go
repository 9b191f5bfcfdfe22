package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
)

// TestRetryOfARunningJob is refused, and changes nothing.
func TestRetryOfARunningJob(t *testing.T) {
	t.Parallel()
	h, _ := working(t)
	r := h.must(t, 1, "job", "retry", "slow-sync")
	if r.out != "" || !strings.Contains(r.err, `job "slow-sync" runs now`) || !strings.Contains(r.err, "limpet job watch slow-sync") {
		t.Errorf("%s%s", r.out, r.err)
	}
	if out := h.run(t, "job", "list", "-o", "name").out; out != "job/slow-sync\n" {
		t.Errorf("jobs: %s", out)
	}
}

// TestDrainWhileAJobRuns: the job goes on, the wait lasts as long, readiness and
// the list of results say so, and a second signal undoes nothing.
func TestDrainWhileAJobRuns(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	d := h.daemon(t, "--controllers", "off")
	answer := make(chan struct{})
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-answer:
		case <-r.Context().Done():
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(host.Close)
	h.must(t, 0, "repo", "create", "slow", "--url", host.URL+"/slow.git")
	h.must(t, 0, "repo", "pull", "slow")
	until(t, "the job is claimed", func() bool { return strings.Contains(h.run(t, "job", "list").out, "working") })
	for range 2 {
		if err := d.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the agent drains", func() bool { return strings.Contains(h.run(t, "status").out, "draining for") })
	h.must(t, 0, "repo", "create", "later", "--url", host.URL+"/later.git", "--disabled")
	h.must(t, 0, "repo", "pull", "later")
	waited := h.aside(t, "drain", "--wait", "-o", "json")
	if r := h.run(t, "drain", "--wait", "--timeout", "1s"); r.code != 10 {
		t.Errorf("a wait that is too short: exit %d %s", r.code, r.err)
	}
	close(answer)
	r := waited()
	var out struct{ Busy int }
	if err := json.Unmarshal([]byte(r.out), &out); err != nil || r.code != 0 || out.Busy != 0 || !strings.Contains(r.err, "1 job to go") {
		t.Errorf("exit %d: %s%s", r.code, r.out, r.err)
	}
	if got := h.history(t); len(got) != 1 || got[0].Repository != "slow" || got[0].State != "error" {
		t.Errorf("history %+v", got)
	}
	if list := h.must(t, 0, "job", "list").out; !strings.Contains(list, "later-sync") || strings.Contains(list, "working") {
		t.Errorf("jobs: %s", list)
	}
	if log := d.log.String(); strings.Count(log, "draining: nothing new is claimed") != 1 || !strings.Contains(log, "drained: nothing of this agent runs any more") {
		t.Errorf("log: %s", log)
	}
	if err := d.cmd.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	until(t, "what came meanwhile is run", func() bool { return len(h.history(t)) == 2 })
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// TestDashboardRetriesAndCancels: r ends the rest of a job and runs a dead one
// again, x deletes a job that an agent which drains would never look at.
func TestDashboardRetriesAndCancels(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.daemon(t, "--controllers", "off", "--max-attempts", "2")
	tt := h.terminal(t)
	tt.shows(t, "attached to daemon")
	if r := h.feed(t, `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Repository","metadata":{"name":"away","namespace":"default"},
		"spec":{"title":"away","type":"git","git":{"url":"http://127.0.0.1:1/away.git"},"sync":{"enabled":true,"target":"folder","intervalSeconds":86400}}}`, "apply", "-f", "-"); r.code != 0 {
		t.Fatal(r.err)
	}
	h.must(t, 0, "repo", "pull", "away")
	tt.shows(t, "retry in")
	tt.press(t, "r")
	tt.shows(t, "Try away-sync now?")
	tt.press(t, "y")
	tt.shows(t, "retry of away-sync asked for")
	until(t, "the job is dead before its rest would have ended", func() bool {
		got := h.history(t)
		return len(got) == 1 && got[0].State == "dead"
	})
	tt.shows(t, "dead")

	h.must(t, 0, "drain", "--wait")
	tt.press(t, "r")
	tt.shows(t, "Run away-sync again?")
	tt.press(t, "y")
	until(t, "the job is in the queue again", func() bool { return strings.Contains(h.run(t, "job", "list").out, "away-sync") })
	dead := h.history(t)[0].UID
	if job := h.must(t, 0, "job", "show", "away-sync").out; !strings.Contains(job, dead) {
		t.Errorf("the job does not say what it repeats:\n%s", job)
	}
	tt.shows(t, "1 pending")
	tt.press(t, "x")
	tt.shows(t, "Cancel away-sync?")
	tt.press(t, "y")
	until(t, "the job is gone", func() bool { return !strings.Contains(h.run(t, "job", "list").out, "away-sync") })
	tt.press(t, "q")
	if err := tt.end(t); err != nil {
		t.Errorf("end: %v", err)
	}
}
