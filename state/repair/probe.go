package repair

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"limpet/state/frame"
)

// After an unclean stop a file is first opened by a child process: bbolt panics or faults on most
// kinds of damage, in goroutines of its own too, where nothing can catch it. The child is this
// program again, selected by its environment; it verifies the file page by page, then lets bbolt
// open and check it.
//
// The child first prints a greeting. A program that does not call RunProbe never does, and is not
// mistaken for a child that died of damage.

const (
	ProbePathEnv  = "LIMPET_STATE_PROBE_PATH"
	ProbeWantEnv  = "LIMPET_STATE_PROBE_SCHEMA"
	ProbeGreeting = "limpet state probe 1\n"

	// probeGrace and probePace bound the child's time: start, and a slow SD card's 2 MB/s. bbolt can
	// loop for ever on damaged pages.
	probeGrace = 20 * time.Second
	probePace  = 2 << 20

	// openWait bounds the wait for the lock of bbolt: the parent holds the owner lock, so it is free.
	openWait = 800 * time.Millisecond

	// probeStack keeps a recursion without end from filling the memory of a small board before it ends
	// the child.
	probeStack = 32 << 20
)

// probeAnswer is the child's last line.
type probeAnswer struct {
	Verdict string `json:"verdict"` // sound, damaged, newer, foreign, error
	Text    string `json:"text,omitempty"`
	Schema  int    `json:"schema,omitempty"`
}

func answerOf(err error) probeAnswer {
	var newer *frame.SchemaError
	switch {
	case err == nil:
		return probeAnswer{Verdict: "sound"}
	case errors.As(err, &newer):
		return probeAnswer{Verdict: "newer", Schema: newer.Have}
	case errors.Is(err, frame.ErrForeign):
		return probeAnswer{Verdict: "foreign"}
	case errors.Is(err, frame.ErrCorrupt):
		return probeAnswer{Verdict: "damaged", Text: strings.TrimPrefix(err.Error(), frame.ErrCorrupt.Error()+": ")}
	}
	return probeAnswer{Verdict: "error", Text: err.Error()}
}

// RunProbe is called first in main. In a probe child it does the child's work and ends the process;
// in every other process it returns false at once. Where main does not call it, Open does, which
// works as long as nothing was printed before.
func RunProbe() bool {
	path := os.Getenv(ProbePathEnv)
	if path == "" {
		return false
	}
	debug.SetMaxStack(probeStack)
	debug.SetPanicOnFault(true)
	want, _ := strconv.Atoi(os.Getenv(ProbeWantEnv))
	fmt.Print(ProbeGreeting)
	if json.NewEncoder(os.Stdout).Encode(answerOf(checkClosed(context.Background(), path, want))) != nil {
		os.Exit(1)
	}
	os.Exit(0)
	return true
}

