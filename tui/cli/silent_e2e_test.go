package cli_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// TestDaemonThatHangs: a daemon that is stopped holds its file and says nothing. Every
// command ends, says who it is and what to do, and none takes it for one that is not
// there. When it goes on it still has its claim.
func TestDaemonThatHangs(t *testing.T) {
	t.Parallel()
	h, d := working(t)
	pid := d.cmd.Process.Pid
	signal := func(s syscall.Signal) {
		t.Helper()
		if err := d.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	claim := func() string {
		t.Helper()
		var job struct {
			Metadata struct {
				UID    string
				Labels map[string]string
			}
		}
		r := h.must(t, 0, "get", "job", "slow-sync", "-o", "json")
		if err := json.Unmarshal([]byte(r.out), &job); err != nil {
			t.Fatal(err)
		}
		for label, value := range job.Metadata.Labels {
			if strings.HasSuffix(label, "/claim-owner") {
				return job.Metadata.UID + " " + value
			}
		}
		t.Fatalf("nobody has claimed it: %s", r.out)
		return ""
	}
	before := claim()
	drains := h.aside(t, "drain", "--wait")
	until(t, "the agent is drained", func() bool { return strings.Contains(h.run(t, "status").out, "draining") })
	h.must(t, 0, "repo", "create", "later", "--url", hang(t))
	h.must(t, 0, "repo", "pull", "later")
	follows := map[string]*terminal{"working": h.terminal(t, "job", "watch", "slow-sync", "--progress", "plain"), "pending": h.terminal(t, "job", "watch", "later-sync", "--progress", "plain")}
	for state, tt := range follows {
		tt.shows(t, "-sync "+state)
	}
	status := h.terminal(t, "status", "--watch")
	status.shows(t, "drained")
	signal(syscall.SIGSTOP)

	calls := map[string]func() result{"drain --wait": drains}
	for _, args := range []string{"", "status", "status --watch", "job list", "job cancel slow-sync", "repo list", "repo test slow", "repo pull slow",
		"get jobs", "history list", "store check", "store info", "drain", "drain --off", "--accessible"} {
		calls[args] = h.aside(t, strings.Fields(args)...)
	}
	examined := h.aside(t, "doctor", "-o", "json")
	next := fmt.Sprintf("kill -CONT %d", pid)
	for args, ended := range calls {
		r := ended()
		if r.code != 9 {
			t.Errorf("limpet %s: exit %d", args, r.code)
		}
		if !strings.Contains(r.err, "does not answer") || !strings.Contains(r.err, fmt.Sprint("process ", pid)) || !strings.Contains(r.err, "try: "+next) {
			t.Errorf("limpet %s: %s", args, r.err)
		}
		for _, wrong := range []string{"not running", "no agent", "no daemon", "limpet --daemon"} {
			if strings.Contains(r.out+r.err, wrong) {
				t.Errorf("limpet %s says %q: %s%s", args, wrong, r.out, r.err)
			}
		}
	}
	var found struct {
		Checks []struct{ Name, Result, Found, Next string }
	}
	r := examined()
	if err := json.Unmarshal([]byte(r.out), &found); err != nil || r.code != 1 {
		t.Fatalf("doctor: exit %d, %v: %s", r.code, err, r.out)
	}
	for _, c := range found.Checks {
		if c.Name == "daemon" && (c.Result != "fail" || !strings.Contains(c.Found, "does not answer") || !strings.HasPrefix(c.Next, next)) ||
			c.Name == "state" && (c.Result != "warn" || !strings.Contains(c.Found, fmt.Sprint("process ", pid)) || !strings.HasPrefix(c.Next, next)) {
			t.Errorf("doctor: %+v", c)
		}
	}

	for _, tt := range follows {
		tt.shows(t, "no answer, still trying: the daemon does not answer")
	}
	status.shows(t, fmt.Sprintf("the agent does not answer: process %d holds", pid))

	signal(syscall.SIGCONT)
	h.must(t, 0, "drain", "--off")
	if after := claim(); after != before {
		t.Errorf("claimed by %s before and %s after", before, after)
	}
	for _, job := range []string{"slow-sync", "later-sync"} {
		h.must(t, 0, "job", "cancel", job)
	}
	for state, tt := range follows {
		if code := tt.exit(t); code != 5 {
			t.Errorf("watch of the %s job: exit %d", state, code)
		}
	}
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	h.must(t, 0, "store", "check")
}
