package git

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"limpet/sync/git/gitref"
)

// Tests run against real git: its http-backend behind net/http/cgi, its
// upload-pack behind an ssh server of the tests, its fsck over every mirror.

// origin is a bare repository on the server's side, written through a worktree.
type origin struct {
	t    testing.TB
	bare string
	work string
}

func gitEnv(home string) []string {
	return append(os.Environ(), "HOME="+home, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=Ann Author", "GIT_AUTHOR_EMAIL=ann@example.com", "GIT_COMMITTER_NAME=Carl", "GIT_COMMITTER_EMAIL=carl@example.com",
		"GIT_AUTHOR_DATE=2026-11-20T10:00:00+0100", "GIT_COMMITTER_DATE=2026-11-20T10:00:00+0100")
}

// gitIn runs git in dir and returns what it prints.
func gitIn(t testing.TB, dir string, in []byte, args ...string) string {
	t.Helper()
	return gitWith(t, dir, in, nil, args...)
}

// gitWith is gitIn with more in the environment.
func gitWith(t testing.TB, dir string, in []byte, env []string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = dir, append(gitEnv(dir), env...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("git %s: %v\n%s%s", strings.Join(args, " "), err, out.Bytes(), errs.Bytes())
	}
	return strings.TrimRight(out.String(), "\n")
}

// newOrigin makes root/name with an empty repository.
func newOrigin(t testing.TB, root, name string) *origin {
	t.Helper()
	o := &origin{t: t, bare: filepath.Join(root, name), work: t.TempDir()}
	gitIn(t, root, nil, "init", "-q", "--bare", "-b", "main", o.bare)
	gitIn(t, o.work, nil, "init", "-q", "-b", "main", ".")
	gitIn(t, o.work, nil, "remote", "add", "origin", o.bare)
	return o
}

func (o *origin) git(args ...string) string { o.t.Helper(); return gitIn(o.t, o.work, nil, args...) }

// write puts files into the worktree; a nil text deletes.
func (o *origin) write(files map[string]string) {
	o.t.Helper()
	for name, text := range files {
		path := filepath.Join(o.work, name)
		if text == "" {
			if err := os.RemoveAll(path); err != nil {
				o.t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			o.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			o.t.Fatal(err)
		}
	}
}

// commit writes files, commits and pushes; it returns the hash.
func (o *origin) commit(message string, files map[string]string) string {
	o.t.Helper()
	o.write(files)
	o.git("add", "-A")
	o.git("commit", "-q", "--allow-empty", "-m", message)
	o.git("push", "-q", "-f", "origin", "HEAD")
	return o.git("rev-parse", "HEAD")
}

// server serves a directory of repositories by git http-backend.
type server struct {
	*httptest.Server
	root     string
	requests atomic.Int64
	sent     atomic.Int64

	backend http.HandlerFunc // git's

	mu   sync.Mutex // guards hook
	hook http.HandlerFunc
}

// counting counts what a handler sends.
type counting struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (c counting) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.n.Add(int64(n))
	return n, err
}

func newServer(t testing.TB) *server {
	t.Helper()
	s := &server{root: t.TempDir()}
	s.Server = httptest.NewServer(s.handler(t))
	t.Cleanup(s.Close)
	return s
}

func (s *server) handler(t testing.TB) http.Handler {
	exe, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	backend := &cgi.Handler{Path: exe, Args: []string{"http-backend"}, Stderr: io.Discard, Logger: log.New(io.Discard, "", 0),
		Env: []string{"GIT_PROJECT_ROOT=" + s.root, "GIT_HTTP_EXPORT_ALL=1", "HOME=" + s.root, "GIT_CONFIG_NOSYSTEM=1"}}
	s.backend = backend.ServeHTTP
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		w = counting{w, &s.sent}
		s.mu.Lock()
		hook := s.hook
		s.mu.Unlock()
		if hook != nil {
			seen := &touched{ResponseWriter: w}
			if hook(seen, r); seen.used {
				return
			}
		}
		backend.ServeHTTP(w, r)
	})
}

