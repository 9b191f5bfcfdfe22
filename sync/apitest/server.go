package apitest

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"limpet/sync/api"
)

const (
	readyWithin = 90 * time.Second // a busy machine; 0.5 s when idle
	stopWithin  = 20 * time.Second
	keepStderr  = 64 << 10
)

// AdminToken is the bearer token of every server that is started without
// another one. SignToken is the one that its token exchange accepts.
const (
	AdminToken = "testbed-admin"
	SignToken  = "ProvisioningAdminToken"
)

// Options of a server of one's own.
type Options struct {
	Token   string        // default AdminToken
	CRDs    []byte        // default api.CRDs()
	Deny    []string      // "VERB RESOURCE NAMESPACE", answered with 403; * matches all
	SignTTL time.Duration // life of an exchanged token; 0 = 10 minutes
	// CertFile and KeyFile replace the certificate that the server makes for
	// itself. They are read again when they change. CAFile is then the CA that
	// signed them.
	CertFile, KeyFile, CAFile string
}

// Server is a running API server. Its methods are safe for concurrent use.
type Server struct {
	URL        string // https://127.0.0.1:port
	SignURL    string // where tokens are exchanged
	Token      string // bearer token that may do everything
	CAFile     string
	Kubeconfig string

	dir    string
	args   []string
	listen string
	sign   string

	mu      sync.Mutex // guards the process below; held while a command waits for its answer
	process *exec.Cmd
	stdin   io.WriteCloser
	lines   chan map[string]string // closed when stdout ends
	stderr  *tail
}

var shared struct {
	mu     sync.Mutex // guards server
	server *Server
}

// Real returns the server that all tests of the package share; the first call
// starts it. Tests keep apart by their namespaces. The server ends with Main, at
// the latest with the test process.
func Real(t testing.TB) *Server {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server != nil {
		return shared.server
	}
	dir, err := os.MkdirTemp("", "limpet-api-")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, dir, Options{})
	s.args = append(s.args, "--ephemeral")
	if err := s.run(Binary(t)); err != nil {
		t.Fatal(err)
	}
	shared.server = s
	return s
}

// Main is for TestMain: it runs the tests and stops the shared server.
//
//	func TestMain(m *testing.M) { os.Exit(apitest.Main(m)) }
func Main(m *testing.M) int {
	code := m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server != nil {
		if err := shared.server.halt(); err != nil {
			fmt.Fprintln(os.Stderr, "stop API server:", err)
			return max(code, 1)
		}
	}
	return code
}

// Start runs a server for one test and stops it at the end of that test.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	s := newServer(t, t.TempDir(), o)
	if err := s.run(Binary(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Stop(t) })
	return s
}

