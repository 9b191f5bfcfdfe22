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

	"limpet/sync/failpoint"
	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// news is an event as a webhook gets it.
type news struct {
	Severity, Reason, Message string
	Metadata                  map[string]string
}

// TestNotifications: a webhook receives the failure of a repository, again with the same id after a
// kill -9 before the webhook has answered, and its recovery too. Heartbeats come before, and none
// while it fails.
func TestNotifications(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex // guards what follows
	var got []news
	var d *daemon
	beats, kills := 0, 1
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path == "/beat" {
			beats++
			return
		}
		var n news
		if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
			t.Error(err)
		}
		got = append(got, n)
		if n.Reason == "PullFailed" && kills > 0 {
			kills--
			d.kill()
		}
	}))
	t.Cleanup(server.Close)
	events := func(reason string) (out []news) {
		mu.Lock()
		defer mu.Unlock()
		for _, n := range got {
			if n.Reason == reason {
				out = append(out, n)
			}
		}
		return out
	}
	repo, h := testenv.Repo(t, 2, 3), newHome(t)
	flags := []string{"--local-git-prefix", filepath.Dir(repo.Dir), "--notify", server.URL + "/hook/of-a-secret-that-is-long", "--heartbeat", server.URL + "/beat"}
	start := func() {
		started := h.daemon(t, flags...)
		mu.Lock()
		defer mu.Unlock()
		d = started
	}
	start()
	until(t, "a heartbeat", func() bool { mu.Lock(); defer mu.Unlock(); return beats > 0 })
	h.must(t, 0, "repo", "create", "boards", "--url", "file://"+repo.Dir, "--branch", testenv.Branch, "--path", testenv.Directory, "--interval", "24h")
	until(t, "the first pull is told with its counts", func() bool {
		all := events("PullSucceeded")
		return len(all) == 1 && strings.Contains(all[0].Message, "created")
	})
	if err := os.Rename(repo.Dir, repo.Dir+"-away"); err != nil {
		t.Fatal(err)
	}
	h.must(t, 0, "repo", "pull", "boards")
	until(t, "the failure is told, and the agent killed", func() bool { return len(events("PullFailed")) == 1 })
	<-d.done
	mu.Lock()
	beats = 0
	mu.Unlock()
	start()
	until(t, "it is told again", func() bool { return len(events("PullFailed")) == 2 })
	if all := events("PullFailed"); all[0].Metadata["limpet/event-id"] != all[1].Metadata["limpet/event-id"] || all[0].Severity != "error" {
		t.Errorf("%+v", all)
	}
	until(t, "status says so", func() bool { return strings.Contains(h.must(t, exitError, "status").out, "1 sent, 0 waiting") })
	h.must(t, exitJobFailed, "repo", "pull", "boards", "--wait")
	if mu.Lock(); beats > 0 {
		t.Errorf("%d heartbeats while the repository fails", beats)
	}
	mu.Unlock()
	if err := os.Rename(repo.Dir+"-away", repo.Dir); err != nil {
		t.Fatal(err)
	}
	h.must(t, 0, "repo", "pull", "boards", "--wait")
	until(t, "the recovery is told", func() bool { return len(events("PullSucceeded")) == 2 })
	if all := events("PullSucceeded"); all[1].Metadata["limpet/recovered"] != "PullFailed" || len(events("PullFailed")) != 2 {
		t.Errorf("%+v", all)
	}
	for _, n := range events("Recovered") {
		if n.Metadata["limpet/recovered"] == "" {
			t.Errorf("%+v", n)
		}
	}
	if out := h.must(t, 0, "notify", "test", "-o", "name").out; !strings.HasPrefix(out, server.URL+"#") {
		t.Error(out)
	}
	if strings.Contains(d.log.String(), "of-a-secret") {
		t.Error("the log names the path of the webhook")
	}
}

// lokiServer stands for Loki: it takes pushes in its JSON, keeps one of the same lines of one time,
// and is down between whiles.
type lokiServer struct {
	mu    sync.Mutex // guards what follows
	down  bool
	after func() // a push was taken, and not answered yet
	lines map[string]map[[2]string]bool
}

