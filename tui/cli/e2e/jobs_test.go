package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"limpet/sync/testenv/suite"

	"limpet/sync/control"
	"limpet/sync/testenv"
)

// TestProgressOnATerminal: a bar that is gone at the end; Ctrl-C leaves the job at
// work and says how to see it again.
func TestProgressOnATerminal(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	gate := newGate(t, 3)
	h.daemon(t, "--controllers", "off")
	h.must(t, 0, "repo", "create", "gated", "--url", gate.URL, "--branch", testenv.Branch)
	tt := h.terminal(t, "repo", "pull", "gated", "--full", "--wait")
	tt.shows(t, "pull gated  ░░░░")
	tt.press(t, "\x03")
	if code := exitOf(tt.end(t)); code != exitCancelled {
		t.Errorf("Ctrl-C: exit %d", code)
	}
	out := tt.screen.String()
	if rest := out[strings.LastIndex(out, "\x1b[K"):]; strings.Contains(rest, "░") || !strings.Contains(rest, "stopped waiting; the job goes on") || !strings.Contains(rest, "try: limpet job watch gated-sync") {
		t.Errorf("the end of the wait: %q", tail(out, 300))
	}
	if !h.daemonWorks(t) {
		t.Error("the job does not go on")
	}
	watch := h.terminal(t, "job", "watch", "gated-sync")
	plain := h.aside(t, "job", "watch", "gated-sync")
	forced := h.aside(t, "job", "watch", "gated-sync", "--progress", "none")
	watch.shows(t, "░░░░")
	gate.open()
	if err := watch.end(t); err != nil {
		t.Errorf("%v: %q", err, tail(watch.screen.String(), 300))
	}
	out = watch.screen.String()
	if rest := out[strings.LastIndex(out, "\x1b[K"):]; !strings.Contains(rest, "job/gated-sync success in ") || strings.Contains(rest, "█") {
		t.Errorf("the bar is still there: %q", tail(out, 300))
	}
	if r := plain(); strings.ContainsAny(r.err, "\r\x1b█") || !strings.Contains(r.err, " gated-sync working ") || r.code != 0 {
		t.Errorf("off a terminal: exit %d %q", r.code, r.err)
	}
	if r := forced(); r.err != "" || r.code != 0 {
		t.Errorf("--progress none: exit %d %q", r.code, r.err)
	}
}