func newServer(t testing.TB, dir string, o Options) *Server {
	t.Helper()
	if o.Token == "" {
		o.Token = AdminToken
	}
	if o.CRDs == nil {
		o.CRDs = api.CRDs()
	}
	crds := filepath.Join(dir, "crds.yaml")
	if err := os.WriteFile(crds, o.CRDs, 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Server{Token: o.Token, CAFile: o.CAFile, dir: dir, listen: "127.0.0.1:0", sign: "127.0.0.1:0"}
	s.args = []string{"--dir", dir, "--token", o.Token, "--crds", crds, "--no-fsync",
		"--requests", s.requestLog(), "--sign-token", SignToken}
	for _, rule := range o.Deny {
		s.args = append(s.args, "--deny", rule)
	}
	if o.SignTTL > 0 {
		s.args = append(s.args, "--sign-ttl", o.SignTTL.String())
	}
	if o.CertFile != "" {
		s.args = append(s.args, "--tls-cert-file", o.CertFile, "--tls-key-file", o.KeyFile)
	}
	return s
}

// run starts the process and waits until it serves.
func (s *Server) run(binary string) error {
	cmd := exec.Command(binary, append(s.args, "--listen", s.listen, "--sign", s.sign)...)
	s.stderr = &tail{keep: keepStderr}
	cmd.Stderr = s.stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.process, s.stdin, s.lines = cmd, stdin, make(chan map[string]string)
	go readLines(stdout, s.lines)
	select {
	case ready, ok := <-s.lines:
		if ok {
			s.URL, s.SignURL, s.Kubeconfig = ready["url"], ready["signURL"], ready["kubeconfig"]
			if s.CAFile == "" {
				s.CAFile = ready["ca"]
			}
			// The same ports again after a restart, as a real server would.
			s.listen, s.sign = host(s.URL), host(s.SignURL)
			return nil
		}
		err = fmt.Errorf("API server did not start: %w\n%s", cmd.Wait(), s.stderr)
	case <-time.After(readyWithin):
		err = fmt.Errorf("API server is not ready after %s\n%s", readyWithin, s.stderr)
		s.process.Process.Kill()
		for range s.lines {
		}
		s.process.Wait()
	}
	s.process = nil
	return err
}

// readLines hands the JSON lines of the server over. It ends, and closes the
// channel, when the server closes its stdout.
func readLines(r io.Reader, lines chan<- map[string]string) {
	defer close(lines)
	scan := bufio.NewScanner(r)
	for scan.Scan() {
		var line map[string]string
		if json.Unmarshal(scan.Bytes(), &line) == nil {
			lines <- line
		}
	}
}

func host(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Host
}

// Stop ends the server; what it stored stays in its directory. A second Stop
// does nothing.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if err := s.halt(); err != nil {
		t.Errorf("stop API server: %v", err)
	}
}

// Restart serves the same directory on the same address again, after Stop.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		t.Fatal("restart of a server that runs")
	}
	if err := s.run(Binary(t)); err != nil {
		t.Fatal(err)
	}
}

func (s *Server) halt() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return nil
	}
	late := time.AfterFunc(stopWithin, func() { s.process.Process.Kill() })
	defer late.Stop()
	s.stdin.Close()
	for range s.lines {
	}
	err := s.process.Wait()
	s.process = nil
	if err != nil {
		return fmt.Errorf("%w\n%s", err, s.stderr)
	}
	return nil
}

// Deny has requests answered with 403 until Allow is given the same rule:
// "VERB RESOURCE NAMESPACE", where * matches all and a subresource is written
// as in repositories/status.
func (s *Server) Deny(t testing.TB, rule string) { t.Helper(); s.command(t, "deny "+rule) }

// Allow takes back a rule of Deny.
func (s *Server) Allow(t testing.TB, rule string) { t.Helper(); s.command(t, "allow "+rule) }

// Compact lets etcd forget all versions but the newest: continue tokens of
// before are answered with 410.
func (s *Server) Compact(t testing.TB) { t.Helper(); s.command(t, "compact") }

func (s *Server) command(t testing.TB, line string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		t.Fatalf("%s: the server is stopped", line)
	}
	if _, err := io.WriteString(s.stdin, line+"\n"); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if answer := <-s.lines; answer["event"] != "done" {
		t.Fatalf("%s: %v\n%s", line, answer["error"], s.stderr)
	}
}

// Client returns an HTTP client that trusts the server and sends its token,
// with connections of its own. They are closed at the end of the test.
func (s *Server) Client(t testing.TB) *http.Client {
	t.Helper()
	pem, err := os.ReadFile(s.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatalf("%s holds no certificate", s.CAFile)
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: bearer{s.Token, tr}}
}

// bearer sends a token with each request that has none.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") == "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.next.RoundTrip(r)
}

// tail keeps the last bytes that were written to it.
type tail struct {
	mu   sync.Mutex // guards data: a process writes while a test reads
	keep int
	data []byte
}

func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data = append(l.data, p...)
	if over := len(l.data) - l.keep; over > 0 {
		l.data = append([]byte(nil), l.data[over:]...)
	}
	return len(p), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.TrimSpace(string(l.data))
}
