package cli_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

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
