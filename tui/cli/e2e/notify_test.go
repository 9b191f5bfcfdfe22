package e2e

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"limpet/sync/testenv"
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