// touched tells whether a hook has answered.
type touched struct {
	http.ResponseWriter
	used bool
}

func (t *touched) WriteHeader(c int)           { t.used = true; t.ResponseWriter.WriteHeader(c) }
func (t *touched) Write(p []byte) (int, error) { t.used = true; return t.ResponseWriter.Write(p) }
func (t *touched) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// during answers requests with h first; what h does not answer goes to git.
func (s *server) during(h http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = h
}

func (s *server) remote(name string) Remote { return Remote{URL: s.URL + "/" + name} }

func openMirrors(t testing.TB, o Options) *Mirrors {
	t.Helper()
	m, err := Open(filepath.Join(t.TempDir(), "mirrors"), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// syncRef resolves branch and fetches it.
func syncRef(t testing.TB, m *Mirrors, r Remote, branch string) (Ref, Stats) {
	t.Helper()
	return syncSelected(t, m, r, gitref.Branch(branch))
}

// syncSelected resolves what is selected and fetches it.
func syncSelected(t testing.TB, m *Mirrors, r Remote, sel gitref.Selector) (Ref, Stats) {
	t.Helper()
	ref, err := m.Resolve(t.Context(), r, sel)
	if err != nil {
		t.Fatal(err)
	}
	st, err := m.Fetch(t.Context(), r, ref)
	if err != nil {
		t.Fatal(err)
	}
	return ref, st
}

// fsck runs git's own check over the mirror of r.
func fsck(t testing.TB, m *Mirrors, r Remote) {
	t.Helper()
	dir := mirrorDir(t, m, r)
	out := gitIn(t, dir, nil, "fsck", "--full", "--strict", "--no-dangling")
	if out != "" {
		t.Fatalf("git fsck: %s", out)
	}
	for _, f := range globbed(t, dir, "objects/pack/*") {
		if strings.HasPrefix(filepath.Base(f), "tmp_") {
			t.Fatalf("left behind: %s", f)
		}
	}
}

func globbed(t testing.TB, dir, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func mirrorDir(t testing.TB, m *Mirrors, r Remote) string {
	t.Helper()
	c, err := m.begin(context.Background(), "test", r)
	if err != nil {
		t.Fatal(err)
	}
	defer c.end()
	return m.mirror(c.addr).dir
}

// paths are the paths of a tree with their content.
func content(t testing.TB, m *Mirrors, r Remote, commit, dir string) map[string]string {
	t.Helper()
	tree, err := m.Tree(t.Context(), r, commit, dir)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for _, f := range tree.Files {
		data, err := m.Blob(t.Context(), r, f.Hash, 0)
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(data)) != f.Size {
			t.Fatalf("%s: size %d in the tree, %d bytes", f.Path, f.Size, len(data))
		}
		out[f.Path] = string(data)
	}
	return out
}

// quiet checks that the test leaves no goroutine behind. Call it first.
func quiet(t testing.TB) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for i := 0; runtime.NumGoroutine() > before; i++ {
			if i > 400 {
				buf := make([]byte, 1<<16)
				t.Fatalf("%d goroutines, %d before\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
			}
			<-tick.C
		}
	})
}

// dashboard is JSON of some size that changes in few places with v.
func dashboard(name string, v, panels int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "{\n  \"uid\": %q,\n  \"title\": \"Dashboard %s\",\n  \"version\": %d,\n  \"panels\": [\n", name, name, v)
	for i := range panels {
		fmt.Fprintf(&b, "    {\"id\": %d, \"type\": \"timeseries\", \"title\": \"Panel %d of %s\", \"targets\": [{\"expr\": \"rate(x_%s_%d[5m])\"}]},\n", i, i, name, name, i*7919)
	}
	b.WriteString("    {\"id\": -1}\n  ]\n}\n")
	return b.String()
}
