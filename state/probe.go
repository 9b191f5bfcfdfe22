package state

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

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// After an unclean stop a file is first opened by a child process: bbolt panics or faults on most kinds of damage, in
// goroutines of its own too, where nothing can catch it. The child is this program again, told by its environment; it
// verifies the file page by page, then lets bbolt open and check it. What it salvages from a damaged file it sends as
// frames over its standard output.
//
// The child first prints a greeting. A program that does not call RunProbe never does, and is not mistaken for a child
// that died of damage.

const (
	probeEnv      = "LIMPET_STATE_PROBE" // check or salvage
	probePathEnv  = "LIMPET_STATE_PROBE_PATH"
	probeWantEnv  = "LIMPET_STATE_PROBE_SCHEMA"
	probeGreeting = "limpet state probe 1\n"

	// probeGrace and probePace bound the child's time: start, and a slow SD card's 2 MB/s. bbolt can loop for ever on
	// damaged pages.
	probeGrace = 20 * time.Second
	probePace  = 2 << 20

	// probeStack keeps a recursion without end from filling the memory of a small board before it ends the child.
	probeStack = 32 << 20
)

// probeAnswer is the child's last line.
type probeAnswer struct {
	Verdict string `json:"verdict"` // sound, damaged, newer, foreign, error
	Text    string `json:"text,omitempty"`
	Schema  int    `json:"schema,omitempty"`
}

func answerOf(err error) probeAnswer {
	var newer *SchemaError
	switch {
	case err == nil:
		return probeAnswer{Verdict: "sound"}
	case errors.As(err, &newer):
		return probeAnswer{Verdict: "newer", Schema: newer.Have}
	case errors.Is(err, ErrForeign):
		return probeAnswer{Verdict: "foreign"}
	case errors.Is(err, ErrCorrupt):
		return probeAnswer{Verdict: "damaged", Text: strings.TrimPrefix(err.Error(), ErrCorrupt.Error()+": ")}
	}
	return probeAnswer{Verdict: "error", Text: err.Error()}
}

func (a probeAnswer) err(path string, want int) error {
	switch a.Verdict {
	case "sound":
		return nil
	case "newer":
		return &SchemaError{Have: a.Schema, Want: want, Path: path}
	case "foreign":
		return fmt.Errorf("%s: %w", path, ErrForeign)
	case "damaged":
		return corrupt("%s", a.Text)
	}
	return fmt.Errorf("verify state in a child process: %s", a.Text)
}

// RunProbe is called first in main. In a probe child it does the child's work and ends the process; in every other
// process it returns false at once. Where main does not call it, Open does, which works as long as nothing was printed
// before.
func RunProbe() bool {
	mode := os.Getenv(probeEnv)
	if mode == "" {
		return false
	}
	debug.SetMaxStack(probeStack)
	debug.SetPanicOnFault(true)
	path := os.Getenv(probePathEnv)
	want, _ := strconv.Atoi(os.Getenv(probeWantEnv))
	out := bufio.NewWriterSize(os.Stdout, 64<<10)
	_, _ = out.WriteString(probeGreeting)
	_ = out.Flush()
	var last any
	switch mode {
	case "check":
		last = answerOf(checkClosed(context.Background(), path, want))
	case "salvage":
		sum, err := salvageFile(path, func(r salvaged) error { return r.write(out) })
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

// checkClosed verifies a file that nobody has open, first without and then with bbolt.
func checkClosed(ctx context.Context, path string, want int) error {
	if err := inspectFile(ctx, path, want); err != nil {
		return err
	}
	return guard(func() error { return checkBolt(path) })
}

// checkBolt lets bbolt open the file and check its pages.
func checkBolt(path string) (err error) {
	o := &bbolt.Options{Timeout: lockWait, ReadOnly: true, PreLoadFreelist: true, FreelistType: bbolt.FreelistMapType}
	db, err := bbolt.Open(path, 0o600, o)
	if err != nil {
		return openFault(err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.View(func(tx *bbolt.Tx) error { return checkPages(tx) })
}

// checkPages is bbolt's own check of its pages. It must only run where a fault may end the process, or on pages that
// were verified before.
func checkPages(tx *bbolt.Tx) error {
	var first error
	for err := range tx.Check() {
		if first == nil {
			first = corrupt("%s", err)
		}
	}
	return first
}

// openFault gives an error of bbolt.Open its meaning: what is neither the system's nor the lock's is damage.
func openFault(err error) error {
	if err == nil || errors.Is(err, bolterrors.ErrTimeout) || errors.As(err, new(syscall.Errno)) || errors.Is(err, ErrCorrupt) {
		return classify(err)
	}
	return corrupt("bbolt: %s", err)
}

// probeInChild verifies a state file, which nobody may have open, in a child process, for a program that knows schemas up
// to want. nil means sound; errors are ErrCorrupt, a *SchemaError or ErrForeign when they are about the file, and others
// when no verdict was reached.
func probeInChild(ctx context.Context, path string, want int) error {
	var a probeAnswer
	err := runChild(ctx, "check", path, want, func(r *bufio.Reader) error {
		return json.NewDecoder(r).Decode(&a)
	})
	if err != nil {
		return err
	}
	return a.err(path, want)
}

// errNoChild says that this program could not be started as its own child.
var errNoChild = errors.New("no child process")

// runChild starts the child and lets read take its answer. Death of the child after its greeting, by a panic, a fault
// or its time limit, is ErrCorrupt; everything before is errNoChild.
func runChild(ctx context.Context, mode, path string, want int, read func(*bufio.Reader) error) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("%w: %w", errNoChild, err)
	}
	limit := probeGrace
	if info, err := os.Stat(path); err == nil {
		limit += time.Duration(info.Size()/probePace) * time.Second
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(limited, exe)
	cmd.Env = []string{probeEnv + "=" + mode, probePathEnv + "=" + path, probeWantEnv + "=" + strconv.Itoa(want), "GOTRACEBACK=none"}
	complaint := &firstBytes{max: 4 << 10}
	cmd.Stderr = complaint
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("%w: %w", errNoChild, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: %w", errNoChild, err)
	}
	r := bufio.NewReaderSize(stdout, 64<<10)
	greeting := make([]byte, len(probeGreeting))
	greet := time.AfterFunc(probeGrace, cancel)
	_, err = io.ReadFull(r, greeting)
	greet.Stop()
	if err != nil || string(greeting) != probeGreeting {
		cancel()
		return fmt.Errorf("%w: %w", errNoChild, errors.Join(errors.New("no greeting"), cmd.Wait()))
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
	case errors.As(readErr, new(*buildError)):
		return readErr
	case inTime && ended(waitErr):
		return fmt.Errorf("%w: %w", errNoChild, waitErr)
	}
	return corrupt("child process: %s", childDeath(waitErr, readErr, complaint.String()))
}

// ended says that somebody else has ended the child, which says nothing about the file: the system when memory is short,
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