// TestWaitForAJobThatIsThere: who would wait waits for the pull that the agent or
// another person has asked for, when that does what was asked and has not begun. After
// one that has begun comes the own one, since that may not have seen the last commit.
func TestWaitForAJobThatIsThere(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	gate := newGate(t, 3)
	h.daemon(t, "--controllers", "off")
	h.must(t, 0, "repo", "create", "gated", "--url", gate.URL, "--branch", testenv.Branch)
	h.must(t, 0, "repo", "pull", "gated")
	until(t, "the job is at work", func() bool { return h.daemonWorks(t) })
	for _, tt := range []struct{ args, says, try string }{
		{"repo pull gated", `repository "gated" has a job of this kind already: `, "limpet job watch gated-sync\n"},
		{"repo pull gated --full", "has a pull already, an incremental one, and --full asks for everything: ", "limpet job watch gated-sync    # then this command again\n"},
		{"repo pull gated --full --wait", "has a pull already, an incremental one, and --full asks for everything: ", "limpet job watch gated-sync    # then this command again\n"},
		{"job create gated --wait", "has a pull already, an incremental one, and --full asks for everything: ", "limpet job watch gated-sync    # then this command again\n"},
		{"repo pull gated --allow-mass-delete --wait", "has a job of this kind already, with other options: ", "limpet job watch gated-sync    # then this command again\n"},
	} {
		if r := h.must(t, 1, strings.Fields(tt.args)...); !strings.Contains(r.err, tt.says) || !strings.HasSuffix(r.err, "  try: "+tt.try) {
			t.Errorf("limpet %s: %s", tt.args, r.err)
		}
	}
	w := []*waiter{h.waiter(t, "repo", "pull", "gated", "--wait"), h.waiter(t, "job", "create", "gated", "--incremental", "--follow"), h.waiter(t, "repo", "pull", "gated", "--follow", "-q", "-o", "json", "--progress", "none")}
	for _, one := range w[:2] {
		until(t, "it says for what it waits", func() bool {
			return strings.Contains(one.errs.String(), "gated-sync has begun already; this asks again after its end\n")
		})
	}
	gate.open()
	for _, one := range w {
		if code := one.ends(t); code != 0 || !strings.Contains(one.out.String(), "job/gated-sync success in ") && !strings.Contains(one.out.String(), `"type":"ended"`) {
			t.Errorf("exit %d: %s%s", code, one.out, one.errs)
		}
	}
	if w[2].errs.String() != "" {
		t.Errorf("-q: %s", w[2].errs)
	}
	before := len(h.history(t))
	if before < 2 || before > 4 {
		t.Errorf("%d jobs have run", before)
	}

	h.must(t, 0, "drain", "--wait")
	h.must(t, 0, "repo", "pull", "gated", "--full")
	w = []*waiter{h.waiter(t, "repo", "pull", "gated", "--wait"), h.waiter(t, "job", "create", "gated", "--follow")}
	for _, one := range w {
		until(t, "it waits for the one that waits", func() bool {
			return strings.Contains(one.errs.String(), "gated-sync (pull full) is there already; this waits for its end\n")
		})
	}
	h.must(t, 0, "drain", "--off")
	for _, one := range w {
		if code := one.ends(t); code != 0 || !strings.Contains(one.out.String(), "job/gated-sync success in ") {
			t.Errorf("exit %d: %s%s", code, one.out, one.errs)
		}
	}
	if after := len(h.history(t)); after != before+1 {
		t.Errorf("%d jobs have run beside %d", after-before, before)
	}
}

