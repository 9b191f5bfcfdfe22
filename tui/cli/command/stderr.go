package command

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// stderr is the output for notes, errors and logs. Writes of a command block, so that Ctrl-S stops it as
// expected. A server's do not: see aside.
type stderr struct {
	w      io.Writer
	lines  *lineWriter // nil = each write blocks
	colors ColorFunc   // of the first word of errors; nil = no colours
}

func (s *stderr) Write(p []byte) (int, error) {
	if s.lines != nil {
		s.lines.add(p)
		return len(p), nil
	}
	return s.w.Write(p)
}

// aside has lines written by another goroutine from now on; it is called once. Lost makes the line that
// reports how many were dropped.
func (s *stderr) aside(lost func(n int) []byte) {
	s.lines = newLineQueue(s.w, lost)
}

// end waits for the last lines, at most flushTimeout.
func (s *stderr) end() {
	if s.lines != nil {
		s.lines.end(flushTimeout)
	}
}

const (
	// maxQueued bounds the lines that wait to be written.
	maxQueued = 2048
	// lineTimeout is how long a log call waits for its line. So a line is written before a crash that it
	// precedes, a slow reader loses none, and the wait is short compared to the margin of a lease.
	lineTimeout = 50 * time.Millisecond
	// flushTimeout bounds the wait for the last lines at exit.
	flushTimeout = 3 * time.Second
)

// lineWriter writes lines from its own goroutine, so that a blocked writer, such as a terminal after Ctrl-S,
// blocks no log call. When the queue is full, the oldest lines are dropped and counted.
type lineWriter struct {
	w       io.Writer
	lost    func(n int) []byte
	mu      sync.Mutex // serialises add
	queue   chan queuedLine
	dropped atomic.Int64
	stuck   atomic.Bool // the writer is blocked, or has ended, so log calls do not wait
}

type queuedLine struct {
	text    []byte        // nil = the end
	written chan struct{} // closed then
}

func newLineQueue(w io.Writer, lost func(n int) []byte) *lineWriter {
	q := &lineWriter{w: w, lost: lost, queue: make(chan queuedLine, maxQueued)}
	go q.write()
	return q
}

// add queues a line and waits until it is written, at most lineTimeout.
func (q *lineWriter) add(text []byte) {
	if written := q.push(bytes.Clone(text)); !q.stuck.Load() && !within(lineTimeout, written) {
		q.stuck.Store(true)
	}
}

// push queues a line. It drops the oldest one when the queue is full.
func (q *lineWriter) push(text []byte) (written <-chan struct{}) {
	l := queuedLine{text, make(chan struct{})}
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		select {
		case q.queue <- l:
			return l.written
		default:
		}
		select {
		case <-q.queue:
			q.dropped.Add(1)
		default:
		}
	}
}

// write writes lines until the end, each in one call. An error has no other place to go.
func (q *lineWriter) write() {
	for l := range q.queue {
		if n := q.dropped.Swap(0); n > 0 {
			_, _ = q.w.Write(q.lost(int(n)))
		}
		if l.text != nil {
			_, _ = q.w.Write(l.text)
		}
		close(l.written)
		if l.text == nil {
			return
		}
		if len(q.queue) == 0 {
			q.stuck.Store(false)
		}
	}
}

// end waits until all lines are written, at most so long, and stops the goroutine unless it is blocked.
func (q *lineWriter) end(limit time.Duration) {
	within(limit, q.push(nil))
	q.stuck.Store(true)
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
