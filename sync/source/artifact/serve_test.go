package artifact_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"limpet/sync/source/artifact"
)

// TestServe: what is served under which path and headers.
func TestServe(t *testing.T) {
	t.Parallel()
	w := newSite(t)
	s := w.open(artifact.Options{})
	old := w.put(s, "site", fmt.Sprintf("v1.0.0@sha1:%040x", 1), "first")
	now := w.put(s, "site", fmt.Sprintf("feature/ü@sha1:%040x", 2), "content")
	token := "secret"
	open := httptest.NewServer(s.Handler(nil))
	t.Cleanup(open.Close)
	closed := httptest.NewServer(s.Handler(func() (string, error) { return token, nil }))
	t.Cleanup(closed.Close)
	const dir = "/gitrepository/flux-system/site/"
	tag, stamp := `"`+now.Digest+`"`, now.Updated.Format(http.TimeFormat)
	for _, c := range []struct {
		at     *httptest.Server
		method string
		path   string
		header [2]string
		code   int
		body   string
	}{
		{open, "GET", "/" + now.Path, [2]string{}, 200, "content"},
		{open, "HEAD", "/" + now.Path, [2]string{}, 200, ""},
		{open, "GET", dir + "latest.tar.gz", [2]string{}, 200, "content"},
		{open, "GET", dir + "latest.tar.gz?x=y", [2]string{}, 200, "content"},
		{open, "GET", dir + "v1.0.0.tar.gz", [2]string{}, 200, "first"},
		{open, "GET", dir + "feature%2F%C3%BC.tar.gz", [2]string{}, 200, "content"},
		{open, "GET", dir + old.Digest + ".tar.gz", [2]string{}, 200, "first"},
		{open, "GET", dir + old.Digest[7:] + ".tar.gz", [2]string{}, 200, "first"},
		{open, "GET", dir + now.Updated.Format(time.RFC3339) + ".tar.gz", [2]string{}, 200, "content"},
		{open, "GET", dir + "latest.tar.gz", [2]string{"Range", "bytes=1-3"}, 206, "ont"},
		{open, "GET", dir + "latest.tar.gz", [2]string{"Range", "bytes=90-"}, 416, "invalid range: failed to overlap\n"},
		{open, "GET", dir + "latest.tar.gz", [2]string{"If-None-Match", tag}, 304, ""},
		{open, "GET", dir + "latest.tar.gz", [2]string{"If-None-Match", `"sha256:other"`}, 200, "content"},
		{open, "GET", dir + "latest.tar.gz", [2]string{"If-Modified-Since", stamp}, 304, ""},
		{open, "GET", dir + "feature/ü.tar.gz", [2]string{}, 404, "there is no such artifact\n"},
		{open, "GET", dir, [2]string{}, 404, "there is no such artifact\n"},
		{open, "GET", "/gitrepository/flux-system/", [2]string{}, 404, "there is no such artifact\n"},
		{open, "GET", "/", [2]string{}, 404, "there is no such artifact\n"},
		{open, "GET", dir + "latest", [2]string{}, 404, "there is no such artifact\n"},
		{open, "GET", dir + ".tar.gz", [2]string{}, 404, "there is no such artifact\n"},
		{open, "GET", "/gitrepository/flux-system/%2e%2e/latest.tar.gz", [2]string{}, 404, "there is no such artifact\n"},
		{open, "GET", "/gitrepository/flux-system%2Fsite/x/latest.tar.gz", [2]string{}, 404, "there is no such artifact\n"},
		{open, "GET", "/gitrepository/flux-system/none/latest.tar.gz", [2]string{}, 404, "there is no such artifact\n"},
		{open, "GET", "/bucket/flux-system/site/latest.tar.gz", [2]string{}, 404, "there is no such artifact\n"},
		{open, "POST", "/" + now.Path, [2]string{}, 405, "only GET and HEAD are served\n"},
		{closed, "GET", "/" + now.Path, [2]string{}, 401, "a bearer token is needed\n"},
		{closed, "GET", "/", [2]string{"Authorization", "Bearer other"}, 401, "a bearer token is needed\n"},
		{closed, "GET", "/" + now.Path, [2]string{"Authorization", "Basic secret"}, 401, "a bearer token is needed\n"},
		{closed, "GET", "/" + now.Path, [2]string{"Authorization", "bearer secret"}, 200, "content"},
	} {
		req, err := http.NewRequest(c.method, c.at.URL+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.header[0] != "" {
			req.Header.Set(c.header[0], c.header[1])
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.code || string(body) != c.body {
			t.Errorf("%s %s %q: %d %q, %v, want %d %q", c.method, c.path, c.header, resp.StatusCode, body, err, c.code, c.body)
		}
		h := resp.Header
		if c.code == 200 && (c.body != "first" && (h.Get("Etag") != `"`+now.Digest+`"` || h.Get("Last-Modified") != stamp) ||
			h.Get("Content-Type") != "application/gzip" || h.Get("Accept-Ranges") != "bytes") {
			t.Errorf("%s: %v", c.path, h)
		}
	}
	token = "" // a file without one lets nobody in
	if resp, err := http.Get(closed.URL + "/" + now.Path); err != nil || resp.StatusCode != 401 {
		t.Errorf("without a token: %v, %v", resp, err)
	}
	for _, name := range w.files() {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte("other"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if resp, err := http.Get(open.URL + "/" + now.Path); err != nil || resp.StatusCode != 404 || len(s.Lost()) != 1 {
		t.Errorf("damaged: %v, %v", resp, err)
	}
}