// TestFollowPrintsTheWholeLog: all lines that the agent has of the job, to the last one.
func TestFollowPrintsTheWholeLog(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	known := readSchemas(t)
	h := newHome(t)
	gate := newGate(t, 3)
	h.daemon(t, "--controllers", "off")
	h.must(t, 0, "repo", "create", "gated", "--url", gate.URL, "--branch", testenv.Branch)
	waits := h.terminal(t, "repo", "pull", "gated", "--full", "--follow", "-o", "json", "-q")
	waits.shows(t, `"text":"job claimed"`)
	logs := h.terminal(t, "job", "logs", "gated-sync", "--follow", "-o", "json", "-q")
	logs.shows(t, `"text":"job claimed"`)
	gate.open()
	for _, tt := range []*terminal{waits, logs} {
		if err := tt.end(t); err != nil {
			t.Errorf("%v: %s", err, tt.screen)
		}
	}
	daemon, err := control.Attach(t.Context(), filepath.Join(h.dir, "state", "limpet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer daemon.Close()
	snap, err := daemon.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, j := range snap.Jobs {
		for _, l := range j.Log {
			want = append(want, l.Text)
		}
	}
	if len(snap.Jobs) != 1 || len(want) < 3 {
		t.Fatalf("jobs %+v", snap.Jobs)
	}
	for name, tt := range map[string]*terminal{"job logs --follow": logs, "repo pull --follow": waits} {
		var got []string
		for line := range strings.Lines(strings.ReplaceAll(tt.screen.String(), "\r", "")) {
			known.keeps(t, "stream", line)
			var one struct{ Log *struct{ Text string } }
			if err := json.Unmarshal([]byte(line), &one); err != nil {
				t.Fatalf("%s: %v: %s", name, err, line)
			}
			if one.Log != nil {
				got = append(got, one.Log.Text)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s prints %q, the agent has %q", name, got, want)
		}
	}
}

// TestStatusWatch: a line for each change, also when the daemon goes.
func TestStatusWatch(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	if r := h.must(t, 1, "status", "--watch"); !strings.Contains(r.err, "nothing to watch") {
		t.Errorf("without a daemon: %s", r.err)
	}
	d := h.daemon(t)
	table := h.terminal(t, "status", "--watch", "--color", "never")
	lines := h.terminal(t, "status", "--watch", "-o", "json")
	table.shows(t, "STATE")
	table.shows(t, "  ok ")
	lines.shows(t, `"type":"status","schemaVersion":1,`)
	h.must(t, 0, "drain")
	table.shows(t, "  drained ")
	if d.stop(t) != 0 {
		t.Error("the daemon did not end well")
	}
	table.shows(t, "  away ")
	lines.shows(t, `"live":null`)
	for _, tt := range []*terminal{table, lines} {
		tt.press(t, "\x03")
		if code := exitOf(tt.end(t)); code != exitCancelled {
			t.Errorf("Ctrl-C: exit %d", code)
		}
	}
	known := readSchemas(t)
	said := strings.ReplaceAll(strings.Trim(lines.screen.String(), "^C\r\n"), "\r", "")
	for line := range strings.Lines(said) {
		if strings.HasPrefix(line, "{") {
			known.keeps(t, "stream", line)
		}
	}
}

// TestStatusWatchReadOut: who has it read out is told sentences, on a terminal with
// colours and on a pipe, also that the daemon goes.
func TestStatusWatchReadOut(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	d := h.daemon(t)
	h.must(t, 0, "repo", "create", "ill", "--url", "https://127.0.0.1:1/boards.git")
	until(t, "it is failing", func() bool { return strings.Contains(h.run(t, "repo", "list").out, "failing") })
	onTerminal := h.terminal(t, "status", "--watch", "--accessible", "--color", "always")
	piped, heard := h.command(context.WithoutCancel(t.Context()), t, "status", "--watch", "--accessible"), &log{}
	piped.Stdout = heard
	if err := piped.Start(); err != nil {
		t.Fatal(err)
	}
	onTerminal.shows(t, "the agent is degraded. Jobs: none. Repositories: 1, 1 with something wrong. Why: ill is not healthy: ")
	h.must(t, 0, "drain")
	onTerminal.shows(t, "the agent is drained. Jobs: none.")
	if d.stop(t) != 0 {
		t.Error("the daemon did not end well")
	}
	onTerminal.shows(t, "the agent is away. Why: ")
	onTerminal.press(t, "\x03")
	if code := exitOf(onTerminal.end(t)); code != exitCancelled {
		t.Errorf("Ctrl-C: exit %d", code)
	}
	until(t, "who reads the pipe is told", func() bool { return strings.Contains(heard.String(), "the agent is away. Why: ") })
	if err := piped.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := exitOf(piped.Wait()); code != exitCancelled {
		t.Errorf("SIGINT: exit %d", code)
	}
	spoken := strings.ReplaceAll(onTerminal.screen.String(), "^C", "")
	for name, out := range map[string]string{"terminal": spoken[:strings.LastIndex(spoken, "limpet: ")], "pipe": heard.String()} {
		readable(t, out)
		if strings.Contains(out, "  ") || strings.Contains(out, "WORKING") || !strings.HasPrefix(out, "Each change is a sentence. Times are UTC.") {
			t.Errorf("on a %s there are columns:\n%s", name, out)
		}
	}
}

// hangingHost is a Git host that answers nothing until it is told to, and then that
// there is no such repository.
func hangingHost(t *testing.T) (url string, answer func()) {
	t.Helper()
	hang, done := context.WithCancel(t.Context())
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-hang.Done():
		case <-r.Context().Done():
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(host.Close)
	return host.URL, done
}

// working has a job at work whose Git host hangs.
func (h *home) working(t *testing.T) (answer func()) {
	t.Helper()
	url, answer := hangingHost(t)
	h.must(t, 0, "repo", "create", "slow", "--url", url+"/slow.git")
	h.must(t, 0, "repo", "pull", "slow")
	until(t, "the job is claimed", func() bool { return strings.Contains(h.run(t, "job", "list").out, "working") })
	return answer
}

// waiter is a call that goes on, and what it has printed.
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

// ends says how the call has ended, once it has.
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

// TestLogsOutliveTheDaemon: who follows the log of a job is told that the daemon is away,
// sees how the job goes on and ends with the next one, and ends as the job does.
func TestLogsOutliveTheDaemon(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	d := h.daemon(t, "--controllers", "off")
	answer := h.working(t)
	w := h.waiter(t, "job", "logs", "slow-sync", "--follow")
	until(t, "the first lines", func() bool { return strings.Contains(w.out.String(), "job claimed") })
	d.stop(t)
	until(t, "a word that the daemon is away", func() bool { return strings.Contains(w.errs.String(), "slow-sync: no answer, still trying: ") })
	h.daemon(t, "--controllers", "off")
	until(t, "the job goes on", func() bool { return strings.Count(w.out.String(), "job claimed") == 2 })
	answer()
	if code := w.ends(t); code != 7 || strings.Count(w.errs.String(), "\n") != 3 || !strings.Contains(w.errs.String(), "limpet: the job ended in error\n") || !strings.Contains(w.out.String(), "not found") {
		t.Errorf("exit %d\n%s%s", code, w.out, w.errs)
	}
}

// TestDrainWaits: also where the newest picture of the daemon is of a moment before. Who
// stops waiting is told that the agent goes on draining, and that it ended before it was
// drained is another end than that somebody has it claim again.
func TestDrainWaits(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	d := h.daemon(t, "--controllers", "off")
	answer := h.working(t)
	for _, c := range []struct {
		end       func(*waiter)
		code      int
		says, try string
	}{
		{func(w *waiter) { _ = w.cmd.Process.Signal(syscall.SIGINT) }, 5, "stopped waiting; the agent goes on draining", "limpet drain --off"},
		{func(*waiter) { h.must(t, 0, "drain", "--off") }, 5, "somebody has the agent claim jobs again", "limpet drain --wait"},
		{func(*waiter) { d.stop(t) }, 8, "the agent has ended before it was drained", "limpet --daemon --drain"},
		{func(*waiter) { d.kill(); d = h.daemon(t, "--controllers", "off") }, 8, "the agent has ended before it was drained", "limpet --daemon --drain"},
	} {
		select {
		case <-d.done:
			d = h.daemon(t, "--controllers", "off")
		default:
		}
		h.must(t, 0, "drain", "--off")
		until(t, "the job is at work", func() bool { return strings.Contains(h.run(t, "job", "list").out, "working") })
		h.must(t, 0, "status") // has a picture made
		w := h.waiter(t, "drain", "--wait")
		until(t, "the wait", func() bool { return strings.Contains(w.errs.String(), "draining: 1 job to go") })
		c.end(w)
		if code := w.ends(t); code != c.code || !strings.Contains(w.errs.String(), "limpet: "+c.says) || !strings.Contains(w.errs.String(), "  try: "+c.try) {
			t.Errorf("exit %d, want %d\n%s%s", code, c.code, w.out, w.errs)
		}
	}
	w := h.waiter(t, "drain", "--wait")
	until(t, "the wait", func() bool { return strings.Contains(w.errs.String(), "draining: 1 job to go") })
	answer()
	if code := w.ends(t); code != 0 || !strings.HasPrefix(w.out.String(), "drained: nothing runs") {
		t.Errorf("exit %d\n%s%s", code, w.out, w.errs)
	}
}

// TestRetryOfARunningJob is refused, and changes nothing.
func TestRetryOfARunningJob(t *testing.T) {
	suite.Full(t)
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
	suite.Full(t)
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
	suite.Full(t)
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
