package kube

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// shelf is a small API server that keeps objects of one resource, remembers
// what it was asked, and misbehaves on demand. It speaks the wire format of a
// real one; how the rest of the world behaves is tested against a real one.
type shelf struct {
	t *testing.T

	mu       sync.Mutex // guards the fields below
	revision int
	oldest   int // watches from before are answered with 410
	objects  map[string]*unstructured.Unstructured
	events   []shelfEvent
	changed  chan struct{} // closed and replaced at every change
	asked    []asked

	goneInside bool // 410 as an event of the watch, not as its status
	silent     bool // watches send nothing more
	pageSize   int  // most objects of a page; 0 = as asked
	fail       func(r *http.Request) (status int, header map[string]string, body string)
}

type shelfEvent struct {
	revision int
	kind     string
	object   *unstructured.Unstructured
}

type asked struct {
	at    time.Time
	watch bool
	query string
}

var things = schema.GroupVersionResource{Group: "test.limpet", Version: "v1", Resource: "things"}

func newShelf(t *testing.T) *shelf {
	return &shelf{t: t, revision: 100, objects: map[string]*unstructured.Unstructured{}, changed: make(chan struct{})}
}

func (s *shelf) put(namespace, name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	key, kind := objectKey(namespace, name), "ADDED"
	if _, has := s.objects[key]; has {
		kind = "MODIFIED"
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "test.limpet/v1", "kind": "Thing", "spec": map[string]any{"value": value},
		"metadata": map[string]any{"namespace": namespace, "name": name, "uid": "uid-" + name,
			"resourceVersion": strconv.Itoa(s.revision),
			"managedFields":   []any{map[string]any{"manager": "test"}}},
	}}
	s.objects[key] = u
	s.publish(kind, u)
}

func (s *shelf) drop(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	key := objectKey(namespace, name)
	u := s.objects[key].DeepCopy()
	u.SetResourceVersion(strconv.Itoa(s.revision))
	delete(s.objects, key)
	s.publish("DELETED", u)
}

func (s *shelf) publish(kind string, u *unstructured.Unstructured) {
	s.events = append(s.events, shelfEvent{s.revision, kind, u})
	close(s.changed)
	s.changed = make(chan struct{})
}

// set changes how the shelf behaves and wakes its watches.
func (s *shelf) set(change func(*shelf)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
	close(s.changed)
	s.changed = make(chan struct{})
}

// compact makes versions before the present one too old.
func (s *shelf) compact() {
	s.set(func(s *shelf) { s.oldest, s.events = s.revision, nil })
}

// requests returns what was asked, lists and watches apart.
func (s *shelf) requests() (lists, watches []asked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.asked {
		if a.watch {
			watches = append(watches, a)
		} else {
			lists = append(lists, a)
		}
	}
	return lists, watches
}

