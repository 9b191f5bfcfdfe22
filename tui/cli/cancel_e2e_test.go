package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/testenv"
)

// cancelWithin is how soon the agent that runs a job has ended it when somebody
// else wants it to: the wish comes over the watch, not with the next renewal.
const cancelWithin = time.Second

// TestCancelReachesWhoeverRunsTheJob: two agents on one real API. One works, the
// other is where a person cancels the job, or deletes it; in the middle of a
// fetch, and in the middle of writes.
func TestCancelReachesWhoeverRunsTheJob(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, testenv.Options{})
	server.Break(t, testenv.Fault{Method: http.MethodPost, Path: "/dashboards", Delay: 150 * time.Millisecond})
	boards := testenv.Git(t, testenv.GitOptions{}).Serve("boards.git", testenv.Repo(t, 1, 200).Dir)
	agent := func(user string, args ...string) *home {
		h := newHome(t)
		h.args = []string{"--provisioning-server-url", server.URL, "--tls-ca-file", server.CAFile, "--token-file", h.file(t, "token", server.TokenOf(user))}
		h.daemon(t, append([]string{"--max-sync-workers", "2"}, args...)...)
		return h
	}
	worker, person := agent("worker"), agent("person", "--drain")
	for _, c := range []struct {
		name, url string
		ask       []string
		historic  int
	}{
		{"cancelled-in-fetch", hang(t), []string{"job", "cancel"}, 1},
		{"deleted-in-fetch", hang(t), []string{"delete", "job"}, 0},
		{"cancelled-in-writes", boards, []string{"job", "cancel"}, 1},
		{"deleted-in-writes", boards, []string{"delete", "job"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			job := c.name + "-sync"
			writing := func(since testenv.Mark) (n int, last time.Time) {
				for _, r := range server.Writes(t, since) {
					if strings.Contains(r.Path, "/dashboards") {
						n, last = n+1, time.UnixMilli(r.At)
					}
				}
				return n, last
			}
			before := server.Mark(t)
			person.must(t, 0, "repo", "create", c.name, "--url", c.url, "--branch", testenv.Branch)
			person.must(t, 0, "repo", "pull", c.name, "--full")
			until(t, "the job is at work", func() bool {
				if c.url == boards {
					n, _ := writing(before)
					return n >= 3
				}
				return claimsOf(t, worker) == 1
			})
			asked := server.Mark(t)
			person.must(t, 0, append(c.ask, job)...)
			var rec state.Record
			until(t, "the job has ended", func() bool {
				for _, r := range worker.history(t) {
					if r.Name == job {
						rec = r
					}
				}
				return rec.UID != "" && person.run(t, "job", "show", job, "-o", "name").out != "job/"+job+"\n" && claimsOf(t, worker) == 0
			})
			if rec.State != "cancelled" || len(rec.Attempts) != 1 {
				t.Errorf("record %+v", rec)
			}
			// The server says when it was asked for, and when it was done.
			var wish, end time.Time
			historic := 0
			for _, r := range server.Writes(t, asked) {
				mine := strings.HasSuffix(r.Path, "/jobs/"+job)
				switch {
				case r.User == "person" && mine && wish.IsZero():
					wish = time.UnixMilli(r.At)
				case r.User == "worker" && mine && r.Method == http.MethodDelete:
					end = time.UnixMilli(r.At)
				case strings.Contains(r.Path, "/historicjobs"):
					historic++
				}
			}
			if c.historic == 0 { // the deletion is seen, nothing is written
				end = rec.Finished
			}
			took := end.Sub(wish)
			t.Logf("ended %s after it was asked for", took)
			if wish.IsZero() || end.IsZero() || took > cancelWithin {
				t.Errorf("asked for at %s, ended at %s", wish, end)
			}
			if historic != c.historic {
				t.Errorf("%d HistoricJobs, want %d", historic, c.historic)
			}
			if n, last := writing(before); last.After(end.Add(cancelWithin)) || c.url == boards && n >= 200 {
				t.Errorf("%d dashboards were written, the last one %s after the end", n, last.Sub(end))
			}
		})
	}
	if out := person.run(t, "status").out; !strings.Contains(out, "drained for") {
		t.Errorf("status: %s", out)
	}
}

// claimsOf is how many claims the state file of an agent has.
func claimsOf(t *testing.T, h *home) int {
	t.Helper()
	var info struct{ Claims int }
	r := h.must(t, 0, "store", "info", "-o", "json")
	if err := json.Unmarshal([]byte(r.out), &info); err != nil {
		t.Fatal(fmt.Errorf("%w: %s", err, r.out))
	}
	return info.Claims
}
