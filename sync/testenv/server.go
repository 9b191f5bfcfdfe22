package testenv

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"limpet/sync/api"
	"limpet/sync/testenv/suite"
)

const (
	readyWithin = 90 * time.Second // a busy machine; 0.5 s when idle
	stopWithin  = 20 * time.Second
	keepStderr  = 64 << 10
)

// adminToken is the bearer token of every server. SignToken is the one that its
// token exchange accepts.
const (
	adminToken = "testbed-admin"
	SignToken  = "ProvisioningAdminToken"
)

// Options of a server of one's own.
type Options struct {
	Deny []string // "VERB RESOURCE NAMESPACE", answered with 403; * matches all
	// Manifests is YAML of a cluster: the tokens of its ServiceAccounts, TokenOf
	// system:serviceaccount:NAMESPACE:NAME, may do what its roles allow and no more.
	Manifests string
	// SignTTL is the life of an exchanged token; 0 = 10 minutes.
	SignTTL time.Duration
	// NoWatchCache has watches served from etcd, so that Compact makes the
	// versions of before too old for them.
	NoWatchCache bool
	// Leases has the server serve Leases of coordination.k8s.io.
	Leases bool
	// NoFlux has the server know nothing of GitRepositories.
	NoFlux bool
	// FluxDefinitions has the server define the sources as Flux does, and not as limpet does.
	FluxDefinitions bool
}

// Server is a running API server. Its methods are safe for concurrent use.
type Server struct {
	URL     string // https://127.0.0.1:port
	SignURL string // where tokens are exchanged
	Token   string // bearer token that may do everything
	CAFile  string

	dir        string
	controlURL string
	process    *exec.Cmd
	stdin      io.WriteCloser // the server ends when this is closed
	stdout     *bufio.Reader
	stderr     *tail
}

var shared struct {
	mu     sync.Mutex // guards server
	server *Server
}

// Real returns the server that all tests of the package share; the first call starts it, in the
// full lane only. Tests keep apart by their namespaces. The server ends with Main, at the latest
// with the test process.
func Real(t testing.TB) *Server {
	t.Helper()
	suite.Full(t)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server != nil {
		return shared.server
	}
	dir, err := os.MkdirTemp("", "limpet-api-")
	if err != nil {
		t.Fatal(err)
	}
	s, err := start(t, dir, api.CRDs(), "--ephemeral")
	if err != nil {
		t.Fatal(err)
	}
	shared.server = s
	return s
}

// Main is for TestMain: it runs the tests and stops the shared server.
//
//	func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }
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

// Start runs a server for one test, in the full lane only, and stops it at the end of that test.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	suite.Full(t)
	var args []string
	for _, rule := range o.Deny {
		args = append(args, "--deny", rule)
	}
	dir := t.TempDir()
	if o.Manifests != "" {
		file := filepath.Join(dir, "manifests.yaml")
		if err := os.WriteFile(file, []byte(o.Manifests), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--manifests", file)
	}
	if o.SignTTL > 0 {
		args = append(args, "--sign-ttl", o.SignTTL.String())
	}
	if o.NoWatchCache {
		args = append(args, "--no-watch-cache")
	}
	kinds := api.CRDs()
	if o.NoFlux {
		documents := slices.DeleteFunc(strings.Split(string(kinds), "---\n"),
			func(d string) bool { return strings.Contains(d, "kind: GitRepository\n") })
		kinds = []byte(strings.Join(documents, "---\n"))
	}
	if o.FluxDefinitions {
		kinds = slices.Concat(ownDefinitions(kinds), fluxDefinitions(t))
	}
	if o.Leases {
		kinds = append(kinds, leaseCRD...)
	}
	s, err := start(t, dir, kinds, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.halt(); err != nil {
			t.Errorf("stop API server: %v", err)
		}
	})
	return s
}

// ownDefinitions returns those of kinds that are not of Flux.
func ownDefinitions(kinds []byte) []byte {
	documents := slices.DeleteFunc(strings.Split(string(kinds), "---\n"),
		func(d string) bool { return strings.Contains(d, "group: source.toolkit.fluxcd.io\n") })
	return []byte(strings.Join(documents, "---\n"))
}

// fluxDefinitions returns the definitions of a release of Flux's source-controller.
func fluxDefinitions(t testing.TB) (all []byte) {
	t.Helper()
	download := exec.Command("go", "mod", "download", "-json", "github.com/fluxcd/source-controller@v1.9.1")
	download.Dir = t.TempDir()
	out, err := download.Output()
	if err != nil {
		t.Fatal(err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(module.Dir, "config/crd/bases/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d definitions, %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(append(all, "---\n"...), data...)
	}
	return all
}

// start runs the process and waits until it serves the kinds, which are
// CustomResourceDefinitions.
func start(t testing.TB, dir string, kinds []byte, args ...string) (*Server, error) {
	t.Helper()
	crds := filepath.Join(dir, "crds.yaml")
	if err := os.WriteFile(crds, kinds, 0o600); err != nil {
		return nil, err
	}
	s := &Server{Token: adminToken, dir: dir, stderr: &tail{keep: keepStderr}}
	s.process = exec.Command(apiserver(t), append([]string{"--dir", dir, "--token", adminToken, "--crds", crds, "--no-fsync",
		"--requests", s.requestLog(), "--sign", "127.0.0.1:0", "--sign-token", SignToken}, args...)...)
	s.process.Stderr = s.stderr
	stdout, err := s.process.StdoutPipe()
	if err == nil {
		s.stdin, err = s.process.StdinPipe()
	}
	if err == nil {
		err = s.process.Start()
	}
	if err != nil {
		return nil, err
	}
	s.stdout = bufio.NewReader(stdout)
	late := time.AfterFunc(readyWithin, func() { s.process.Process.Kill() })
	defer late.Stop()
	var ready struct{ URL, SignURL, CA, ControlURL string }
	line, err := s.stdout.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	if err != nil {
		return nil, fmt.Errorf("API server did not start: %w", errors.Join(err, s.halt()))
	}
	s.URL, s.SignURL, s.CAFile, s.controlURL = ready.URL, ready.SignURL, ready.CA, ready.ControlURL
	return s, nil
}

// halt ends the server and waits for it.
func (s *Server) halt() error {
	late := time.AfterFunc(stopWithin, func() { s.process.Process.Kill() })
	defer late.Stop()
	s.stdin.Close()
	_, readErr := io.Copy(io.Discard, s.stdout)
	if err := errors.Join(s.process.Wait(), readErr); err != nil {
		return fmt.Errorf("%w\n%s", err, s.stderr)
	}
	return nil
}

// TokenOf returns a token that may do everything and whose requests carry the
// name of a user, in the log and for faults.
func (s *Server) TokenOf(user string) string { return s.Token + "." + user }

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
