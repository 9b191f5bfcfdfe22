package apiserver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// The tests of this file and those around it talk to the server through its
// Transport, so that they can run in a bubble of testing/synctest.

// narrowWindow is the window of a narrowSite.
const narrowWindow = 32

// narrowSite is a site whose feeds forget quickly.
func narrowSite(t testing.TB) *site {
	t.Helper()
	s := newSite(t)
	for _, f := range s.feeds {
		f.window = narrowWindow
	}
	return s
}

const folderPath = "/apis/folder.grafana.app/v1/namespaces/default/folders"

// folder is a small object of a kind without rules of its own. more is added to
// its metadata.
func folder(name, title, more string) string {
	return fmt.Sprintf(`{"apiVersion":"folder.grafana.app/v1","kind":"Folder","metadata":{"name":%q%s},"spec":{"title":%q}}`, name, more, title)
}

// open sends a request through the transport and answers the open response.
func (s *site) open(ctx context.Context, method, path, body string, header ...string) *http.Response {
	s.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://in-process"+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := (&http.Client{Transport: s.Transport()}).Do(req)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

// watched is one event of a watch.
type watched struct {
	Type   string `json:"type"`
	Object struct {
		Metadata struct {
			Name            string            `json:"name"`
			ResourceVersion string            `json:"resourceVersion"`
			Annotations     map[string]string `json:"annotations"`
		} `json:"metadata"`
		Code   int    `json:"code"`
		Reason string `json:"reason"`
	} `json:"object"`
}

func (w watched) String() string {
	switch w.Type {
	case "BOOKMARK":
		if w.Object.Metadata.Annotations["k8s.io/initial-events-end"] == "true" {
			return "END"
		}
		return w.Type
	case "ERROR":
		return fmt.Sprintf("ERROR %d %s", w.Object.Code, w.Object.Reason)
	}
	return w.Type + " " + w.Object.Metadata.Name
}

// follower reads a watch.
type follower struct {
	t     testing.TB
	body  io.ReadCloser
	lines *bufio.Scanner
}

func (s *site) follow(query string, header ...string) *follower {
	s.t.Helper()
	resp := s.open(s.t.Context(), http.MethodGet, folderPath+"?watch=1&"+query, "", header...)
	if resp.StatusCode != http.StatusOK {
		data, _ := io.ReadAll(resp.Body)
		s.t.Fatalf("watch answered %d: %s", resp.StatusCode, data)
	}
	f := &follower{t: s.t, body: resp.Body, lines: bufio.NewScanner(resp.Body)}
	f.lines.Buffer(nil, 64<<20)
	s.t.Cleanup(f.close)
	return f
}

func (f *follower) close() {
	// Nothing can be done about a body that does not close.
	_ = f.body.Close()
}

// next reads one event; ok is false at the end of the watch.
func (f *follower) next() (event watched, ok bool) {
	f.t.Helper()
	if !f.lines.Scan() {
		return event, false
	}
	if err := json.Unmarshal(f.lines.Bytes(), &event); err != nil {
		f.t.Fatalf("event %s: %v", f.lines.Bytes(), err)
	}
	return event, true
}

// sees demands the next events, as String writes them.
func (f *follower) sees(want ...string) (last watched) {
	f.t.Helper()
	for _, w := range want {
		event, ok := f.next()
		if !ok {
			f.t.Fatalf("watch ended (%v), want %s", f.lines.Err(), w)
		}
		if event.String() != w {
			f.t.Fatalf("event %s, want %s", event, w)
		}
		last = event
	}
	return last
}

// ends demands the end of the watch.
func (f *follower) ends() {
	f.t.Helper()
	if event, ok := f.next(); ok {
		f.t.Fatalf("event %s, want the end", event)
	}
}

// revisionOf is the resourceVersion of an answered object.
func revisionOf(object map[string]any) string {
	version, _ := at(object, "metadata", "resourceVersion").(string)
	return version
}