// checkClosed verifies a closed file, first without and then with bbolt.
func checkClosed(ctx context.Context, path string, want int) error {
	if err := Inspect(ctx, path, want); err != nil {
		return err
	}
	return Guard(func() (err error) {
		o := &bbolt.Options{Timeout: openWait, ReadOnly: true, PreLoadFreelist: true, FreelistType: bbolt.FreelistMapType}
		db, err := bbolt.Open(path, 0o600, o)
		if err != nil {
			return OpenError(err)
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		return db.View(CheckPages)
	})
}

// CheckPages is bbolt's own check of its pages. It must only run where a fault may end the process,
// or on pages that were verified before.
func CheckPages(tx *bbolt.Tx) error {
	var first error
	for err := range tx.Check() {
		first = cmp.Or(first, frame.Corrupt("%s", err))
	}
	return first
}

// OpenError classifies an error of bbolt.Open: what comes neither from the system nor from the lock
// is damage.
func OpenError(err error) error {
	if err == nil || errors.Is(err, bolterrors.ErrTimeout) || errors.As(err, new(syscall.Errno)) || errors.Is(err, frame.ErrCorrupt) {
		return frame.Classify(err)
	}
	return frame.Corrupt("bbolt: %s", err)
}

// ErrNoChild reports that the child process could not be started, or that a signal stopped it.
var ErrNoChild = errors.New("no child process")

// Check verifies a closed state file in a child process, for a program that knows schemas up to
// want. nil means sound; errors are ErrCorrupt, a *SchemaError or ErrForeign when they are about
// the file, and others when no verdict was reached. Death of the child after its greeting, by a
// panic, a fault or its time limit, is ErrCorrupt; everything before is ErrNoChild.
func Check(ctx context.Context, path string, want int) error {
	limit := probeGrace
	if info, err := os.Stat(path); err == nil {
		limit += time.Duration(info.Size()/probePace) * time.Second
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := startProbe(limited, path, want)
	if err == nil {
		err = c.verdict()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// probe is a child that has sent its greeting.
type probe struct {
	ctx    context.Context // ends the child
	cmd    *exec.Cmd
	path   string
	want   int
	out    *bufio.Reader
	stderr bytes.Buffer // a few lines, since GOTRACEBACK is none
}

func startProbe(ctx context.Context, path string, want int) (*probe, error) {
	failed := func(err error) (*probe, error) { return nil, fmt.Errorf("%w: %w", ErrNoChild, err) }
	exe, err := os.Executable()
	if err != nil {
		return failed(err)
	}
	c := &probe{ctx: ctx, cmd: exec.CommandContext(ctx, exe), path: path, want: want}
	c.cmd.Env = []string{ProbePathEnv + "=" + path, ProbeWantEnv + "=" + strconv.Itoa(want), "GOTRACEBACK=none"}
	c.cmd.Stderr = &c.stderr
	stdout, err := c.cmd.StdoutPipe()
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		return failed(err)
	}
	c.out = bufio.NewReader(stdout)
	greeting := make([]byte, len(ProbeGreeting))
	if _, err := io.ReadFull(c.out, greeting); err != nil || string(greeting) != ProbeGreeting {
		_ = c.cmd.Process.Kill()
		return failed(errors.Join(errors.New("no greeting"), c.cmd.Wait()))
	}
	return c, nil
}

// verdict waits for the answer of the child.
func (c *probe) verdict() error {
	var a probeAnswer
	readErr := json.NewDecoder(c.out).Decode(&a)
	inTime := c.ctx.Err() == nil
	waitErr := c.cmd.Wait()
	switch {
	case readErr == nil:
		switch a.Verdict {
		case "sound":
			return nil
		case "newer":
			return &frame.SchemaError{Have: a.Schema, Want: c.want, Path: c.path}
		case "foreign":
			return fmt.Errorf("%s: %w", c.path, frame.ErrForeign)
		case "damaged":
			return frame.Corrupt("%s", a.Text)
		}
		return fmt.Errorf("verify state in a child process: %s", a.Text)
	case inTime && wasStopped(c.cmd.ProcessState):
		return fmt.Errorf("%w: %w", ErrNoChild, waitErr)
	}
	complaint, _, _ := strings.Cut(strings.TrimSpace(c.stderr.String()), "\n")
	return frame.Corrupt("child process: %s", cmp.Or(complaint, errors.Join(waitErr, readErr).Error()))
}

// wasStopped reports whether a process was stopped from outside, which proves nothing about the
// file: by the system when memory is short, by Ctrl-C in a terminal or the stop of a systemd unit,
// both of which reach the child as well as its parent.
func wasStopped(p *os.ProcessState) bool {
	status, ok := p.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return false
	}
	switch status.Signal() {
	case syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP:
		return true
	}
	return false
}

// Guard is the border of the package: whatever bbolt does with a damaged page, a panic or a fault
// in the memory map, leaves as ErrCorrupt.
func Guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &FaultError{Cause: r}
		}
	}()
	return frame.Classify(fn())
}

// FaultError is a panic or memory fault that was caught at the border. It is an ErrCorrupt.
type FaultError struct{ Cause any }

func (e *FaultError) Error() string        { return fmt.Sprintf("%s: %v", frame.ErrCorrupt, e.Cause) }
func (e *FaultError) Is(target error) bool { return target == frame.ErrCorrupt }
