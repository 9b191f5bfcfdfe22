package command

import (
	"bytes"
	"io"
	"sync"
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
	// maxQueuedBytes bounds the queued lines, in bytes. While a batch is being written, as much again may queue.
	maxQueuedBytes = 1 << 20
	// lineTimeout is how long a log call waits for its line. So a line is written before a crash that it
	// precedes, a slow reader loses none, and the wait is short compared to the margin of a lease.
	lineTimeout = 50 * time.Millisecond
	// flushTimeout bounds the wait for the last lines at exit.
	flushTimeout = 3 * time.Second
)

// lineWriter writes lines from its own goroutine, so that a blocked writer, such as a terminal after Ctrl-S,
// blocks no log call. When the queue is full, the oldest lines are dropped and counted.
type lineWriter struct {
	w    io.Writer
	lost func(n int) []byte
	wake chan struct{} // holds one: next has lines
	over chan struct{} // closed at the end

	mu    sync.Mutex // guards the fields below
	next  *lineBatch // the next batch
	last  *lineBatch // batch of the newest line; nil = none yet
	stuck bool       // the writer is blocked, so log calls do not wait
}

// lineBatch is a batch of lines.
type lineBatch struct {
	lines [][]byte
	bytes int
	lost  int           // dropped lines before these
	done  chan struct{} // closed when the batch was written or failed
}

func newLineQueue(w io.Writer, lost func(n int) []byte) *lineWriter {
	q := &lineWriter{w: w, lost: lost, wake: make(chan struct{}, 1), over: make(chan struct{}), next: &lineBatch{done: make(chan struct{})}}
	go q.write()
	return q
}

// add queues a line and waits until it is written, at most lineTimeout.
func (q *lineWriter) add(line []byte) {
	q.mu.Lock()
	to, stuck := q.next, q.stuck
	q.last = to
	to.lines = append(to.lines, bytes.Clone(line))
	to.bytes += len(line)
	for ; to.bytes > maxQueuedBytes && len(to.lines) > 1; to.lost++ {
		to.bytes -= len(to.lines[0])
		to.lines = to.lines[1:]
	}
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default: // it is awake
	}
	if stuck {
		return
	}
	patience := time.NewTimer(lineTimeout)
	defer patience.Stop()
	select {
	case <-to.done:
		return
	case <-patience.C:
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-to.done:
	default:
		q.stuck = true
	}
}

// write writes lines until the end, each in one call.
func (q *lineWriter) write() {
	for {
		select {
		case <-q.wake:
		case <-q.over:
			return
		}
		q.mu.Lock()
		now := q.next
		q.next = &lineBatch{done: make(chan struct{})}
		q.mu.Unlock()
		if now.lost > 0 {
			_, _ = q.w.Write(q.lost(now.lost))
		}
		for _, line := range now.lines {
			_, _ = q.w.Write(line) // the error has no other place to go
		}
		q.mu.Lock()
		q.stuck = q.stuck && len(q.next.lines) > 0 // as long as it lags behind
		close(now.done)
		q.mu.Unlock()
	}
}

// end waits until all lines are written, at most within, and stops the goroutine unless it is blocked.
func (q *lineWriter) end(within time.Duration) {
	q.mu.Lock()
	last := q.last
	q.mu.Unlock()
	if last != nil {
		late := time.NewTimer(within)
		defer late.Stop()
		select {
		case <-last.done:
		case <-late.C:
		}
	}
	close(q.over)
}
