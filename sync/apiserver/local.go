package apiserver

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"time"
)

// Requests inside the process are calls: no connection is made, and nothing becomes the text of
// HTTP and is read again. They have what a client sees of a connection: deadlines, an answer that
// streams, a server that has closed.

// local is the transport to a server in its own process. It does not authenticate.
type local struct {
	server *Server

	mu      sync.Mutex // guards the fields below
	closed  bool
	running sync.WaitGroup // requests
}

// close refuses new requests and gives running ones some time to finish.
func (l *local) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	finished := make(chan struct{})
	go func() { l.running.Wait(); close(finished) }()
	select {
	case <-finished:
	case <-time.After(drainTimeout):
	}
}

// enter counts a request; false = the server has closed.
func (l *local) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.running.Add(1)
	}
	return !l.closed
}

// RoundTrip implements http.RoundTripper. It returns when the answer has begun, or when the context
// of the request ends: the state file may take longer.
func (l *local) RoundTrip(req *http.Request) (*http.Response, error) {
	if !l.enter() {
		return nil, net.ErrClosed
	}
	ctx, cancel := context.WithCancel(req.Context())
	in := req.WithContext(ctx)
	if in.Method == "" {
		in.Method = http.MethodGet
	}
	if in.UserAgent() == "" {
		in.Header = in.Header.Clone()
		in.Header.Set("User-Agent", "Go-http-client/1.1")
	}
	a := newAnswer(ctx, cancel, req)
	go func() {
		defer l.running.Done()
		defer a.end(l.server.log)
		l.server.serve(a, in, time.Time{})
		if in.Body != nil {
			_ = in.Body.Close()
		}
	}()
	select {
	case <-a.head:
		return &a.response, nil
	case <-ctx.Done():
		cancel()
		return nil, context.Cause(ctx)
	}
}

// mostWaiting is how much of an answer waits to be read, in bytes.
const mostWaiting = 256 << 10

// answer is the answer to a request: the http.ResponseWriter of its handler, and the body that the
// client reads.
type answer struct {
	response http.Response
	ctx      context.Context // of the handler
	cancel   context.CancelFunc
	wake     func() bool   // stops the broadcast at the end of ctx
	head     chan struct{} // closed when the header is final

	mu      sync.Mutex // guards the fields below
	moved   sync.Cond  // their changes, and the end of ctx
	begun   bool       // head is closed
	waiting bytes.Buffer
	err     error // for the reader when nothing waits; io.EOF after the handler has returned
}

func newAnswer(ctx context.Context, cancel context.CancelFunc, req *http.Request) *answer {
	a := &answer{ctx: ctx, cancel: cancel, head: make(chan struct{})}
	a.moved.L = &a.mu
	a.wake = context.AfterFunc(ctx, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.moved.Broadcast()
	})
	a.response = http.Response{
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: a, ContentLength: -1, Request: req,
	}
	return a
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.response.Header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin(code)
}

// begin makes the header final, once. a.mu is held.
func (a *answer) begin(code int) {
	if a.begun {
		return
	}
	a.begun = true
	r := &a.response
	r.StatusCode, r.Status = code, strconv.Itoa(code)+" "+http.StatusText(code)
	r.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat)) // the clock of clients
	if n, err := strconv.ParseInt(r.Header.Get("Content-Length"), 10, 64); err == nil {
		r.ContentLength = n
	}
	close(a.head)
}

// Write implements http.ResponseWriter. It blocks while much of the answer waits to be read.
func (a *answer) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin(http.StatusOK)
	a.drain(mostWaiting)
	switch {
	case a.ctx.Err() != nil:
		return 0, context.Cause(a.ctx)
	case a.response.Request.Method == http.MethodHead:
		return len(p), nil
	}
	a.moved.Broadcast()
	return a.waiting.Write(p)
}

// Flush implements http.Flusher. It blocks until the client has read what is written: a watch that
// is not read holds nothing back but what it has sent.
func (a *answer) Flush() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin(http.StatusOK)
	a.drain(0)
}

// drain waits until no more than that waits to be read. a.mu is held.
func (a *answer) drain(most int) {
	for a.waiting.Len() > most && a.ctx.Err() == nil {
		a.moved.Wait()
	}
}

// end ends the answer when its handler has returned, or panics.
func (a *answer) end(log *slog.Logger) {
	err := io.EOF
	if fault := recover(); fault != nil {
		log.Error("serve request", "panic", fault, "stack", string(debug.Stack()))
		err = io.ErrUnexpectedEOF
	}
	if err == io.EOF && a.ctx.Err() != nil { // what is written may be half of the answer
		err = context.Cause(a.ctx)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
	a.begin(http.StatusOK)
	a.moved.Broadcast()
}

// Read implements io.Reader for the client.
func (a *answer) Read(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.waiting.Len() == 0 && a.err == nil && a.ctx.Err() == nil {
		a.moved.Wait()
	}
	switch {
	case a.waiting.Len() > 0:
		a.moved.Broadcast()
		return a.waiting.Read(p)
	case a.err != nil:
		return 0, a.err
	}
	return 0, context.Cause(a.ctx)
}

// Close implements io.Closer for the client. It ends the handler of a watch.
func (a *answer) Close() error {
	a.wake()
	a.cancel()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.moved.Broadcast()
	return nil
}
