package command

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
)

// ExitPipe is the exit code after a reader has closed the pipe, as a shell reports SIGPIPE. No error is
// printed.
const ExitPipe = 128 + int(syscall.SIGPIPE)

// stdout is the output for data. The first failed write ends the command; later writes are dropped. So
// commands need not check each write, and none succeeds when its data was lost.
type stdout struct {
	w   io.Writer
	end context.CancelCauseFunc
	// accessible has tables written as names and values.
	accessible bool
	// colors are those of states in tables; nil = no colours.
	colors ColorFunc

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

// IsAccessible reports whether w gets names and values instead of tables.
func IsAccessible(w io.Writer) bool {
	out, ok := w.(*stdout)
	return ok && out.accessible
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
