package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
)

// gitServer serves the repositories of a directory with git http-backend and counts what it is
// asked and what it sends.
type gitServer struct {
	url      string
	backend  string
	root     string
	http     *http.Server
	requests atomic.Int64
	sent     atomic.Int64
}

func serveGit(root string) (*gitServer, error) {
	path, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := &gitServer{
		url:     "http://" + ln.Addr().String(),
		backend: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
		root:    root,
	}
	g.http = &http.Server{Handler: g}
	go g.http.Serve(ln)
	return g, nil
}

func (g *gitServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.requests.Add(1)
	// CGI knows bodies of a given length only; git sends large ones in chunks.
	if r.ContentLength < 0 {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.ContentLength = int64(len(body))
		r.TransferEncoding = nil
	}
	h := cgi.Handler{
		Path:   g.backend,
		Dir:    g.root,
		Env:    []string{"GIT_PROJECT_ROOT=" + g.root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "HOME=" + g.root},
		Stderr: io.Discard,
	}
	h.ServeHTTP(&counter{ResponseWriter: w, sent: &g.sent}, r)
}

// counter counts the bytes of bodies.
type counter struct {
	http.ResponseWriter
	sent *atomic.Int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.sent.Add(int64(n))
	return n, err
}
