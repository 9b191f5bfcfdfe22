package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// runningJob starts a daemon with one job that does not end by itself.
func runningJob(t *testing.T) (*home, *daemon) {
	t.Helper()
	h := newHome(t)
	d := h.daemon(t, "--controllers", "off") // they would ask before they ask for a pull
	h.working(t)
	return h, d
}

// TestStopWhileAJobRuns: SIGTERM releases the job and exits with 0; the next agent claims it.
func TestStopWhileAJobRuns(t *testing.T) {
	t.Parallel()
	h, d := runningJob(t)
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

// TestTwoSignals: the second signal ends the process at once.
func TestTwoSignals(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	limpetBinary(t)
	// A reader that does not read keeps the agent from ending in order: its log is a pipe that is
	// full.
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
	// A stop while it starts has nothing to log, so it would not wait.
	log := bufio.NewReader(r)
	for line := ""; !strings.Contains(line, "agent started"); {
		if line, err = log.ReadString('\n'); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
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
			// Two that come before the first is handled are one.
			signals++
			cmd.Process.Signal(syscall.SIGTERM)
		case <-deadline:
			t.Fatal("two signals do not end it")
		}
	}
}

// fill writes to a pipe until nothing fits any more. The descriptor is shared with the child, so it
// has to stay a blocking one; the write that blocks ends when the pipe is closed.
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

// TestDaemonThatHangs: a daemon that is stopped holds its file and answers nothing. Every command
// ends, names its process and how to continue it, and none takes it for absent. When it goes on it
// still has its claim.
func TestDaemonThatHangs(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h, d := runningJob(t)
	signal := func(s syscall.Signal) {
		t.Helper()
		if err := d.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	claim := func() (owner string) {
		t.Helper()
		var job struct {
			Metadata struct{ Labels map[string]string }
		}
		r := h.must(t, 0, "get", "job", "slow-sync", "-o", "json")
		if err := json.Unmarshal([]byte(r.out), &job); err != nil || job.Metadata.Labels[api.LabelClaimOwner] == "" {
			t.Fatalf("%v: %s", err, r.out)
		}
		return job.Metadata.Labels[api.LabelClaimOwner]
	}
	before := claim()
	follows := h.waiter(t, "job", "watch", "slow-sync", "--progress", "plain")
	until(t, "the job is followed", func() bool { return strings.Contains(follows.errs.String(), "slow-sync") })
	signal(syscall.SIGSTOP)
	calls := map[string]func() result{}
	for _, args := range []string{"", "status", "status --watch", "job list", "job cancel slow-sync", "repo list", "repo test slow",
		"repo pull slow",
		"get jobs", "history list", "store check", "store info", "drain", "drain --off", "doctor"} {
		calls[args] = h.runInBackground(t, strings.Fields(args)...)
	}
	if code := h.terminal(t).exit(t); code != exitStore {
		t.Errorf("the dashboard: exit %d", code)
	}
	for args, ended := range calls {
		r, want := ended(), exitStore
		if args == "doctor" {
			want = exitError
		}
		if r.code != want || !strings.Contains(r.out+r.err, "kill -CONT "+d.pid()) || strings.Contains(r.out+r.err, "limpet --daemon") {
			t.Errorf("limpet %s: exit %d: %s%s", args, r.code, r.out, r.err)
		}
	}
	signal(syscall.SIGCONT)
	if after := claim(); after != before {
		t.Errorf("claimed by %s before and %s after", before, after)
	}
	h.must(t, 0, "job", "cancel", "slow-sync")
	if code := follows.ends(t); code != exitCancelled {
		t.Errorf("job watch: exit %d", code)
	}
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	h.must(t, 0, "store", "check")
}

// TestCancelReachesTheAgent: a job that another agent's user cancels or deletes ends within a
// second on the agent that runs it: the wish comes over the watch, not with the next renewal.
func TestCancelReachesTheAgent(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	server := testenv.Start(t, testenv.Options{})
	server.Break(t, testenv.Fault{Method: http.MethodPost, Path: "/dashboards", Delay: 150 * time.Millisecond})
	boards := testenv.Git(t, testenv.GitOptions{}).Serve("boards.git", testenv.Repo(t, 1, 200).Dir)
	agent := func(user string, args ...string) *home {
		h := newHome(t)
		h.args = []string{"--provisioning-server-url", server.URL, "--tls-ca-file", server.CAFile, "--token-file",
			h.file(t, "token", server.TokenOf(user))}
		h.daemon(t, append([]string{"--max-sync-workers", "2"}, args...)...)
		return h
	}
	worker, person := agent("worker"), agent("person", "--drain")
	silent, _ := hangingHost(t)
	for _, c := range []struct {
		name, url string
		ask       []string
		historic  int
	}{
		{"cancelled-in-fetch", silent + "/x.git", []string{"job", "cancel"}, 1},
		{"deleted-in-fetch", silent + "/x.git", []string{"delete", "job"}, 0},
		{"cancelled-in-writes", boards, []string{"job", "cancel"}, 1},
		{"deleted-in-writes", boards, []string{"delete", "job"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			job, before := c.name+"-sync", server.Mark(t)
			written := func(since testenv.Mark, path string) (n int) {
				for _, r := range server.Writes(t, since) {
					if strings.Contains(r.Path, path) {
						n++
					}
				}
				return n
			}
			person.must(t, 0, "repo", "create", c.name, "--url", c.url, "--branch", testenv.Branch)
			person.must(t, 0, "repo", "pull", c.name, "--full")
			until(t, "the job is at work", func() bool {
				return c.url == boards && written(before, "/dashboards") >= 3 || c.url != boards && claimsOf(t, worker) == 1
			})
			asked := server.Mark(t)
			person.must(t, 0, append(c.ask, job)...)
			wish := time.Now()
			var rec state.Record
			until(t, "the job has ended", func() bool {
				for _, r := range worker.history(t) {
					if r.Name == job {
						rec = r
					}
				}
				return rec.UID != "" && claimsOf(t, worker) == 0
			})
			if rec.State != "cancelled" || len(rec.Attempts) != 1 || rec.Finished.Sub(wish) > time.Second {
				t.Errorf("asked for at %s, record %+v", wish, rec)
			}
			if n := written(asked, "/historicjobs"); n != c.historic {
				t.Errorf("%d HistoricJobs, want %d", n, c.historic)
			}
			if n := written(before, "/dashboards"); n >= 200 {
				t.Errorf("%d dashboards were written", n)
			}
		})
	}
}
