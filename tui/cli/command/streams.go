package command

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/term"

	"limpet/state/atomicfile"
	"limpet/sync/text"
)

// System returns the world of the real process.
func System() World {
	return World{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Lookup: os.LookupEnv}
}

// World is all that a command touches outside of itself.
type World struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
	// Lookup reads the environment, as os.LookupEnv does.
	Lookup func(name string) (value string, set bool)
}

// Getenv returns the value of a variable, "" when it is not set.
func (w World) Getenv(name string) string {
	value, _ := w.Lookup(name)
	return value
}

// IsTerminal reports whether an input or an output is a terminal.
func IsTerminal(w any) bool {
	f, ok := OutFile(w)
	return ok && term.IsTerminal(int(f.Fd()))
}

// OutFile returns the file behind an input or an output, if it is one.
func OutFile(w any) (*os.File, bool) {
	switch out := w.(type) {
	case *stdout:
		w = out.w
	case *stderr:
		w = out.w
	}
	f, ok := w.(*os.File)
	return f, ok
}

// ExitPipe is the exit code after a reader has closed the pipe, as a shell reports SIGPIPE. No error is printed.
const ExitPipe = 128 + int(syscall.SIGPIPE)

// stdout is the output for data. The first failed write ends the command; later writes are dropped. So
// commands need not check each write, and none succeeds when its data was lost.
type stdout struct {
	w   io.Writer
	end context.CancelCauseFunc
	// accessible has tables written as names and values.
	accessible bool
	colors     ColorFunc

	mu  sync.Mutex // guards err
	err error
}

func (s *stdout) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.w.Write(p)
	if err != nil {
		s.err = err
		s.end(outputClosed{err})
	}
	return n, err
}

// outputClosed is the cause of a context whose output was closed. Other packages see it as a cancellation.
type outputClosed struct{ error }

func (outputClosed) Is(target error) bool { return target == context.Canceled }

// failure returns the error of the output; nil when all was written.
func (s *stdout) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err == nil:
		return nil
	case errors.Is(s.err, syscall.EPIPE):
		return exitNow(ExitPipe)
	}
	return Errorf(ExitError, "", "write the result: %w", s.err)
}

// stderr is the output for notes, errors and logs. Writes of a command block, so that Ctrl-S stops it as
// expected. Those of a server do not after aside: a blocked terminal must not delay the renewal of a lease.
type stderr struct {
	w      io.Writer
	colors ColorFunc

	mu      sync.Mutex // one write at a time
	queue   chan queuedLine
	dropped atomic.Int64
	stuck   atomic.Bool // the writer is blocked, or has ended: nobody waits for it
}

type queuedLine struct {
	text    []byte        // nil = the end
	written chan struct{} // closed then
}

const (
	// maxQueued bounds the lines that wait to be written; further ones are dropped and counted.
	maxQueued = 2048
	// lineTimeout is how long a log call waits for its line, so that a line is written before a crash that it
	// precedes. It is short compared to the margin of a lease.
	lineTimeout = 50 * time.Millisecond
	// flushTimeout bounds the wait for the last lines at exit.
	flushTimeout = 3 * time.Second
)

func (s *stderr) Write(p []byte) (int, error) {
	if s.queue == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.w.Write(p)
	}
	line := queuedLine{bytes.Clone(p), make(chan struct{})}
	select {
	case s.queue <- line:
		if !s.stuck.Load() && !within(lineTimeout, line.written) {
			s.stuck.Store(true)
		}
	default:
		s.dropped.Add(1)
	}
	return len(p), nil
}

// aside has lines written by another goroutine from now on. It logs to lost, which writes to the same output, how many
// were dropped. An error of a write has no other place to go.
func (s *stderr) aside(lost *slog.Logger) {
	s.queue = make(chan queuedLine, maxQueued)
	go func() {
		for line := range s.queue {
			if line.text != nil {
				_, _ = s.w.Write(line.text)
			}
			close(line.written)
			if len(s.queue) == 0 {
				s.stuck.Store(line.text == nil)
				if n := s.dropped.Swap(0); n > 0 {
					lost.Error("log lines are lost: they were not read for too long", "lines", n)
				}
			}
			if line.text == nil {
				return
			}
		}
	}()
}

// end waits for the last lines, at most flushTimeout.
func (s *stderr) end() {
	if s.queue == nil {
		return
	}
	line := queuedLine{written: make(chan struct{})}
	go func() { s.queue <- line }()
	within(flushTimeout, line.written)
	s.stuck.Store(true)
}

// within reports whether a channel is closed within a time.
func within(limit time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// NewLogger logs to w: for a daemon as JSON, or as text on a terminal, unless --log-format decides; for a
// command as lines for a person.
func NewLogger(g *Flags, w io.Writer, daemon bool) *slog.Logger {
	g.SetLogLevel(g.LogLevel)
	opts := &slog.HandlerOptions{Level: &g.level, ReplaceAttr: text.RedactAttr}
	switch logFormat(g, w, daemon) {
	case "json":
		return slog.New(JSONHandler(g, w))
	case "text":
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(&textHandler{w: w, level: g.level.Level()})
}

// JSONHandler writes the lines of a daemon to w as JSON.
func JSONHandler(g *Flags, w io.Writer) slog.Handler {
	return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: &g.level, ReplaceAttr: text.RedactAttr})
}

