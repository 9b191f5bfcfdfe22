package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"limpet/sync/snapshot"
)

const (
	// idleTimeout is how long a stream may be silent. A daemon sends a line at least each 5 s, and
	// takes a few times that under the worst load.
	idleTimeout = 20 * time.Second
	// writeTimeout is how long a reader may leave sent data unread, beyond the buffer of the socket,
	// before its connection is closed.
	writeTimeout = 10 * time.Second
)

// Message is one line of the stream: first hello, then a snapshot, then deltas.
type Message struct {
	Hello    *Hello             `json:"hello,omitempty"`
	Snapshot *snapshot.Snapshot `json:"snapshot,omitempty"`
	Delta    *snapshot.Delta    `json:"delta,omitempty"`
}

// watch streams messages until the client disconnects, the server stops, or sent data stays unread.
// A slow reader gets fewer deltas: each one is from the last snapshot that it was sent to the
// newest.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := http.NewResponseController(w)
	send := func(m Message) error {
		return errors.Join(out.SetWriteDeadline(time.Now().Add(writeTimeout)), json.NewEncoder(w).Encode(m), out.Flush())
	}
	err := send(Message{Hello: &s.Hello})
	for last := (*snapshot.Snapshot)(nil); err == nil; {
		m := Message{}
		if last == nil {
			last, err = s.Agent.Next(r.Context(), 0)
			m.Snapshot = last
		} else if next, nextErr := s.Agent.Next(r.Context(), last.Seq); nextErr != nil {
			err = nextErr
		} else {
			m.Delta, last = snapshot.Diff(last, next), next
		}
		if err == nil {
			err = send(m)
		}
	}
}

// Watch has the calls of a Client, and the snapshots of its daemon as a stream of deltas. Only one
// goroutine at a time may call Next.
type Watch struct {
	*Client
	ctx         context.Context // of all streams
	idleTimeout time.Duration
	hello       atomic.Pointer[Hello]

	in   *bufio.Reader      // the stream; nil = none is open
	last *snapshot.Snapshot // of the stream; nil before the first
	life context.Context    // of the stream
	end  context.CancelCauseFunc
}

// Watch returns a Watch. Its connections end with ctx.
func (c *Client) Watch(ctx context.Context) *Watch {
	w := &Watch{Client: c, ctx: ctx, idleTimeout: idleTimeout}
	w.hello.Store(&c.hello)
	return w
}

// Hello returns the last hello of the daemon.
func (w *Watch) Hello() Hello { return *w.hello.Load() }

// Test tests an object that a dashboard shows.
func (w *Watch) Test(ctx context.Context, of snapshot.Subject) ([]snapshot.Finding, error) {
	return call[[]snapshot.Finding](ctx, w.Client, "subject/test", of)
}

// Next blocks until there is a snapshot newer than the last one, or ctx ends. After an error, which
// is an ErrNoDaemon, the next call reconnects, perhaps to another daemon.
func (w *Watch) Next(ctx context.Context) (*snapshot.Snapshot, error) {
	if w.in == nil {
		w.life, w.end = context.WithCancelCause(w.ctx)
	}
	stop := context.AfterFunc(ctx, func() { w.end(context.Cause(ctx)) })
	defer stop()
	silent := time.AfterFunc(w.idleTimeout, func() { w.end(fmt.Errorf("it has sent nothing for %s", w.idleTimeout)) })
	defer silent.Stop()
	err := w.read(silent)
	if err == nil {
		return w.last, nil
	}
	if cause := context.Cause(w.life); cause != nil {
		err = cause
	}
	w.end(nil)
	w.in, w.last = nil, nil
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, ErrNoDaemon):
		return nil, err
	}
	return nil, fmt.Errorf("%w: %w", ErrNoDaemon, err)
}

// read reads up to the next snapshot and on over all lines that have arrived.
func (w *Watch) read(silent *time.Timer) error {
	if w.in == nil {
		resp, err := w.send(w.life, "watch", nil)
		if err != nil {
			return err
		}
		w.in = bufio.NewReaderSize(resp.Body, 64<<10) // the end of w.life closes it
	}
	for fresh := false; !fresh || w.hasLine(); {
		line, err := w.in.ReadBytes('\n')
		if err != nil {
			return err
		}
		var m Message
		if err := json.Unmarshal(line, &m); err != nil {
			return fmt.Errorf("read its stream: %w", err)
		}
		silent.Reset(w.idleTimeout)
		switch {
		case m.Hello != nil:
			w.hello.Store(m.Hello)
			continue
		case m.Snapshot != nil:
			w.last = m.Snapshot
		case m.Delta != nil && w.last != nil:
			if w.last, err = snapshot.Apply(w.last, m.Delta); err != nil {
				return err
			}
		default:
			return errors.New("its stream is that of another version of limpet")
		}
		fresh = true
	}
	return nil
}

// hasLine reports whether a full line can be read without blocking.
func (w *Watch) hasLine() bool {
	have, _ := w.in.Peek(w.in.Buffered())
	return bytes.IndexByte(have, '\n') >= 0
}

// What a Log keeps.
const (
	maxLogLines = 5000
	maxLogBytes = 2 << 20
)

// Log keeps the last lines of the log of an agent, for readers over the socket. It is an io.Writer
// of one line a call. The zero value is empty.
type Log struct {
	mu    sync.Mutex // guards the fields below
	lines [][]byte
	bytes int
	end   int           // the number of lines ever written
	more  chan struct{} // closed by the next line; nil = without a reader that waits
}

// Write implements io.Writer.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines, l.bytes, l.end = append(l.lines, bytes.Clone(line)), l.bytes+len(line), l.end+1
	for len(l.lines) > maxLogLines || l.bytes > maxLogBytes {
		l.bytes -= len(l.lines[0])
		l.lines = l.lines[1:]
	}
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
	return len(line), nil
}

// after returns the kept lines from number n on, the number of the next one, and a channel that it
// closes.
func (l *Log) after(n int) (text []byte, next int, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more == nil {
		l.more = make(chan struct{})
	}
	return bytes.Join(l.lines[max(0, len(l.lines)-(l.end-n)):], nil), l.end, l.more
}

// logs streams the kept lines, and with ?follow further ones until the client or the server ends. A
// reader that is too slow misses lines.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	if s.Log == nil {
		return
	}
	out := http.NewResponseController(w)
	for n := 0; ; {
		text, next, more := s.Log.after(n)
		n = next
		if out.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil {
			return
		}
		if _, err := w.Write(text); err != nil || out.Flush() != nil || !r.URL.Query().Has("follow") {
			return
		}
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}

// Logs returns the log of the daemon, a JSON object a line; with follow it goes on until ctx ends.
func (c *Client) Logs(ctx context.Context, follow bool) (io.ReadCloser, error) {
	name := "logs"
	if follow {
		name += "?follow"
	}
	resp, err := c.send(ctx, name, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
