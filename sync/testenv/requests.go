package testenv

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Request is one request that a server answered. Body is the body of a write
// when it was JSON. UID and Version are those of the object in the answer to a
// write; versions grow with every write, of whatever kind of object.
type Request struct {
	Method  string          `json:"method"`
	Path    string          `json:"path"`
	Code    int             `json:"code"`
	Query   string          `json:"query"`
	Began   int64           `json:"began"` // when it came, milliseconds since the epoch
	At      int64           `json:"at"`    // when it was answered
	Agent   string          `json:"agent"`
	User    string          `json:"user"` // see Server.TokenOf
	UID     string          `json:"uid"`
	Version int64           `json:"version,string"`
	Body    json.RawMessage `json:"body"`
}

// String is "PUT /apis/… 200", for messages and for comparing sets.
func (r Request) String() string {
	return r.Method + " " + r.Path + " " + http.StatusText(r.Code)
}

// Mark is a place in the log of requests.
type Mark int64

func (s *Server) requestLog() string { return filepath.Join(s.dir, "requests.jsonl") }

// Mark returns the end of the log of requests once all writes under way are in
// it, so that what a write of before has done is not counted behind it.
func (s *Server) Mark(t testing.TB) Mark {
	t.Helper()
	s.Settle(t)
	info, err := os.Stat(s.requestLog())
	if err != nil {
		t.Fatal(err)
	}
	return Mark(info.Size())
}

// Settle waits until all writes that the server has read are in the log of
// requests: a watch, or a look at the object, may show a write before its answer,
// and so its line, is there. Mark, Requests and Writes begin with it.
func (s *Server) Settle(t testing.TB) {
	t.Helper()
	s.control(t, http.MethodPost, "/settle", struct{}{}, nil)
}

// Requests returns all requests since the mark (0 = from the start), in the
// order of the answers. It waits for the writes under way, so that every write is
// there whose effect was seen; a watch is there once its header was sent. The
// server's own requests to itself are left out.
func (s *Server) Requests(t testing.TB, since Mark) []Request {
	t.Helper()
	s.Settle(t)
	f, err := os.Open(s.requestLog())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Seek(int64(since), 0); err != nil {
		t.Fatal(err)
	}
	var out []Request
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return out // the end; a line that is still being written is not there yet
		}
		var r Request
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("read %s: %v", s.requestLog(), err)
		}
		if !strings.HasPrefix(r.Path, "/apis/apiextensions.k8s.io/") && !strings.HasPrefix(r.Agent, "apiserver") {
			out = append(out, r)
		}
	}
}

// Writes returns those of Requests that asked to change something.
func (s *Server) Writes(t testing.TB, since Mark) []Request {
	t.Helper()
	var out []Request
	for _, r := range s.Requests(t, since) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			out = append(out, r)
		}
	}
	return out
}
