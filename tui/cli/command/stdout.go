package command

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
)

// ExitPipe is what a shell reports of a program whose reader has gone away. A
// command says nothing about it: the reader had enough.
const ExitPipe = 128 + int(syscall.SIGPIPE)

// stdout is where data goes. The first write that fails ends the command; what
// is written after it goes nowhere. So no command has to look at each of its
// writes, and none reports success when its data got lost.
type stdout struct {
	w   io.Writer
	end context.CancelCauseFunc
	// labels says that it is read out: tables are lists of names and values.
	accessible bool
	// ink colours the words of state in tables; nil = there are no colours.
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
		s.end(unread{err})
	}
	return n, err
}

// IsAccessible says that what is written to w is read out.
func IsAccessible(w io.Writer) bool {
	out, ok := w.(*stdout)
	return ok && out.accessible
}

// OutFile is the file behind an input or an output, if it is one.
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

// unread is the cause of a context whose command has nobody to print to. For
// all rooms below it is a cancellation like any other.
type unread struct{ error }

func (unread) Is(target error) bool { return target == context.Canceled }

// failure is what the end of the command has to say about its output; nil when
// all of it was taken.
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
