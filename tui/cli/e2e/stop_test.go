package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"limpet/sync/testenv/suite"

	"golang.org/x/sys/unix"

	"limpet/state"
	"limpet/sync/testenv"
)

// hang is a Git host that takes connections and never answers: a job that pulls
// from it works for as long as the test wants.
func hang(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var held []net.Conn
		for {
			c, err := ln.Accept()
			if err != nil {
				break
			}
			held = append(held, c)
		}
		for _, c := range held {
			c.Close()
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
	})
	return "http://" + ln.Addr().String() + "/x.git"
}

// working starts a daemon with one job that does not end by itself.
func working(t *testing.T) (*home, *daemon) {
	t.Helper()
	h := newHome(t)
	d := h.daemon(t, "--controllers", "off") // they would ask before they ask for a pull
	h.must(t, 0, "repo", "create", "slow", "--url", hang(t))
	h.must(t, 0, "repo", "pull", "slow")
	until(t, "the job is claimed", func() bool { return strings.Contains(h.run(t, "job", "list").out, "working") })
	return h, d
}

// TestStopWhileAJobRuns: SIGTERM gives the job back and ends with 0; the next
// agent takes it up.
func TestStopWhileAJobRuns(t *testing.T) {
	t.Parallel()
	h, d := working(t)
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	var list struct {
		Items []struct {
			Metadata struct{ Labels map[string]string }
		}
	}
	r := h.must(t, 0, "job", "list", "-o", "json")
	if err := json.Unmarshal([]byte(r.out), &list); err != nil || len(list.Items) != 1 {
		t.Fatalf("%v: %s", err, r.out)
	}
	for label := range list.Items[0].Metadata.Labels {
		if strings.Contains(label, "claim") {
			t.Errorf("the job is still claimed: %s", r.out)
		}
	}
	h.daemon(t)
	until(t, "the job is claimed again", func() bool { return strings.Contains(h.run(t, "job", "list").out, "working") })
}

// TestCancelARunningJob: by the command, seen by who waits for it.
func TestCancelARunningJob(t *testing.T) {
	t.Parallel()
	h, _ := working(t)
	ended := h.aside(t, "job", "watch", "slow-sync")
	if r := h.must(t, 0, "job", "cancel", "slow-sync"); r.out != "job/slow-sync in namespace default asked to stop\n" {
		t.Errorf("cancel: %s", r.out)
	}
	if r := ended(); r.code != 5 {
		t.Errorf("exit %d: %s%s", r.code, r.out, r.err)
	}
	until(t, "the history says cancelled", func() bool { return strings.Contains(h.run(t, "history", "list").out, "cancelled") })
}

// TestTwoSignals: the second one does not wait for anything.
func TestTwoSignals(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	limpetBinary(t)
	// A reader that does not read keeps the agent from ending in order: its log
	// is a pipe that is full.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	cmd := h.command(context.WithoutCancel(t.Context()), t, "--daemon", "--log-level", "debug", "--log-format", "text")
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	fill(t, w)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	pressed := time.NewTicker(100 * time.Millisecond)
	defer pressed.Stop()
	deadline := time.After(callTimeout)
	for signals := 0; ; {
		select {
		case <-ended:
			if state := cmd.ProcessState.Sys().(syscall.WaitStatus); signals < 2 || !state.Signaled() {
				t.Errorf("ended after %d signals: %v", signals, cmd.ProcessState)
			}
			return
		case <-pressed.C:
			if signals++; signals <= 2 {
				cmd.Process.Signal(syscall.SIGTERM)
			}
		case <-deadline:
			t.Fatal("two signals do not end it")
		}
	}
}

// fill writes to a pipe until nothing fits any more. The descriptor is shared
// with the child, so it has to stay a blocking one; the write that blocks ends
// when the pipe is closed.
func fill(t *testing.T, w *os.File) {
	t.Helper()
	room, err := unix.FcntlInt(w.Fd(), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The error is that of the pipe being closed.
		_, _ = w.Write(make([]byte, 2*room))
	}()
	t.Cleanup(func() { <-done })
	until(t, "the pipe is full", func() bool {
		n, err := unix.IoctlGetInt(int(w.Fd()), unix.TIOCINQ)
		return err == nil && n > room-4096
	})
}

// TestReaderThatGoesAway: who prints into a pipe cleans up when nobody reads.
func TestReaderThatGoesAway(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	limpetBinary(t)
	tmp := filepath.Join(h.dir, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	cmd := h.command(ctx, t, "demo")
	cmd.Env = append(cmd.Env, "TMPDIR="+tmp)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	out.Close()
	err = cmd.Wait()
	if left, _ := os.ReadDir(tmp); len(left) != 0 || errs.Len() != 0 || cmd.ProcessState.ExitCode() != 128+int(syscall.SIGPIPE) {
		t.Errorf("%v, %d left behind, stderr %q", err, len(left), &errs)
	}
}

// cancelWithin is how soon the agent that runs a job has ended it when somebody
// else wants it to: the wish comes over the watch, not with the next renewal.
const cancelWithin = time.Second

// TestCancelReachesWhoeverRunsTheJob: two agents on one real API. One works, the
// other is where a person cancels the job, or deletes it; in the middle of a
// fetch, and in the middle of writes.
func TestCancelReachesWhoeverRunsTheJob(t *testing.T) {
	suite.Full(t)
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

// TestDaemonThatHangs: a daemon that is stopped holds its file and says nothing. Every
// command ends, says who it is and what to do, and none takes it for one that is not
// there. When it goes on it still has its claim.
func TestDaemonThatHangs(t *testing.T) {
	suite.Full(t)
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
