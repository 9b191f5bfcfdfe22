package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"limpet/sync/testenv"
	"limpet/sync/testenv/suite"
)

// gated is a daemon with a repository whose pulls wait until the gate is opened.
func gated(t *testing.T) (*home, *gate) {
	t.Helper()
	h, g := newHome(t), newGate(t, 3)
	h.daemon(t, "--controllers", "off")
	h.must(t, 0, "repo", "create", "gated", "--url", g.URL, "--branch", testenv.Branch)
	return h, g
}

// TestWaitForAJobThatIsThere: a command that waits attaches to the pending job that does
// what was asked, and asks again after one that has begun, since that may not have seen
// the last commit. Other options are refused with the job to watch.
func TestWaitForAJobThatIsThere(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h, g := gated(t)
	h.must(t, 0, "repo", "pull", "gated")
	until(t, "the job is at work", func() bool { return h.daemonWorks(t) })
	for _, call := range []string{"repo pull gated", "repo pull gated --full", "repo pull gated --full --wait", "job create gated --full --wait",
		"repo pull gated --allow-mass-delete --wait"} {
		if r := h.must(t, 1, strings.Fields(call)...); !strings.Contains(r.err, "try: limpet job watch gated-sync") {
			t.Errorf("limpet %s: %s", call, r.err)
		}
	}
	all := func(waiters ...*waiter) {
		t.Helper()
		for _, w := range waiters {
			if code := w.ends(t); code != 0 {
				t.Errorf("exit %d: %s%s", code, w.out, w.errs)
			}
		}
	}
	w := []*waiter{h.waiter(t, "repo", "pull", "gated", "--wait"), h.waiter(t, "job", "create", "gated", "--incremental", "--follow")}
	for _, one := range w {
		until(t, "it says for what it waits", func() bool { return strings.Contains(one.errs.String(), "gated-sync") })
	}
	quiet := h.waiter(t, "repo", "pull", "gated", "--follow", "-q", "-o", "json", "--progress", "none")
	g.open()
	all(append(w, quiet)...)
	if quiet.errs.String() != "" {
		t.Errorf("-q: %s", quiet.errs)
	}
	before := len(h.history(t))
	if before < 2 || before > 4 {
		t.Errorf("%d jobs have run", before)
	}
	h.must(t, 0, "drain", "--wait")
	h.must(t, 0, "repo", "pull", "gated", "--full")
	w = []*waiter{h.waiter(t, "repo", "pull", "gated", "--wait"), h.waiter(t, "job", "create", "gated", "--follow")}
	for _, one := range w {
		until(t, "it waits for the one that waits", func() bool { return strings.Contains(one.errs.String(), "gated-sync") })
	}
	h.must(t, 0, "drain", "--off")
	all(w...)
	if after := len(h.history(t)); after != before+1 {
		t.Errorf("%d jobs have run beside %d", after-before, before)
	}
}

// TestFollowPrintsTheWholeLog: --follow and job logs print the same lines, to the last
// one, as documents that keep their schema.
func TestFollowPrintsTheWholeLog(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	known := readSchemas(t)
	h, g := gated(t)
	waits := h.waiter(t, "repo", "pull", "gated", "--full", "--follow", "-o", "json", "-q")
	until(t, "the job is at work", func() bool { return h.daemonWorks(t) })
	logs := h.waiter(t, "job", "logs", "gated-sync", "--follow", "-o", "json", "-q")
	until(t, "both have begun", func() bool {
		return strings.Contains(waits.out.String(), `"log"`) && strings.Contains(logs.out.String(), `"log"`)
	})
	g.open()
	var got [2][]string
	for i, w := range []*waiter{waits, logs} {
		if code := w.ends(t); code != 0 {
			t.Errorf("exit %d: %s", code, w.errs)
		}
		for line := range strings.Lines(w.out.String()) {
			known.keeps(t, "stream", line)
			var one struct{ Log *struct{ Text string } }
			if err := json.Unmarshal([]byte(line), &one); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if one.Log != nil {
				got[i] = append(got[i], one.Log.Text)
			}
		}
	}
	if !slices.Equal(got[0], got[1]) || len(got[0]) < 3 {
		t.Errorf("--follow prints %q, job logs %q", got[0], got[1])
	}
}

