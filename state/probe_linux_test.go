package state

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	ossignal "os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"limpet/state/repair"
)

// TestProbeIsStopped: a signal that goes to the child as well, as Ctrl-C in a
// terminal and the stop of a systemd unit do, says nothing about the file.
func TestProbeIsStopped(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGKILL, syscall.SIGSEGV} {
		if ossignal.Ignored(signal) {
			continue // as SIGHUP below nohup: it stops neither of them
		}
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			// A pipe that nobody writes to keeps the child where it is.
			path := filepath.Join(t.TempDir(), "limpet.db")
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
			err := repair.RunChild(context.Background(), "check", path, current.version, func(r *bufio.Reader) error {
				if err := syscall.Kill(probeOf(t, path), signal); err != nil {
					t.Error(err)
				}
				return json.NewDecoder(r).Decode(new(repair.ProbeAnswer))
			})
			if damage := signal == syscall.SIGSEGV; errors.Is(err, ErrCorrupt) != damage || errors.Is(err, repair.ErrNoChild) == damage {
				t.Errorf("the verdict is %v", err)
			}
		})
	}
}

// probeOf finds the child that probes a file.
func probeOf(t *testing.T, path string) int {
	t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range list {
		env, err := os.ReadFile(filepath.Join(dir, "environ"))
		if pid, bad := strconv.Atoi(filepath.Base(dir)); err == nil && bad == nil && bytes.Contains(env, []byte(repair.ProbePathEnv+"="+path+"\x00")) {
			return pid
		}
	}
	t.Fatal("no child")
	return 0
}
