package command

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/term"
)

// System returns the streams and the environment of this process.
func System() Streams {
	return Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Lookup: os.LookupEnv}
}

// Streams are the input, the outputs and the environment of a command.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
	// Lookup reads the environment, as os.LookupEnv does.
	Lookup func(name string) (value string, set bool)
}

// Getenv returns the value of a variable, "" when it is not set.
func (w Streams) Getenv(name string) string {
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

// ExitPipe is the exit code after a reader has closed the pipe, as a shell reports SIGPIPE. No
// error is printed.
const ExitPipe = 128 + int(syscall.SIGPIPE)

// stdout is the output for data. The first failed write ends the command; later writes are dropped.
// So commands need not check each write, and none succeeds when its data was lost.
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

// outputClosed is the cause of a context whose output was closed. Other packages see it as a
// cancellation.
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
