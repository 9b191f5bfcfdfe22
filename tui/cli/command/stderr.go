package command

import (
	"bytes"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// stderr is the output for notes, errors and logs. Writes of a command block, so that Ctrl-S stops
// it as expected. Those of a server do not after writeInBackground: a blocked terminal must not
// delay the renewal of a lease.
type stderr struct {
	w      io.Writer
	colors ColorFunc

	mu      sync.Mutex // one write at a time
	queue   chan queuedLine
	dropped atomic.Int64
	stuck   atomic.Bool // the writer is blocked, or has ended: no write waits for it
}

type queuedLine struct {
	text    []byte        // nil = the end
	written chan struct{} // closed then
}

const (
	// maxQueued bounds the lines that wait to be written; further ones are dropped and counted.
	maxQueued = 2048
	// lineTimeout is how long a log call waits for its line, so that a line is written before a crash
	// that it precedes. It is short compared to the margin of a lease.
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

// writeInBackground has lines written by another goroutine from now on. It logs to lost, which
// writes to the same output, how many were dropped. An error of a write has no other place to go.
func (s *stderr) writeInBackground(lost *slog.Logger) {
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
