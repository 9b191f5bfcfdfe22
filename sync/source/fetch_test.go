package source_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"limpet/sync/source"
)

// TestFetch downloads from a real server, which does all that one may do.
func TestFetch(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte("artifact "), 10_000)
	long := sha512.Sum512(data)
	sum := sha256.Sum256(data)
	right := "sha256:" + hex.EncodeToString(sum[:])
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(data) }))
	t.Cleanup(elsewhere.Close)
	mux := http.NewServeMux()
	mux.HandleFunc("/good", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("a credential was sent")
		}
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") { // unpacked by net/http, the digest would be another
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = z.Write(data[:10])
			z.Close()
			return
		}
		_, _ = w.Write(data)
	})
	mux.HandleFunc("/sub/good", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(data) })
	mux.HandleFunc("/gone", http.NotFound)
	mux.HandleFunc("/short", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "90000")
		_, _ = w.Write(data[:5000])
	})
	mux.HandleFunc("/changed", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(append(data[1:], 'x')) })
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/good", http.StatusFound) })
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+"/good", http.StatusFound)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	closed := httptest.NewServer(mux)
	closed.Close()
	size := int64(len(data))
	for name, c := range map[string]struct {
		a    source.Artifact
		via  string
		want string // of the error; "" = none
	}{
		"good":          {source.Artifact{URL: server.URL + "/good", Digest: right, Size: size}, "", ""},
		"size not told": {source.Artifact{URL: server.URL + "/good", Digest: right}, "", ""},
		"sha512":        {source.Artifact{URL: server.URL + "/good", Digest: "sha512:" + hex.EncodeToString(long[:])}, "", ""},
		"big letters":   {source.Artifact{URL: server.URL + "/good", Digest: strings.ToUpper(right)}, "", ""},
		"moved":         {source.Artifact{URL: server.URL + "/moved", Digest: right}, "", ""},
		"via":           {source.Artifact{URL: "http://source-controller.flux-system.svc.cluster.local./good", Digest: right}, server.URL, ""},
		"via below": {source.Artifact{URL: "http://source-controller.flux-system.svc.cluster.local./good", Digest: right},
			server.URL + "/sub/", ""},
		"another host":   {source.Artifact{URL: server.URL + "/away", Digest: right}, "", "leads to another host"},
		"changed":        {source.Artifact{URL: server.URL + "/changed", Digest: right, Size: size}, "", "its source tells of " + right},
		"larger":         {source.Artifact{URL: server.URL + "/good", Digest: right, Size: size - 1}, "", "larger than the 89999 bytes"},
		"too large":      {source.Artifact{URL: server.URL + "/good", Digest: right, Size: source.MaxArtifact + 1}, "", "the limit is 1.0 GiB"},
		"cut":            {source.Artifact{URL: server.URL + "/short", Digest: right}, "", "unexpected EOF"},
		"gone":           {source.Artifact{URL: server.URL + "/gone", Digest: right}, "", "404 Not Found"},
		"not there":      {source.Artifact{URL: closed.URL + "/good", Digest: right}, "", "not reached from here"},
		"no digest":      {source.Artifact{URL: server.URL + "/good"}, "", "no digest"},
		"unknown digest": {source.Artifact{URL: server.URL + "/good", Digest: "blake3:00"}, "", "none that can be checked here"},
		"short digest":   {source.Artifact{URL: server.URL + "/good", Digest: "sha256:00"}, "", "wrong length"},
		"no address":     {source.Artifact{URL: "file:///etc/passwd", Digest: right}, "", "no address of http"},
		"bad via":        {source.Artifact{URL: server.URL + "/good", Digest: right}, "localhost:80", "no address of http"},
	} {
		var got bytes.Buffer
		n, err := source.Fetch(t.Context(), &c.a, c.via, &got)
		switch {
		case c.want == "" && (err != nil || n != size || !bytes.Equal(got.Bytes(), data)):
			t.Errorf("%s: %d bytes, %v", name, n, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if int64(got.Len()) > size+1 {
			t.Errorf("%s: %d bytes were written", name, got.Len())
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("the person has had enough")
	cancel(stop)
	if _, err := source.Fetch(ctx, &source.Artifact{URL: server.URL + "/good", Digest: right}, "", new(bytes.Buffer)); !errors.Is(err, stop) {
		t.Errorf("ended by its caller: %v", err)
	}
}

// TestRedirects: they lead to the same host, and from https to no plain http.
func TestRedirects(t *testing.T) {
	t.Parallel()
	at := func(url string) *http.Request { return httptest.NewRequest(http.MethodGet, url, nil) }
	for _, c := range []struct {
		before []*http.Request
		to     string
		good   bool
	}{
		{[]*http.Request{at("https://a.example/x")}, "https://a.example/y", true},
		{[]*http.Request{at("http://a.example/x")}, "https://a.example/y", true},
		{[]*http.Request{at("https://a.example/x")}, "http://a.example/y", false},
		{[]*http.Request{at("http://a.example/x"), at("https://a.example/x")}, "http://a.example/y", false},
		{[]*http.Request{at("https://a.example/x")}, "https://b.example/y", false},
	} {
		if err := source.SameHost(at(c.to), c.before); (err == nil) != c.good {
			t.Errorf("%s to %s: %v", c.before[0].URL, c.to, err)
		}
	}
}
