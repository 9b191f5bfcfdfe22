package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"limpet/sync/testenv/suite"

	"limpet/sync/api"
	"limpet/sync/testenv"
)

// TestServiceManagerIsTold: the built daemon says to a real NOTIFY_SOCKET that it is
// ready, that it lives, also while its API is away, and once that it stops.
func TestServiceManagerIsTold(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"embedded": nil, "an API that is away": {"--provisioning-server-url=https://127.0.0.1:1",
		"--tls-insecure"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			path := filepath.Join(h.dir, "notify")
			socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			defer socket.Close()
			limpetBinary(t) // takes longer than a call where it has to be built
			h.env = append(h.env, "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=300000", "STATE_DIRECTORY="+filepath.Join(h.dir, "sd"))
			h.env = without(h.env, "LIMPET_STATE")
			ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
			defer cancel()
			cmd := h.command(ctx, t, append([]string{"--daemon"}, args...)...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			heard := func() string {
				deadline, _ := ctx.Deadline()
				if err := socket.SetReadDeadline(deadline); err != nil {
					t.Fatal(err)
				}
				buf := make([]byte, 512)
				n, err := socket.Read(buf)
				if err != nil {
					t.Fatalf("the daemon says nothing: %v", err)
				}
				return string(buf[:n])
			}
			// It beats before it is ready too: a large state file takes time to check.
			first := heard()
			for first == "WATCHDOG=1" {
				first = heard()
			}
			if first != "READY=1" {
				t.Fatalf("the first word is %q", first)
			}
			if _, err := os.Stat(filepath.Join(h.dir, "sd", "limpet.sock")); err != nil {
				t.Errorf("ready before its socket was: %v", err)
			}
			last := time.Now()
			for range 5 {
				if word := heard(); word != "WATCHDOG=1" {
					t.Errorf("after ready comes %q", word)
				}
				if late := time.Since(last); late > 5*time.Second {
					t.Errorf("a beat after %s", late)
				}
				last = time.Now()
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			word := heard()
			for word == "WATCHDOG=1" {
				word = heard()
			}
			if word != "STOPPING=1" {
				t.Errorf("while it stops it says %q", word)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("the daemon ends with %v", err)
			}
		})
	}
}

// without takes a variable out of an environment.
func without(env []string, name string) (out []string) {
	for _, v := range env {
		if !strings.HasPrefix(v, name+"=") {
			out = append(out, v)
		}
	}
	return out
}

// fullPipe is a pipe that takes not one byte more, and what it holds.
func fullPipe(t *testing.T) (read, write *os.File, held int) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { read.Close() })
	raw, err := write.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Write(func(fd uintptr) bool {
		for _, part := range [][]byte{bytes.Repeat([]byte{'.'}, 4096), {'.'}} {
			for {
				n, err := syscall.Write(int(fd), part)
				if err != nil { // EAGAIN: it is full
					break
				}
				held += n
			}
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return read, write, held
}

// answers waits until the daemon of a home does, whatever becomes of its log.
func (h *home) awaitReady(t *testing.T, pid int) {
	t.Helper()
	until(t, "the daemon answers", func() bool {
		return h.owner() == pid && strings.Contains(h.run(t, "status", "-o", "json").out, `"synced": true`)
	})
}

// worksUnheard has the daemon of a home do a job whose repository comes when the test
// says so, and fails unless it renews its lease several times meanwhile.
func (h *home) verifyWorkContinues(t *testing.T) {
	t.Helper()
	gate := newGate(t, 3)
	h.must(t, 0, "repo", "create", "gated", "--url", gate.URL, "--branch", testenv.Branch)
	h.must(t, 0, "repo", "pull", "gated", "--full")
	var claims []string
	until(t, "its lease is renewed", func() bool {
		var job struct {
			Metadata struct {
				Labels map[string]string `json:"labels"`
			} `json:"metadata"`
		}
		r := h.run(t, "get", "job", "gated-sync", "-o", "json")
		if err := json.Unmarshal([]byte(r.out), &job); err != nil {
			t.Fatalf("%v: %s%s", err, r.out, r.err)
		}
		if claim := job.Metadata.Labels[api.LabelClaim]; claim != "" && !slices.Contains(claims, claim) {
			claims = append(claims, claim)
		}
		return len(claims) >= 4
	})
	gate.open()
	until(t, "the job has ended", func() bool {
		return strings.Contains(h.run(t, "history", "list", "--no-headers").out, "success")
	})
	if r := h.must(t, 0, "history", "show", "gated-sync", "-o", "json"); strings.Contains(r.out, `"n": 2`) {
		t.Errorf("it took more than one attempt: %s", r.out)
	}
}

// leased are short leases, so that several are renewed in the time of a test.
var shortLease = []string{"--daemon", "--controllers", "off", "--log-format", "text", "--log-level", "debug", "--claim-expiry", "9s",
	"--lease-renewal-interval", "1s"}

// TestDaemonWithUnreadLog: the log is a full pipe from the first line on. The daemon works, and
// the log comes once it is read.
func TestDaemonWithUnreadLog(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	read, write, held := fullPipe(t)
	cmd := h.command(context.WithoutCancel(t.Context()), t, shortLease...)
	cmd.Stderr = write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer cmd.Process.Kill()
	write.Close()
	h.awaitReady(t, cmd.Process.Pid)
	h.verifyWorkContinues(t)

	heard := &log{}
	all := make(chan struct{})
	go func() { defer close(all); _, _ = io.Copy(heard, read) }()
	until(t, "what it said comes", func() bool { return strings.Contains(heard.String(), "gated-sync") })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("end: %v", err)
	}
	<-all
	if text := heard.String()[held:]; strings.Contains(text, "step=lost") {
		t.Errorf("its log:\n%s", text)
	}
}
