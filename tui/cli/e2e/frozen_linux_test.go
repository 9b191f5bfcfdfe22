package e2e

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"limpet/sync/testenv/suite"

	"github.com/creack/pty"
)

// TestFrozenTerminal: a dashboard whose terminal takes nothing any more, as when the link
// of ssh is dead, ends on SIGTERM within seconds, with a sound state file.
func TestFrozenTerminal(t *testing.T) {
	suite.Full(t)
	t.Parallel()
	h := newHome(t)
	cmd := h.command(context.WithoutCancel(t.Context()), t)
	cmd.Env = append(slices.Clone(cmd.Env), "TERM=xterm-256color")
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer cmd.Process.Kill()
	var screen strings.Builder
	for part := make([]byte, 4096); !strings.Contains(screen.String(), "limpet"); {
		n, err := f.Read(part)
		if err != nil {
			t.Fatalf("%v: %q", err, screen.String())
		}
		screen.Write(part[:n])
	}
	// From here on the terminal is not read.
	turn := 0
	until(t, "the terminal takes no more", func() bool {
		turn++
		if err := pty.Setsize(f, &pty.Winsize{Rows: uint16(50 + turn%2), Cols: uint16(200 + turn%3)}); err != nil {
			t.Fatal(err)
		}
		if turn < 700 { // more would fill its input, and then the test waits
			_, _ = io.WriteString(f, "?")
		}
		return writes(t, cmd.Process.Pid)
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("end: %v", err)
		}
	case <-time.After(callTimeout):
		t.Fatal("it does not end while its terminal is frozen")
	}
	h.must(t, 0, "store", "check")
}

// writes says whether a thread of a process waits in the kernel for room on a terminal.
func writes(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/wchan", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("no threads of %d: %v", pid, err)
	}
	return slices.ContainsFunc(threads, func(path string) bool {
		at, _ := os.ReadFile(path) // a thread may have ended
		return string(at) == "wait_woken" || string(at) == "n_tty_write"
	})
}
