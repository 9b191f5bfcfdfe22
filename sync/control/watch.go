package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"limpet/sync/snapshot"
)

const (
	// maxLine bounds a line: limpet sends no longer one.
	maxLine = 64 << 20
	// idleTimeout is how long a stream may be silent. A daemon sends a line at least
	// each 5 s, and takes a few times that under the worst load.
	idleTimeout = 20 * time.Second
	// helloTimeout is how long a known daemon may take to answer.
	helloTimeout = 4 * DialTimeout
)

// Watch receives the snapshots of a daemon over the stream of deltas. When the daemon
// is of another version and the stream is missing or not understood, it polls for
// full snapshots. Only one goroutine at a time may call Next.
type Watch struct {
	client      *Client
	ctx         context.Context
	idleTimeout time.Duration
	hello       atomic.Pointer[Hello]

	stream  *stream            // nil = none is open
	polling bool               // this daemon is polled for full snapshots
	last    *snapshot.Snapshot // last snapshot of this daemon; nil before the first
}

// Watch returns a Watch. Its connections end with ctx.
func (c *Client) Watch(ctx context.Context) *Watch {
	w := &Watch{client: c, ctx: ctx, idleTimeout: idleTimeout}
	w.hello.Store(&c.hello)
	return w
}

// Hello returns the last hello of the daemon.
func (w *Watch) Hello() Hello { return *w.hello.Load() }

// Next blocks until there is a snapshot newer than the last one, or ctx ends. After
// an error, which is an ErrNoDaemon, the next call reconnects, perhaps to another
// daemon.
func (w *Watch) Next(ctx context.Context) (*snapshot.Snapshot, error) {
	snap, err := w.next(ctx)
	if err != nil {
		w.close()
		w.polling, w.last = false, nil
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	w.last = snap
	return snap, nil
}

func (w *Watch) next(ctx context.Context) (*snapshot.Snapshot, error) {
	if w.stream == nil && !w.polling {
		if err := w.open(ctx); err != nil {
			return nil, err
		}
	}
	if !w.polling {
		snap, err := w.stream.next(ctx, w.last)
		if !errors.Is(err, errUnknownMessage) && !errors.Is(err, snapshot.ErrGap) {
			return snap, err
		}
		w.close()
		w.polling = true
	}
	var seq uint64
	if w.last != nil {
		seq = w.last.Seq
	}
	brief, cancel := context.WithTimeout(ctx, w.idleTimeout)
	defer cancel()
	return w.client.Next(brief, seq)
}

// open sends hello and opens the stream, if the daemon supports it.
func (w *Watch) open(ctx context.Context) error {
	brief, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	hello := new(Hello)
	if err := w.client.call(brief, http.MethodGet, "hello", nil, hello); err != nil {
		return err
	}
	w.hello.Store(hello)
	if w.polling = hello.Protocol != Protocol; w.polling {
		return nil
	}
	life, end := context.WithCancelCause(w.ctx)
	stop := context.AfterFunc(brief, func() { end(fmt.Errorf("%w: it does not answer", ErrNoDaemon)) })
	resp, err := w.client.send(life, http.MethodGet, "watch", nil)
	if !stop() && err == nil {
		resp.Body.Close()
		err = context.Cause(life)
	}
	switch {
	case errors.Is(err, ErrNoDaemon):
		end(nil)
		return err
	case err != nil: // the daemon has no stream
		end(nil)
		w.polling = true
		return nil
	}
	w.stream = &stream{in: bufio.NewReaderSize(resp.Body, 64<<10), ctx: life, end: end, idleTimeout: w.idleTimeout}
	return nil
}

func (w *Watch) close() {
	if w.stream != nil {
		w.stream.end(nil)
		w.stream = nil
	}
}

// stream is an open answer of the daemon, read line by line. Its context closes it.
type stream struct {
	in          *bufio.Reader
	ctx         context.Context
	end         context.CancelCauseFunc
	idleTimeout time.Duration
}

// errUnknownMessage reports a line that this version does not understand.
var errUnknownMessage = errors.New("the daemon sends what this program does not know")

// next reads up to the next snapshot and on over all lines that have arrived.
func (s *stream) next(ctx context.Context, shown *snapshot.Snapshot) (*snapshot.Snapshot, error) {
	stop := context.AfterFunc(ctx, func() { s.end(context.Cause(ctx)) })
	defer stop()
	late := time.AfterFunc(s.idleTimeout, func() { s.end(fmt.Errorf("%w: it has sent nothing for %s", ErrNoDaemon, s.idleTimeout)) })
	defer late.Stop()
	for fresh := false; !fresh || s.hasLine(); {
		line, err := readLine(s.in, maxLine)
		if err != nil {
			if cause := context.Cause(s.ctx); cause != nil {
				err = cause
			}
			if errors.Is(err, errUnknownMessage) || errors.Is(err, ErrNoDaemon) {
				return nil, err
			}
			return nil, fmt.Errorf("%w: %w", ErrNoDaemon, err)
		}
		next, err := applyLine(shown, line)
		if err != nil {
			return nil, err
		}
		if next != shown {
			shown, fresh = next, true
		}
		late.Reset(s.idleTimeout)
	}
	return shown, nil
}

// hasLine reports whether a full line can be read without blocking.
func (s *stream) hasLine() bool {
	have, _ := s.in.Peek(s.in.Buffered())
	return bytes.IndexByte(have, '\n') >= 0
}

// applyLine returns the snapshot after a line, nil before the first.
func applyLine(shown *snapshot.Snapshot, line []byte) (*snapshot.Snapshot, error) {
	var l Message
	if err := json.Unmarshal(line, &l); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnknownMessage, err)
	}
	switch {
	case l.Type == typeHello:
		return shown, nil
	case l.Type == typeSnapshot && l.Snapshot != nil:
		return l.Snapshot, nil
	case l.Type == typeDelta && l.Delta != nil && shown != nil:
		return snapshot.Apply(shown, l.Delta)
	}
	return nil, fmt.Errorf("%w: %q", errUnknownMessage, l.Type)
}

// readLine reads a line of at most max bytes. A line without an end is an error.
func readLine(in *bufio.Reader, max int) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(line) > max:
			return nil, fmt.Errorf("%w: a line of more than %d bytes", errUnknownMessage, max)
		}
	}
}
