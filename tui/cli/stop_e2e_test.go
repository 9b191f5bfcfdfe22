package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
