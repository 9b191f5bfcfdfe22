// Package program runs programs of the host, without a shell. One that fails or outlives its time
// limit is killed with its process group.
package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"limpet/sync/text"
)

// Command is a program with all that it gets.
type Command struct {
	Argv    []string
	Dir     string
	Env     []string // beside PATH and LANG; nothing of limpet's own environment, which may hold secrets
	Input   []byte
	Timeout time.Duration
	Most    int // bytes of the end of the output that are kept
}

// Tail keeps the last bytes that are written to it.
type Tail struct {
	Data []byte
	Most int
}

func (t *Tail) Write(p []byte) (int, error) {
	t.Data = append(t.Data, p...)
	t.Data = t.Data[max(0, len(t.Data)-t.Most):]
	return len(p), nil
}

// Run returns the end of the output on one line, without secrets, also as the end of an error.
func (c Command) Run(ctx context.Context) (output string, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	cmd, out := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...), &Tail{Most: 2 * c.Most}
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Dir = bytes.NewReader(c.Input), out, out, c.Dir
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}, c.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // what it has started too
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) { // it has succeeded, and what it has started holds its output
		err = nil
	}
	if err != nil && cmd.Process != nil {
		_ = cmd.Cancel() // it is going to be run again
	}
	output = text.Line(text.Redact(string(out.Data)), 4*c.Most) // before it is cut: half a secret is not known as one
	output = strings.ToValidUTF8(output[max(0, len(output)-c.Most):], "")
	if ctx.Err() == context.DeadlineExceeded {
		err = fmt.Errorf("no end within %v", c.Timeout)
	}
	if err != nil && output != "" {
		err = fmt.Errorf("%w: %s", err, output)
	}
	return output, err
}