func (l *lokiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	user, password, _ := r.BasicAuth()
	if r.URL.Path != "/loki/api/v1/push" || user != "site" || password != "word" || r.Header.Get("X-Scope-OrgID") != "edge" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	var push struct {
		Streams []struct {
			Stream map[string]string
			Values [][2]string
		}
	}
	if l.down {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&push); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	for _, s := range push.Streams {
		labels := s.Stream["from"] + "/" + s.Stream["namespace"] + "/" + s.Stream["repository"]
		if l.lines[labels] == nil {
			l.lines[labels] = map[[2]string]bool{}
		}
		for _, v := range s.Values {
			l.lines[labels][v] = true
		}
	}
	if l.after != nil {
		l.after()
		l.after = nil
	}
	w.WriteHeader(http.StatusNoContent)
}

func (l *lokiServer) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// uids returns the number of lines of each job.
func (l *lokiServer) uids(t *testing.T) map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]int{}
	for line := range l.lines["job-history/default/boards"] {
		var job struct {
			Metadata struct{ UID string }
			Status   struct{ Finished int64 }
		}
		if json.Unmarshal([]byte(line[1]), &job) != nil || fmt.Sprintf("%d000000", job.Status.Finished) != line[0] {
			t.Errorf("line %q", line)
		}
		out[job.Metadata.UID]++
	}
	return out
}

// TestHistoryInLoki: Loki gets one line of each job, though it is down for hours of the age of the
// history, the agent dies at each point of the end of a job, and once between a push and its answer.
func TestHistoryInLoki(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	program, err := failpointBinary()
	if err != nil {
		t.Fatal(err)
	}
	loki := &lokiServer{down: true, lines: map[string]map[[2]string]bool{}}
	server := httptest.NewServer(loki)
	t.Cleanup(server.Close)
	repo, h := testenv.Repo(t, 2, 3), newHome(t)
	plain := h.env
	h.program = program
	flags := []string{"--local-git-prefix", filepath.Dir(repo.Dir), "--loki-url", server.URL, "--loki-user", "site",
		"--loki-password-file", h.file(t, "loki.password", "word\n"), "--loki-tenant-id", "edge",
		"--history-expiration", "1s", "--claim-expiry", shortExpiry.String(), "--lease-renewal-interval", shortRenewal.String()}
	d := h.daemon(t, flags...)
	h.must(t, 0, "repo", "create", "boards", "--url", "file://"+repo.Dir, "--branch", testenv.Branch, "--path", testenv.Directory, "--interval", "24h")
	pull := func() { h.must(t, 0, "repo", "pull", "boards", "--full", "--wait") }
	pull()
	for _, point := range []string{failpoint.Recorded, failpoint.Posted, failpoint.Deleted, failpoint.Ended} {
		d.stop(t)
		h.env = append(slices.Clone(plain), "LIMPET_FAILPOINTS="+point+"=kill")
		d = h.daemon(t, flags...)
		wait := h.runInBackground(t, "repo", "pull", "boards", "--full", "--wait")
		<-d.done
		h.env = plain
		d = h.daemon(t, flags...)
		wait()
		pull()
	}
	ended := map[string]bool{}
	for _, r := range h.history(t) {
		ended[r.UID] = true
	}
	if len(ended) < 10 || len(loki.uids(t)) > 0 {
		t.Fatalf("%d jobs have ended, Loki has %v", len(ended), loki.uids(t))
	}
	killed := make(chan struct{})
	loki.set(func() {
		loki.down = false
		loki.after = func() { d.kill(); close(killed) }
	})
	<-killed
	h.daemon(t, flags...)
	pull()
	until(t, "all lines are in Loki", func() bool { return len(loki.uids(t)) == len(ended)+1 })
	for uid, lines := range loki.uids(t) {
		delete(ended, uid)
		if lines != 1 {
			t.Errorf("%d lines of %s", lines, uid)
		}
	}
	if len(ended) > 0 {
		t.Errorf("no line of %v", ended)
	}
	until(t, "the history is pruned", func() bool { return len(h.history(t)) <= 1 })
	until(t, "nothing waits", func() bool {
		out := h.must(t, 0, "status").out
		return strings.Contains(out, "loki+"+server.URL+": ") && strings.Contains(out, "0 waiting")
	})
	if out := h.must(t, 0, "notify", "test", "loki", "-o", "name").out; !strings.HasPrefix(out, "loki+") || len(loki.lines["limpet-test//"]) != 1 {
		t.Errorf("%s %v", out, loki.lines)
	}
}
