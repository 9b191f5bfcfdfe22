package repair

import (
	"bufio"
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

	"limpet/state/frame"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// After an unclean stop a file is first opened by a child process: bbolt panics or faults on most kinds of damage, in
// goroutines of its own too, where nothing can catch it. The child is this program again, selected by its environment; it
// verifies the file page by page, then lets bbolt open and check it. What it salvages from a damaged file it sends as
// frames over its standard output.
//
// The child first prints a greeting. A program that does not call RunProbe never does, and is not mistaken for a child
// that died of damage.

const (
	ProbeEnv      = "LIMPET_STATE_PROBE" // check or salvage
	ProbePathEnv  = "LIMPET_STATE_PROBE_PATH"
	ProbeWantEnv  = "LIMPET_STATE_PROBE_SCHEMA"
	ProbeGreeting = "limpet state probe 1\n"

	// probeGrace and probePace bound the child's time: start, and a slow SD card's 2 MB/s. bbolt can loop for ever on
	// damaged pages.
	probeGrace = 20 * time.Second
	probePace  = 2 << 20

	// openWait bounds the wait for the lock of bbolt: the parent holds the owner lock, so it is free.
	openWait = 800 * time.Millisecond

	// probeStack keeps a recursion without end from filling the memory of a small board before it ends the child.
	probeStack = 32 << 20
)

// ProbeAnswer is the child's last line.
type ProbeAnswer struct {
	Verdict string `json:"verdict"` // sound, damaged, newer, foreign, error
	Text    string `json:"text,omitempty"`
	Schema  int    `json:"schema,omitempty"`
}

func answerOf(err error) ProbeAnswer {
	var newer *frame.SchemaError
	switch {
	case err == nil:
		return ProbeAnswer{Verdict: "sound"}
	case errors.As(err, &newer):
		return ProbeAnswer{Verdict: "newer", Schema: newer.Have}
	case errors.Is(err, frame.ErrForeign):
		return ProbeAnswer{Verdict: "foreign"}
	case errors.Is(err, frame.ErrCorrupt):
		return ProbeAnswer{Verdict: "damaged", Text: strings.TrimPrefix(err.Error(), frame.ErrCorrupt.Error()+": ")}
	}
	return ProbeAnswer{Verdict: "error", Text: err.Error()}
}

func (a ProbeAnswer) err(path string, want int) error {
	switch a.Verdict {
	case "sound":
		return nil
	case "newer":
		return &frame.SchemaError{Have: a.Schema, Want: want, Path: path}
	case "foreign":
		return fmt.Errorf("%s: %w", path, frame.ErrForeign)
	case "damaged":
		return frame.Corrupt("%s", a.Text)
	}
	return fmt.Errorf("verify state in a child process: %s", a.Text)
}

// RunProbe is called first in main. In a probe child it does the child's work and ends the process; in every other
// process it returns false at once. Where main does not call it, Open does, which works as long as nothing was printed
// before.
func RunProbe() bool {
	mode := os.Getenv(ProbeEnv)
	if mode == "" {
		return false
	}
	debug.SetMaxStack(probeStack)
	debug.SetPanicOnFault(true)
	path := os.Getenv(ProbePathEnv)
	want, _ := strconv.Atoi(os.Getenv(ProbeWantEnv))
	out := bufio.NewWriterSize(os.Stdout, 64<<10)
	_, _ = out.WriteString(ProbeGreeting)
	_ = out.Flush()
	var last any
	switch mode {
	case "check":
		last = answerOf(checkClosed(context.Background(), path, want))
	case "salvage":
		sum, err := Salvage(path, func(r Record) error { return r.Write(out) })
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_ = out.WriteByte(salvageEnd)
		last = sum
	default:
		fmt.Fprintf(os.Stderr, "unknown probe %q\n", mode)
		os.Exit(1)
	}
	if err := errors.Join(json.NewEncoder(out).Encode(last), out.Flush()); err != nil {
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
	return Guard(func() error { return checkBolt(path) })
}

// checkBolt lets bbolt open the file and check its pages.
func checkBolt(path string) (err error) {
	o := &bbolt.Options{Timeout: openWait, ReadOnly: true, PreLoadFreelist: true, FreelistType: bbolt.FreelistMapType}
	db, err := bbolt.Open(path, 0o600, o)
	if err != nil {
		return OpenError(err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.View(func(tx *bbolt.Tx) error { return CheckPages(tx) })
}

// CheckPages is bbolt's own check of its pages. It must only run where a fault may end the process, or on pages that
// were verified before.
func CheckPages(tx *bbolt.Tx) error {
	var first error
	for err := range tx.Check() {
		if first == nil {
			first = frame.Corrupt("%s", err)
		}
	}
	return first
}

// OpenError classifies an error of bbolt.Open: what comes neither from the system nor from the lock is damage.
func OpenError(err error) error {
	if err == nil || errors.Is(err, bolterrors.ErrTimeout) || errors.As(err, new(syscall.Errno)) || errors.Is(err, frame.ErrCorrupt) {
		return frame.Classify(err)
	}
	return frame.Corrupt("bbolt: %s", err)
}

// Check verifies a closed state file in a child process, for a program that knows schemas up
// to want. nil means sound; errors are ErrCorrupt, a *SchemaError or ErrForeign when they are about the file, and others
// when no verdict was reached.
func Check(ctx context.Context, path string, want int) error {
	var a ProbeAnswer
	err := RunChild(ctx, "check", path, want, func(r *bufio.Reader) error {
		return json.NewDecoder(r).Decode(&a)
	})
	if err != nil {
		return err
	}
	return a.err(path, want)
}

// BuildError is a failure of the new file, as opposed to damage of the old one.
type BuildError struct{ Err error }

func (e *BuildError) Error() string { return "build new state file: " + e.Err.Error() }
func (e *BuildError) Unwrap() error { return e.Err }

// ErrNoChild reports that this program could not be started as its own child.
var ErrNoChild = errors.New("no child process")

// RunChild starts the child and lets read take its answer. Death of the child after its greeting, by a panic, a fault
// or its time limit, is ErrCorrupt; everything before is errNoChild.
func RunChild(ctx context.Context, mode, path string, want int, read func(*bufio.Reader) error) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoChild, err)
	}
	limit := probeGrace
	if info, err := os.Stat(path); err == nil {
		limit += time.Duration(info.Size()/probePace) * time.Second
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(limited, exe)
	cmd.Env = []string{ProbeEnv + "=" + mode, ProbePathEnv + "=" + path, ProbeWantEnv + "=" + strconv.Itoa(want), "GOTRACEBACK=none"}
	complaint := &firstBytes{max: 4 << 10}
	cmd.Stderr = complaint
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoChild, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: %w", ErrNoChild, err)
	}
	r := bufio.NewReaderSize(stdout, 64<<10)
	greeting := make([]byte, len(ProbeGreeting))
	greet := time.AfterFunc(probeGrace, cancel)
	_, err = io.ReadFull(r, greeting)
	greet.Stop()
	if err != nil || string(greeting) != ProbeGreeting {
		cancel()
		return fmt.Errorf("%w: %w", ErrNoChild, errors.Join(errors.New("no greeting"), cmd.Wait()))
	}
	readErr := read(r)
	inTime := limited.Err() == nil
	if !errors.Is(readErr, io.EOF) && !errors.Is(readErr, io.ErrUnexpectedEOF) {
		// The answer is whole or not wanted any more: nothing that the child still does is worth waiting for.
		cancel()
	}
	waitErr := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case readErr == nil:
		return nil
	case errors.As(readErr, new(*BuildError)):
		return readErr
	case inTime && ended(waitErr):
		return fmt.Errorf("%w: %w", ErrNoChild, waitErr)
	}
	return frame.Corrupt("child process: %s", childDeath(waitErr, readErr, complaint.String()))
}

// ended reports whether the child was stopped from outside, which proves nothing about the file: by the system when memory is short,
// Ctrl-C in a terminal or the stop of a systemd unit, both of which reach the child as well as its parent.
func ended(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return false
	}
	switch status.Signal() {
	case syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP:
		return true
	}
	return false
}

func childDeath(waitErr, readErr error, complaint string) string {
	for line := range strings.Lines(complaint) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return errors.Join(waitErr, readErr).Error()
}

// firstBytes keeps the first bytes of what is written.
type firstBytes struct {
	max int
	buf []byte
}

func (t *firstBytes) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p[:min(len(p), t.max-len(t.buf))]...)
	return len(p), nil
}

func (t *firstBytes) String() string { return string(t.buf) }