func (s *shelf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	watching := query.Get("watch") == "true"
	s.mu.Lock()
	s.asked = append(s.asked, asked{time.Now(), watching, r.URL.RawQuery})
	fail := s.fail
	s.mu.Unlock()
	if fail != nil {
		if status, header, body := fail(r); status != 0 {
			for key, value := range header {
				w.Header().Set(key, value)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if !strings.HasSuffix(r.URL.Path, "/things") {
		status(w, http.StatusNotFound, "NotFound", "no such path")
		return
	}
	if watching {
		s.serveWatch(w, r)
		return
	}
	s.serveList(w, r)
}

func (s *shelf) serveList(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	if s.pageSize > 0 {
		limit = s.pageSize
	}
	after, items, next := r.URL.Query().Get("continue"), []any{}, ""
	for _, key := range s.keys() {
		if key <= after {
			continue
		}
		if limit > 0 && len(items) == limit {
			break
		}
		items, next = append(items, s.objects[key].Object), key
	}
	if keys := s.keys(); len(keys) == 0 || next == keys[len(keys)-1] || len(items) == 0 {
		next = ""
	}
	answer(w, map[string]any{"apiVersion": "test.limpet/v1", "kind": "ThingList", "items": items,
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(s.revision), "continue": next}})
}

func (s *shelf) keys() []string {
	keys := make([]string, 0, len(s.objects))
	for key := range s.objects {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func (s *shelf) serveWatch(w http.ResponseWriter, r *http.Request) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	s.mu.Lock()
	oldest, inside := s.oldest, s.goneInside
	s.mu.Unlock()
	if from < oldest && !inside {
		status(w, http.StatusGone, "Expired", "too old resource version")
		return
	}
	w.WriteHeader(http.StatusOK)
	if from < oldest {
		send(w, "ERROR", statusObject(http.StatusGone, "Expired", "too old resource version"))
		return
	}
	s.follow(w, r, from)
}

// follow sends the changes after a version until the watch ends.
func (s *shelf) follow(w http.ResponseWriter, r *http.Request, from int) {
	seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	if err != nil {
		seconds = 3600
	}
	end := time.NewTimer(time.Duration(seconds) * time.Second)
	defer end.Stop()
	flush(w)
	for {
		s.mu.Lock()
		changed := s.changed
		if !s.silent {
			for _, e := range s.events {
				if e.revision > from {
					send(w, e.kind, e.object.Object)
					from = e.revision
				}
			}
		}
		s.mu.Unlock()
		flush(w)
		select {
		case <-changed:
		case <-end.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func flush(w http.ResponseWriter) { w.(http.Flusher).Flush() }

func answer(w http.ResponseWriter, object any) { _ = json.NewEncoder(w).Encode(object) }

func send(w http.ResponseWriter, kind string, object any) {
	answer(w, map[string]any{"type": kind, "object": object})
}

func statusObject(code int, reason, message string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
}

func status(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	answer(w, statusObject(code, reason, message))
}

// wire carries requests to a handler without a socket, so that it works in a
// synctest bubble. While cut is set it fails like a network without a server.
type wire struct {
	handler http.Handler
	mu      sync.Mutex // guards cut and tried
	cut     error
	tried   []time.Time
}

func (p *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	p.mu.Lock()
	cut := p.cut
	p.tried = append(p.tried, time.Now())
	p.mu.Unlock()
	if cut != nil {
		return nil, cut
	}
	reader, writer := io.Pipe()
	w := &wireWriter{body: writer, header: http.Header{}, ready: make(chan struct{})}
	go func() {
		p.handler.ServeHTTP(w, req)
		w.WriteHeader(http.StatusOK)
		writer.CloseWithError(context.Cause(req.Context())) // nil = a complete answer
	}()
	select {
	case <-w.ready:
	case <-req.Context().Done():
		writer.CloseWithError(req.Context().Err())
		return nil, context.Cause(req.Context())
	}
	stop := context.AfterFunc(req.Context(), func() { writer.CloseWithError(context.Cause(req.Context())) })
	return &http.Response{StatusCode: w.status, Status: strconv.Itoa(w.status), Header: w.sent, Request: req,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1,
		Body: &wireBody{reader, stop}}, nil
}

func (p *wire) set(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = err
}

func (p *wire) attempts() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.tried)
}

type wireBody struct {
	*io.PipeReader
	stop func() bool
}

func (b *wireBody) Close() error {
	b.stop()
	return b.PipeReader.Close()
}

// wireWriter is the ResponseWriter of one request; one goroutine writes.
type wireWriter struct {
	body   *io.PipeWriter
	header http.Header
	once   sync.Once
	ready  chan struct{} // closed when status and sent may be read
	status int
	sent   http.Header
}

func (w *wireWriter) Header() http.Header { return w.header }

func (w *wireWriter) WriteHeader(status int) {
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		if w.sent.Get("Date") == "" {
			w.sent.Set("Date", time.Now().UTC().Format(http.TimeFormat))
		}
		close(w.ready)
	})
}

func (w *wireWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

func (w *wireWriter) Flush() { w.WriteHeader(http.StatusOK) }

var _ http.Flusher = (*wireWriter)(nil)

// connect makes a Client over a wire.
func connect(t *testing.T, c Config) *Client {
	t.Helper()
	client, err := Connect(t.Context(), c)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(client.Close)
	return client
}

var pathValue = PathTo("spec", "value")

// contents describes the cache of an informer: name=value, sorted.
func contents(i *Informer) string {
	var all []string
	for _, o := range i.Objects() {
		all = append(all, o.Key()+"="+o.Text(pathValue))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}
