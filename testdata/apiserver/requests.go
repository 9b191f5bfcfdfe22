package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"sync"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// requestLog writes one JSON line per request, at the moment when the status is
// sent: a client that has its answer finds its request in the file.
type requestLog struct {
	mu   sync.Mutex // one line at a time
	file *os.File   // nil: nothing is written
}

// requestLine is one request. Body is that of a write, as it came, when it is JSON.
type requestLine struct {
	Method string          `json:"method"`
	Path   string          `json:"path"`
	Code   int             `json:"code"`
	Agent  string          `json:"agent,omitempty"`
	Body   json.RawMessage `json:"body,omitempty"`
}

func openRequestLog(path string) (*requestLog, error) {
	if path == "" {
		return &requestLog{}, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return &requestLog{file: f}, err
}

// Close closes the file. Requests that come later are not logged.
func (l *requestLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	f := l.file
	l.file = nil
	return f.Close()
}

func (l *requestLog) wrap(h http.Handler) http.Handler {
	if l.file == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		line := requestLine{Method: r.Method, Path: r.URL.Path, Agent: r.UserAgent()}
		rec := &recorder{ResponseWriter: w, log: l, line: line}
		if r.Method != http.MethodGet && r.Body != nil {
			r.Body = tee{io.TeeReader(r.Body, &rec.body), r.Body}
		}
		h.ServeHTTP(responsewriter.WrapForHTTP1Or2(rec), r)
	})
}

// tee is a request body that is kept while it is read.
type tee struct {
	io.Reader
	io.Closer
}

type recorder struct {
	http.ResponseWriter
	log  *requestLog
	once sync.Once
	line requestLine
	body bytes.Buffer
}

var _ responsewriter.UserProvidedDecorator = (*recorder)(nil)

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) WriteHeader(code int) {
	r.once.Do(func() { r.log.write(r.line, code, r.body.Bytes()) })
	r.ResponseWriter.WriteHeader(code)
}

func (r *recorder) Write(p []byte) (int, error) {
	r.once.Do(func() { r.log.write(r.line, http.StatusOK, r.body.Bytes()) })
	return r.ResponseWriter.Write(p)
}

func (l *requestLog) write(line requestLine, code int, body []byte) {
	line.Code = code
	if json.Valid(body) {
		line.Body = body
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		// A line that cannot be written shows as a missing request in the test.
		_ = json.NewEncoder(l.file).Encode(line)
	}
}
