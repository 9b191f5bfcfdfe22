package cli_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestServiceManagerIsTold: the built daemon says to a real NOTIFY_SOCKET that it is
// ready, that it lives, also while its API is away, and once that it stops.
func TestServiceManagerIsTold(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"embedded": nil, "an API that is away": {"--provisioning-server-url=https://127.0.0.1:1", "--tls-insecure"}} {
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

// TestOnlyTheDaemonSpeaksToItsManager: a command of the same environment says nothing.
func TestOnlyTheDaemonSpeaksToItsManager(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	path := filepath.Join(h.dir, "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	h.env = append(h.env, "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=30000")
	for _, args := range [][]string{{"status"}, {"version"}, {"demo", "--once"}} {
		cmd := exec.Command(limpetBinary(t), args...)
		cmd.Env = h.env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", args, err, out)
		}
	}
	if err := socket.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if n, err := socket.Read(make([]byte, 64)); err == nil {
		t.Errorf("a command has told the service manager %d bytes", n)
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
