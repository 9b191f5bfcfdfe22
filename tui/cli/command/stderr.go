package command

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// stderr is where a person is told what goes on. A command waits until that is taken,
// as who stops a terminal expects. What serves others does not: see aside.
type stderr struct {
	w      io.Writer
	lines  *lineQueue // nil = each write waits
	colors ColorFunc  // of the first word of errors; nil = there are no colours
}

func (s *stderr) Write(p []byte) (int, error) {
	if s.lines != nil {
		s.lines.add(p)
		return len(p), nil
	}
	return s.w.Write(p)
}

// aside has lines written beside the work from here on; it is called once. Lost makes the line that tells
// how many are lost.
func (s *stderr) aside(lost func(n int) []byte) {
	s.lines = newLineQueue(s.w, lost)
}

// end waits for the last lines, for lastLines at most.
func (s *stderr) end() {
	if s.lines != nil {
		s.lines.end(lastLines)
	}
}

const (
	// linesKept bounds the lines that wait, in bytes: some thousand of them. While one
	// is being written as many may wait once more.
	linesKept = 1 << 20
	// linePatience is how long who logs waits until the line is written. So a line is
	// out before what it tells of goes on, also when that is a crash, and a reader
	// that is merely slow loses none; and it is short beside the margin of a lease.
	linePatience = 50 * time.Millisecond
	// lastLines is how long the end of the process may wait for its last lines.
	lastLines = 3 * time.Second
)

// lineQueue writes lines from a goroutine of its own, so that a w that takes nothing,
// as a terminal after Ctrl-S or a pipe that nobody reads, stops nobody who logs. When
// too many wait the oldest make room, and their number is told in their place.
type lineQueue struct {
	w    io.Writer
	lost func(n int) []byte
	wake chan struct{} // holds one: next has lines
	over chan struct{} // closed at the end

	mu    sync.Mutex // guards what follows
	next  *waiting   // what is written next
	last  *waiting   // where the newest line is; nil = there was none
	stuck bool       // w has not taken what it was given, so nobody waits for it
}

// waiting are lines that are written together.
type waiting struct {
	lines [][]byte
	bytes int
	lost  int           // lines before these that made room
	done  chan struct{} // closed when w has taken them, or refused
}

func newLineQueue(w io.Writer, lost func(n int) []byte) *lineQueue {
	q := &lineQueue{w: w, lost: lost, wake: make(chan struct{}, 1), over: make(chan struct{}), next: &waiting{done: make(chan struct{})}}
	go q.write()
	return q
}

// add takes a line. It waits until that is written, for linePatience at most.
func (q *lineQueue) add(line []byte) {
	q.mu.Lock()
	to, stuck := q.next, q.stuck
	q.last = to
	to.lines = append(to.lines, bytes.Clone(line))
	to.bytes += len(line)
	for ; to.bytes > linesKept && len(to.lines) > 1; to.lost++ {
		to.bytes -= len(to.lines[0])
		to.lines = to.lines[1:]
	}
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default: // it knows
	}
	if stuck {
		return
	}
	patience := time.NewTimer(linePatience)
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

// write hands lines on until the end, each with a write of its own.
func (q *lineQueue) write() {
	for {
		select {
		case <-q.wake:
		case <-q.over:
			return
		}
		q.mu.Lock()
		now := q.next
		q.next = &waiting{done: make(chan struct{})}
		q.mu.Unlock()
		if now.lost > 0 {
			_, _ = q.w.Write(q.lost(now.lost))
		}
		for _, line := range now.lines {
			_, _ = q.w.Write(line) // there is nobody else to tell
		}
		q.mu.Lock()
		q.stuck = q.stuck && len(q.next.lines) > 0 // as long as it is behind
		close(now.done)
		q.mu.Unlock()
	}
}

// end waits until all lines are written, for within at most, and ends the writer
// unless that is at a write still.
func (q *lineQueue) end(within time.Duration) {
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