// working starts a job whose Git host hangs.
func (h *home) working(t *testing.T) (answer func()) {
	t.Helper()
	url, answer := hangingHost(t)
	h.must(t, 0, "repo", "create", "slow", "--url", url+"/slow.git")
	h.must(t, 0, "repo", "pull", "slow")
	until(t, "the job is claimed", func() bool { return strings.Contains(h.run(t, "job", "list").out, "working") })
	return answer
}

// waiter is a command that runs beside the test, and its output.
type waiter struct {
	cmd       *exec.Cmd
	out, errs *log
	done      chan struct{} // closed when it has ended
}

func (h *home) waiter(t *testing.T, args ...string) *waiter {
	t.Helper()
	w := &waiter{cmd: h.command(context.WithoutCancel(t.Context()), t, args...), out: &log{}, errs: &log{}, done: make(chan struct{})}
	w.cmd.Stdout, w.cmd.Stderr = w.out, w.errs
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(w.done); _ = w.cmd.Wait() }()
	t.Cleanup(func() { _ = w.cmd.Process.Kill(); <-w.done })
	return w
}

// ends waits for the end of the command and returns its exit code.
func (w *waiter) ends(t *testing.T) int {
	t.Helper()
	until(t, strings.Join(w.cmd.Args[1:], " ")+" ends", func() bool {
		select {
		case <-w.done:
			return true
		default:
			return false
		}
	})
	return w.cmd.ProcessState.ExitCode()
}

// TestLogsOutliveTheDaemon: job logs --follow waits for a daemon that is away, shows how
// the job goes on with the next one, and ends as the job does.
func TestLogsOutliveTheDaemon(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	d := h.daemon(t, "--controllers", "off")
	answer := h.working(t)
	w := h.waiter(t, "job", "logs", "slow-sync", "--follow", "-o", "json")
	until(t, "the first lines", func() bool { return strings.Contains(w.out.String(), `"log"`) })
	d.stop(t)
	lines := strings.Count(w.out.String(), "\n")
	h.daemon(t, "--controllers", "off")
	until(t, "the job goes on", func() bool { return strings.Count(w.out.String(), "\n") > lines })
	answer()
	if code := w.ends(t); code != exitJobFailed {
		t.Errorf("exit %d\n%s%s", code, w.out, w.errs)
	}
}

// TestDrain: the running job goes on and nothing new is claimed. drain --wait ends when
// the agent is drained; Ctrl-C, --off, --timeout and the end of the agent are other ends.
func TestDrain(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	d := h.daemon(t, "--controllers", "off")
	answer := h.working(t)
	again := func() {
		t.Helper()
		d = h.daemon(t, "--controllers", "off")
		h.must(t, 0, "drain", "--off")
	}
	for _, c := range []struct {
		end  func(*waiter)
		code int
		try  string
	}{
		{func(w *waiter) { _ = w.cmd.Process.Signal(syscall.SIGINT) }, exitCancelled, "limpet drain --off"},
		{func(*waiter) { h.must(t, 0, "drain", "--off") }, exitCancelled, "limpet drain --wait"},
		{func(*waiter) { d.stop(t); again() }, exitUnreachable, "limpet --daemon --drain"},
		{func(*waiter) { d.kill(); again() }, exitUnreachable, "limpet --daemon --drain"},
	} {
		h.must(t, 0, "drain", "--off")
		until(t, "the job is at work", func() bool { return h.daemonWorks(t) })
		w := h.waiter(t, "drain", "--wait")
		until(t, "the wait", func() bool { return strings.Contains(w.errs.String(), "1 job") })
		c.end(w)
		if code := w.ends(t); code != c.code || !strings.Contains(w.errs.String(), "try: "+c.try) {
			t.Errorf("exit %d, want %d\n%s%s", code, c.code, w.out, w.errs)
		}
	}
	if err := d.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	until(t, "the agent drains", func() bool { return strings.Contains(h.run(t, "status").out, "draining") })
	h.must(t, 0, "repo", "create", "later", "--url", "https://127.0.0.1:1/later.git", "--disabled")
	h.must(t, 0, "repo", "pull", "later")
	waited := h.runInBackground(t, "drain", "--wait", "-o", "json")
	h.must(t, exitTimeout, "drain", "--wait", "--timeout", "1s")
	answer()
	r := waited()
	var out struct{ Busy int }
	if err := json.Unmarshal([]byte(r.out), &out); err != nil || r.code != 0 || out.Busy != 0 {
		t.Errorf("exit %d: %s%s", r.code, r.out, r.err)
	}
	if got := h.history(t); len(got) != 1 || got[0].Repository != "slow" {
		t.Errorf("history %+v", brief(got))
	}
	if list := h.must(t, 0, "job", "list").out; !strings.Contains(list, "later-sync") {
		t.Errorf("jobs: %s", list)
	}
	if err := d.cmd.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	until(t, "what came meanwhile is run", func() bool { return len(h.history(t)) == 2 })
}