// SetLogLevel changes the level of the logs of a daemon.
func (g *Flags) SetLogLevel(level string) {
	g.LogLevel = level
	_ = g.level.UnmarshalText([]byte(level)) // the enum of the flag admits only names that it knows
}

// logFormat returns json, text, or "" for lines for a person.
func logFormat(g *Flags, w io.Writer, daemon bool) string {
	switch {
	case g.LogFormat != "" || !daemon:
		return g.LogFormat
	case IsTerminal(w):
		return "text"
	}
	return "json"
}

// textHandler writes "limpet: warning: text (key value, ...)", without a time and in the form of the command's errors.
type textHandler struct {
	w     io.Writer
	level slog.Level
	attrs []slog.Attr
}

func (h *textHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

func (h *textHandler) Handle(_ context.Context, rec slog.Record) error {
	line := "limpet: "
	switch ink := ColorsOf(h.w); {
	case rec.Level >= slog.LevelError:
		line += ink.Paint("error", "error:") + " "
	case rec.Level >= slog.LevelWarn:
		line += ink.Paint("warning", "warning:") + " "
	}
	line += text.Clean(text.Redact(rec.Message))
	attrs := slices.Clone(h.attrs)
	rec.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a)
		return true
	})
	var notes []string
	for _, a := range attrs {
		// Components are of no interest to a person.
		if a = text.RedactAttr(nil, a); a.Key != "component" && a.Key != "" {
			notes = append(notes, fmt.Sprintf("%s %s", strings.ReplaceAll(a.Key, "_", " "), text.Clean(a.Value.String())))
		}
	}
	if len(notes) > 0 {
		line += " (" + strings.Join(notes, ", ") + ")"
	}
	_, err := io.WriteString(h.w, line+"\n")
	return err
}

func (h *textHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &textHandler{h.w, h.level, slices.Concat(h.attrs, attrs)}
}

// WithGroup implements slog.Handler; no logger for a person makes groups.
func (h *textHandler) WithGroup(string) slog.Handler { return h }

// Writable rejects a path that WriteAtomic must not replace: a directory, a device or a pipe, or one in a
// directory that does not exist. The hint is the command with another path.
func Writable(path, command string) error {
	dir := filepath.Dir(path)
	info, err := os.Stat(path)
	parent, parentErr := os.Stat(dir)
	switch {
	case err == nil && info.IsDir():
		return Usagef(command+" "+text.ShellWord(filepath.Join(path, "FILE")), "%s is a directory; it has to be a file", path)
	case err == nil && !info.Mode().IsRegular():
		return Usagef(command+" FILE", "%s is no regular file; a shell writes there with > from stdout", path)
	case parentErr != nil:
		return Usagef("mkdir -p "+text.ShellWord(dir), "no file can be made in %s: %w", dir, Reason(parentErr))
	case !parent.IsDir():
		return Usagef(command+" FILE", "%s is no directory", dir)
	}
	return nil
}

// Reason returns the cause of an error whose path was reported already.
func Reason(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	if link, ok := errors.AsType[*os.LinkError](err); ok {
		return link.Err
	}
	return err
}

// target writes to a file that the user has named. Its errors are none of the state file, although a copy of that may
// be what is written.
type target struct {
	io.Writer
	path string
}

func (t target) Write(p []byte) (int, error) {
	n, err := t.Writer.Write(p)
	return n, Unwritten(t.path, err)
}

// Unwritten is the error of a command that could not write a file; nil for nil.
func Unwritten(path string, err error) error {
	if err == nil {
		return nil
	}
	next := "ls -ld "
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		next = "df -h "
	}
	return Errorf(ExitError, next+text.ShellWord(filepath.Dir(path)), "write %s: %w", path, Reason(err))
}

// WriteText writes a text with WriteAtomic, as a file of another mode.
func WriteText(path string, mode fs.FileMode, text string) error {
	return Unwritten(path, atomicfile.Write(path, mode, atomicfile.Data([]byte(text))))
}

// WriteAtomic writes a file for its owner alone that is either complete or absent, also after a power cut.
func WriteAtomic(path string, write func(io.Writer) (int64, error)) (n int64, err error) {
	var failed error
	err = atomicfile.Write(path, 0o600, func(w io.Writer) error {
		n, failed = write(target{w, path})
		return failed
	})
	return n, cmp.Or(failed, Unwritten(path, err))
}

// maxManifest bounds a file of objects; the API takes 3 MiB for one.
const maxManifest = 32 << 20

// ReadFile reads a file or, for "-", stdin, up to maxManifest.
func (e *Env) ReadFile(path string) ([]byte, error) {
	in := e.In
	if path == "-" && e.Getenv(InDashboard) != "" {
		return nil, Usagef("", "- is stdin, which no command has in the dashboard: name a file")
	}
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxManifest+1))
	if err == nil && len(data) > maxManifest {
		err = fmt.Errorf("%s is larger than %s", path, text.Size(maxManifest))
	}
	return data, err
}
