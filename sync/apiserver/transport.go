package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Transport serves requests inside the process, without a socket: each runs the
// server in a goroutine of its own, and the body of the response streams as the
// server writes it. Cancelling the request or closing the body ends the server's
// side; RoundTrip and Close do not wait for it.
//
// The transport does not authenticate: code in this process can open the state
// file anyway.
func (s *Server) Transport() http.RoundTripper { return transport{s} }

type transport struct{ server *Server }

// RoundTrip returns when the headers of the response are complete, or the context
// of the request ends.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	inner := req.Clone(ctx)
	inner.RequestURI = req.URL.RequestURI()
	inner.RemoteAddr = "in-process"
	if inner.Host == "" {
		inner.Host = req.URL.Host
	}
	if inner.Body == nil {
		inner.Body = http.NoBody
	}
	reader, writer := io.Pipe()
	a := &answer{header: http.Header{}, body: writer, ready: make(chan struct{})}
	// The goroutine ends with the handler; the pipe and the context end the
	// handler when the client closes.
	go func() {
		defer cancel()
		defer func() {
			err := error(nil)
			if r := recover(); r != nil {
				err = fmt.Errorf("serve %s: %v", req.URL.Path, r)
				if r == http.ErrAbortHandler {
					err = http.ErrAbortHandler
				}
			}
			if req.Body != nil {
				_ = req.Body.Close()
			}
			a.WriteHeader(http.StatusOK)
			_ = writer.CloseWithError(err)
		}()
		t.server.serve(a, inner)
	}()
	select {
	case <-a.ready:
	case <-req.Context().Done():
		// The context ends the handler, the pipe its writes.
		err := context.Cause(req.Context())
		cancel()
		_ = reader.CloseWithError(err)
		return nil, err
	}
	stop := context.AfterFunc(req.Context(), func() { _ = reader.CloseWithError(context.Cause(req.Context())) })
	length, err := strconv.ParseInt(a.sent.Get("Content-Length"), 10, 64)
	if err != nil {
		length = -1
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", a.code, http.StatusText(a.code)), StatusCode: a.code,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.sent, ContentLength: length, Request: req,
		Body: &answerBody{PipeReader: reader, ctx: req.Context(), cancel: cancel, stop: stop, none: req.Method == http.MethodHead},
	}, nil
}

// answer is the server's side of a response.
type answer struct {
	header http.Header
	body   *io.PipeWriter
	once   sync.Once
	ready  chan struct{} // closed when code and sent are set
	code   int
	sent   http.Header
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(code int) {
	a.once.Do(func() {
		a.code, a.sent = code, maps.Clone(a.header)
		// Clients read the server's clock from it.
		a.sent.Set("Date", time.Now().UTC().Format(http.TimeFormat))
		close(a.ready)
	})
}

func (a *answer) Write(data []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(data)
}

// Flush sends the headers; bytes of the body are never held back.
func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }

// answerBody is the client's side of the body.
type answerBody struct {
	*io.PipeReader
	ctx    context.Context // of the request
	cancel context.CancelFunc
	stop   func() bool
	none   bool // the response to HEAD
}

func (b *answerBody) Read(p []byte) (int, error) {
	if b.none {
		return 0, io.EOF
	}
	n, err := b.PipeReader.Read(p)
	if err != nil && b.ctx.Err() != nil {
		// The server may have closed its side cleanly before the body was complete.
		err = context.Cause(b.ctx)
	}
	return n, err
}

// Close ends the server's side.
func (b *answerBody) Close() error {
	b.stop()
	b.cancel()
	return b.PipeReader.CloseWithError(errBodyClosed)
}

var errBodyClosed = errors.New("body of the answer is closed")
