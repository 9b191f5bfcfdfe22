package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// requestLog writes one JSON line per request, at the moment when the status is
// sent: a client that has its answer finds its request in the file.
type requestLog struct {
	token string // of the administrator, see userOf

	mu   sync.Mutex // one line at a time; guards what follows
	file *os.File   // nil: nothing is written
	// open holds the writes that were read and are not answered yet; each channel is
	// closed by its end.
	open map[*recorder]chan struct{}
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
	return &requestLog{file: f, token: token, open: map[*recorder]chan struct{}{}}, err
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
		if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Body != nil {
			r.Body = &tee{r.Body, rec}
			if r.ContentLength == 0 {
				l.enter(rec)
			}
			defer l.leave(rec)
		}
		h.ServeHTTP(responsewriter.WrapForHTTP1Or2(rec), r)
	})
}

// enter notes that a write has been read and may take effect from now on; a body
// that is stuck on a bad link has none, and nobody waits for it.
func (l *requestLog) enter(rec *recorder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[rec] == nil && !rec.gone { // what gives up on a request may leave its reader behind
		l.open[rec] = make(chan struct{})
	}
}

// leave notes that a request has come to its end.
func (l *requestLog) leave(rec *recorder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rec.gone = true
	if done := l.open[rec]; done != nil {
		delete(l.open, rec)
		close(done)
	}
}

// settle waits until all writes that are under way now are in the file. A watch
// shows what a write has done before its answer begins, so who has seen the
// effect may find no line of it yet.
func (l *requestLog) settle(ctx context.Context) error {
	l.mu.Lock()
	open := slices.Collect(maps.Values(l.open))
	l.mu.Unlock()
	for _, done := range open {
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (l *requestLog) line(r *http.Request) requestLine {
	return requestLine{Began: time.Now().UnixMilli(), Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Agent: r.UserAgent(),
		User: userOf(r, l.token)}
}

// tee is a request body that is kept while it is read.
type tee struct {
	io.ReadCloser
	rec *recorder
}

func (t *tee) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	t.rec.body.Write(p[:n])
	if err == io.EOF {
		t.rec.log.enter(t.rec)
	}
	return n, err
}

type recorder struct {
	http.ResponseWriter
	log  *requestLog
	once sync.Once
	line requestLine
	code int  // 0 = not known yet
	gone bool // guarded by log.mu: the request has come to its end
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
