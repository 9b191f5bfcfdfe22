package control

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// What a Log keeps.
const (
	maxLogLines = 5000
	maxLogBytes = 2 << 20
)

// Log keeps the last lines of the log of an agent, for readers over the socket. It is an io.Writer of one line a call. The
// zero value is empty.
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

// after returns the kept lines from number n on, the number of the next one, and a channel that it closes.
func (l *Log) after(n int) (text []byte, next int, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more == nil {
		l.more = make(chan struct{})
	}
	return bytes.Join(l.lines[max(0, len(l.lines)-(l.end-n)):], nil), l.end, l.more
}

// logs streams the kept lines, and with ?follow further ones until the client or the server ends. A reader that is too
// slow misses lines.
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