// The main jobs of the program with its embedded API, in the fast lane. Each has longer relatives
// in the full lane.

// local is an agent with the embedded API that pulls from a Git host that wants a token.
type localSite struct {
	*home
	repo *testenv.Repository
}

func newLocalSite(t *testing.T, commits, dashboards int) *localSite {
	t.Helper()
	host := testenv.Git(t, testenv.GitOptions{User: "git", Password: gitToken})
	l := &localSite{home: newHome(t), repo: testenv.Repo(t, commits, dashboards)}
	l.file(t, "credentials/default.boards/token", gitToken)
	url := host.Serve("boards.git", l.repo.Dir)
	l.must(t, 0, "repo", "create", "boards", "--url", url, "--branch", testenv.Branch, "--path", testenv.Directory, "--interval", "24h")
	return l
}

func (l *localSite) start(t *testing.T) *daemon {
	t.Helper()
	return l.daemon(t, "--allow-insecure-git", "--credentials-dir", filepath.Join(l.dir, "credentials"), "--max-sync-workers", "1")
}

// pull waits until a pull has ended well: the agent itself begins the first one.
func (l *localSite) pull(t *testing.T, args ...string) {
	t.Helper()
	until(t, "the pull has ended well", func() bool {
		return l.run(t, append([]string{"repo", "pull", "boards", "--wait"}, args...)...).code == 0
	})
	boardsMatch(t, l.home, "default", "boards", l.repo)
}

// once fails the test unless each job has one record, which is a success, and returns their number.
func (l *localSite) verifyOnce(t *testing.T) int {
	t.Helper()
	seen := map[string]bool{}
	for _, r := range l.history(t) {
		if seen[r.UID] || r.State != "success" {
			t.Errorf("record of %s: state %s, seen before: %t", r.Name, r.State, seen[r.UID])
		}
		seen[r.UID] = true
	}
	return len(seen)
}

// TestPull: a branch becomes dashboards in folders and follows every change. The
// token of the Git host is in no file, log or output.
func TestPull(t *testing.T) {
	t.Parallel()
	l := newLocalSite(t, 20, 25)
	d := l.start(t)
	l.pull(t, "--full")
	boards := l.repo.Dashboards()
	l.repo.Edit(t, boards[3].Path)
	l.repo.Rename(t, boards[4].Path, testenv.Directory+"/moved/renamed.json")
	l.repo.Delete(t, boards[5].Path)
	l.repo.Add(t, testenv.Directory+"/brand/new/board.json")
	l.pull(t)
	l.must(t, 0, "delete", "dashboard", boards[3].UID, "-n", "default")
	l.pull(t, "--full")
	l.verifyOnce(t)
	output := l.evidence(t, d, "boards")
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	l.noSecret(t, d.log.String(), gitToken)
	if holds([]byte(output), gitToken) != "" {
		t.Error("the token is in what the program prints")
	}
}

