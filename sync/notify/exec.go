package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"limpet/sync/text"
)

const (
	execTimeout = 30 * time.Second
	maxTail     = 2 << 10 // bytes of the output that are logged
)

// tail keeps the last bytes that are written to it.
type tail struct{ data []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	t.data = t.data[max(0, len(t.data)-maxTail):]
	return len(p), nil
}

// exec runs the program with the event on its standard input, without a shell. It gets none of the settings of this
// program, which may be secrets.
func (t *Target) exec(ctx context.Context, log *slog.Logger, event []byte) error {
	ctx, cancel := context.WithTimeout(ctx, execTimeout)
	defer cancel()
	cmd, out := exec.CommandContext(ctx, t.argv[0], t.argv[1:]...), &tail{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Dir = bytes.NewReader(event), out, out, "/"
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LIMPET_") })
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // what it has started too
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) { // it has succeeded, and what it has started holds its output
		err = nil
	}
	said := text.Redact(text.Line(string(out.data), maxTail))
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		err = fmt.Errorf("no end within %v", execTimeout)
	case err == nil && said != "":
		log.Info("notification delivered", "target", t.Name, "output", said)
	}
	if err != nil && said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return err
}
