package program

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"limpet/sync/text"
)

func TestRun(t *testing.T) {
	t.Parallel()
	text.RegisterSecret([]byte("correct-horse-battery"))
	dir := t.TempDir()
	sh := func(script string) Command {
		return Command{Argv: []string{"/bin/sh", "-c", script}, Dir: dir, Env: []string{"A=b"}, Input: []byte("in"), Timeout: time.Minute, Most: 64}
	}
	for name, c := range map[string]struct{ script, output, err string }{
		"well":          {"cat; echo; pwd; echo $A$HOME", "in " + dir + " b", ""},
		"fails":         {"echo why >&2; exit 3", "why", "exit status 3: why"},
		"killed":        {"kill -9 $$", "", "signal: killed"},
		"end of output": {"printf %0100d 1; echo end", strings.Repeat("0", 60) + "1end", ""},
		"secret":        {"echo correct-horse-battery", text.Redacted, ""},
		"half a secret": {"printf correct-horse-battery; printf %055d 0", "", ""},
		"background":    {"sleep 100 & echo started", "started", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			output, err := sh(c.script).Run(t.Context())
			if c.err == "" && err != nil || c.err != "" && (err == nil || err.Error() != c.err) || strings.Contains(output, "battery") ||
				c.output != "" && output != c.output {
				t.Errorf("%q, %v", output, err)
			}
		})
	}
	none := Command{Argv: []string{"/usr/bin/env"}, Dir: dir, Timeout: time.Minute, Most: 1 << 10}
	if output, err := none.Run(t.Context()); output != "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8" || err != nil {
		t.Errorf("the environment is passed on: %q, %v", output, err)
	}
	if _, err := (Command{Argv: []string{dir + "/none"}, Dir: dir, Timeout: time.Minute}).Run(t.Context()); err == nil {
		t.Error("no program is no error")
	}
}

// TestChildren: what a program has started is killed when it hangs or fails, so that the next run
// finds none of it.
func TestChildren(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{"sleep 100": "no end within 3s: begun", "exit 3": "exit status 3: begun"} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			fifo := filepath.Join(t.TempDir(), "fifo")
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			held, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer held.Close()
			c := Command{Argv: []string{"/bin/sh", "-c", "exec 3>" + fifo + "; sleep 100 & echo begun; " + script}, Dir: "/", Most: 64,
				Timeout: 3 * time.Second}
			if script == "exit 3" {
				c.Timeout = time.Minute
			}
			if output, err := c.Run(t.Context()); output != "begun" || err == nil || err.Error() != want {
				t.Errorf("%q, %v", output, err)
			}
			if err := held.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := held.Read(make([]byte, 1)); err != io.EOF { // each child has it open for writing
				t.Errorf("a child lives on: %v", err)
			}
		})
	}
}