// TestKilled: an agent that is killed when it has claimed a job, when it has written the first
// object and in the middle of the writing ends each job once, with the dashboards of the branch.
func TestKilled(t *testing.T) {
	t.Parallel()
	l := newLocalSite(t, 2, 100)
	d := l.start(t)
	l.pull(t)
	ended := l.verifyOnce(t)
	for _, point := range []struct {
		step  string
		times int
	}{{"claimed", 1}, {"applied", 1}, {"applied", 50}} {
		var paths []string
		for _, b := range l.repo.Dashboards() {
			paths = append(paths, b.Path)
		}
		l.repo.Edit(t, paths...)
		before := strings.Count(d.log.String(), stepped(point.step))
		l.must(t, 0, "repo", "pull", "boards")
		until(t, "a job is "+point.step, func() bool { return strings.Count(d.log.String(), stepped(point.step)) >= before+point.times })
		d.kill()
		d = l.start(t)
		ended++
		until(t, "the job has ended", func() bool { return len(l.history(t)) == ended })
		boardsMatch(t, l.home, "default", "boards", l.repo)
	}
	l.verifyOnce(t)
	if code := d.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	l.must(t, 0, "store", "check")
}

// stepped is what the log of a daemon has for a step of a job.
func stepped(step string) string { return fmt.Sprintf(`"step":%q`, step) }

// serveAPI starts 'limpet api', which writes to out, and returns its URL.
func serveAPI(t *testing.T, h *home, out *log, args ...string) (url string, stop func()) {
	t.Helper()
	cmd := h.command(context.WithoutCancel(t.Context()), t, append([]string{"api", "--listen", "127.0.0.1:0", "--sign-listen", "127.0.0.1:0"},
		args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	t.Cleanup(stop)
	until(t, "the API is served", func() bool {
		_, rest, ok := strings.Cut(out.String(), "https://127.0.0.1:")
		if ok {
			url = "https://127.0.0.1:" + rest[:strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })]
		}
		return ok
	})
	return url, stop
}

// TestTwoAgents: two agents share the jobs of one API, and one of them is stopped. Every job ends
// once.
func TestTwoAgents(t *testing.T) {
	t.Parallel()
	const repositories, rounds = 6, 3
	url, _ := serveAPI(t, newHome(t), &log{})
	host, repo := testenv.Git(t, testenv.GitOptions{}), testenv.Repo(t, 1, 2)
	var agents []*home
	var daemons []*daemon
	for range 2 {
		h := newHome(t, "--provisioning-server-url", url, "--token", testenv.SignToken)
		agents, daemons = append(agents, h), append(daemons, h.daemon(t, "--controllers", "off"))
	}
	people := agents[0]
	for i := range repositories {
		people.must(t, 0, "repo", "create", fmt.Sprint("r", i), "--url", host.Serve(fmt.Sprintf("r%d.git", i), repo.Dir), "--branch",
			testenv.Branch)
	}
	archived := func() map[string]int {
		var list struct {
			Items []struct {
				Metadata struct{ Labels map[string]string }
			}
		}
		if err := json.Unmarshal([]byte(people.must(t, 0, "get", "historicjobs", "-o", "json").out), &list); err != nil {
			t.Fatal(err)
		}
		times := map[string]int{}
		for _, o := range list.Items {
			times[o.Metadata.Labels["provisioning.grafana.app/original-uid"]]++
		}
		return times
	}
	for round := range rounds {
		for i := range repositories {
			people.must(t, 0, "repo", "pull", fmt.Sprint("r", i), "--full")
		}
		if round == rounds-1 {
			if code := daemons[1].stop(t); code != 0 {
				t.Errorf("exit %d", code)
			}
		}
		until(t, "all jobs of the round have ended", func() bool { return len(archived()) == (round+1)*repositories })
	}
	for uid, n := range archived() {
		if n != 1 {
			t.Errorf("job %s has %d HistoricJobs", uid, n)
		}
	}
	if code := daemons[0].stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}
