package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// requestLog writes one JSON line per request, at the moment when the status is
// sent: a client that has its answer finds its request in the file.
type requestLog struct {
	token string // of the administrator, see userOf

	mu   sync.Mutex // one line at a time
	file *os.File   // nil: nothing is written
}

// requestLine is one request. Began is the time when it came and At that of the
// answer, in milliseconds since the epoch. Body is that of a write, as it came, when it is JSON; UID and
// Version are those of the object in the answer: versions tell in which order
// writes took effect.
type requestLine struct {
	Method  string          `json:"method"`
	Path    string          `json:"path"`
	Code    int             `json:"code"`
	Began   int64           `json:"began"`
	At      int64           `json:"at"`
	Agent   string          `json:"agent,omitempty"`
	User    string          `json:"user,omitempty"`
	Query   string          `json:"query,omitempty"`
	UID     string          `json:"uid,omitempty"`
	Version string          `json:"version,omitempty"`
	Body    json.RawMessage `json:"body,omitempty"`
}

func openRequestLog(path, token string) (*requestLog, error) {
	if path == "" {
		return &requestLog{}, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return &requestLog{file: f, token: token}, err
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
		rec := &recorder{ResponseWriter: w, log: l, line: l.line(r)}
		if r.Method != http.MethodGet && r.Body != nil {
			r.Body = tee{io.TeeReader(r.Body, &rec.body), r.Body}
		}
		h.ServeHTTP(responsewriter.WrapForHTTP1Or2(rec), r)
	})
}

func (l *requestLog) line(r *http.Request) requestLine {
	return requestLine{Began: time.Now().UnixMilli(), Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Agent: r.UserAgent(), User: userOf(r, l.token)}
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
	code int // 0 = not known yet
	body bytes.Buffer
}

var _ responsewriter.UserProvidedDecorator = (*recorder)(nil)

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) WriteHeader(code int) {
	r.code = code
	if r.line.Method == http.MethodGet || code >= http.StatusMultipleChoices { // else the answer tells more
		r.once.Do(func() { r.log.write(r.line, code, r.body.Bytes(), nil) })
	}
	r.ResponseWriter.WriteHeader(code)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.code == 0 {
		r.code = http.StatusOK
	}
	r.once.Do(func() { r.log.write(r.line, r.code, r.body.Bytes(), p) })
	return r.ResponseWriter.Write(p)
}

func (l *requestLog) write(line requestLine, code int, body, answer []byte) {
	line.Code, line.At = code, time.Now().UnixMilli()
	var object struct {
		Metadata struct{ UID, ResourceVersion string }
	}
	if line.Method != http.MethodGet && json.Unmarshal(answer, &object) == nil {
		line.UID, line.Version = object.Metadata.UID, object.Metadata.ResourceVersion
	}
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
