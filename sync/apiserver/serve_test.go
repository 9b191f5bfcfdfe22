package apiserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// TestServeStops: a request in flight gets its answer.
func TestServeStops(t *testing.T) {
	t.Parallel()
	ln := listen(t)
	entered, finish := make(chan string, 2), make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		entered <- req.URL.Path
		select {
		case <-finish:
			_, _ = io.WriteString(w, "done")
		case <-req.Context().Done():
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, ln, &http.Server{Handler: h}) }()
	type answer struct {
		body string
		err  error
	}
	get := func(path string) <-chan answer {
		out := make(chan answer, 1)
		go func() {
			res, err := http.Get("http://" + ln.Addr().String() + path)
			if err != nil {
				out <- answer{err: err}
				return
			}
			body, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			out <- answer{string(body), err}
		}()
		return out
	}
	plain := get("/p")
	<-entered
	stop()
	close(finish)
	if a := <-plain; a.err != nil || a.body != "done" {
		t.Errorf("request in flight: %q %v", a.body, a.err)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve = %v", err)
	}
	if c, err := net.DialTimeout("tcp", ln.Addr().String(), time.Second); err == nil {
		_ = c.Close()
		t.Error("the listener is still open")
	}
}

// TestServeExchange: a client whose request does not end is cut off.
func TestServeExchange(t *testing.T) {
	t.Parallel()
	for _, sent := range []string{"POST / HTTP/1.1\r\n", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{", ""} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			ln := &pipeListener{conns: make(chan net.Conn), life: ctx}
			served := make(chan error, 1)
			go func() {
				served <- ServeExchange(ctx, ln, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { _, _ = io.ReadAll(req.Body) }))
			}()
			conn, there := net.Pipe()
			ln.conns <- there
			start := time.Now()
			go func() { _, _ = io.WriteString(conn, sent) }()
			_, _ = io.ReadAll(conn)
			if took := time.Since(start); took > 2*exchangeTimeout {
				t.Errorf("%q: closed after %s", sent, took)
			}
			stop()
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
}

// pipeListener accepts connections in memory.
type pipeListener struct {
	conns chan net.Conn
	life  context.Context
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.life.Done():
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error { return nil }

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "in-process", Net: "unix"} }

// TestSlowBodyIsCut: a client that does not send what it announced holds no connection, and a watch
// goes on.
func TestSlowBodyIsCut(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.bodyTimeout = 50 * time.Millisecond
	server := httptest.NewServer(s)
	defer server.Close()
	for method, path := range map[string]string{"POST": base + "repositories", "PATCH": base + "repositories/x", "GET": base + "repositories", "PUT": "/nothing"} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/merge-patch+json\r\nContent-Length: 9\r\n\r\n{", method, path)
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.ReadAll(conn); err != nil {
			t.Errorf("%s: %v", method, err)
		}
		_ = conn.Close()
	}
	watch, err := http.Get(server.URL + base + "repositories?watch=1&timeoutSeconds=1")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	s.repository("later")
	if line, err := bufio.NewReader(watch.Body).ReadString('\n'); err != nil || !strings.Contains(line, `"later"`) {
		t.Errorf("watch: %q %v", line, err)
	}
}

// TestWatchEndsWithItsToken: a client whose token has expired sees no more.
func TestWatchEndsWithItsToken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	rec := httptest.NewRecorder()
	began := time.Now()
	s.serve(rec, httptest.NewRequest(http.MethodGet, base+"repositories?watch=1&timeoutSeconds=60", nil), began.Add(50*time.Millisecond))
	if took := time.Since(began); rec.Code != http.StatusOK || took > 30*time.Second {
		t.Errorf("%d after %s", rec.Code, took)
	}
}

// TestServeTLS: the self-made certificate serves as CA of a client, over HTTP/2.
func TestServeTLS(t *testing.T) {
	t.Parallel()
	certFile, keyFile, err := SelfSigned(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	plain := listen(t)
	ln, err := ListenTLS(plain, certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		proto := func(w http.ResponseWriter, req *http.Request) { _, _ = io.WriteString(w, req.Proto) }
		served <- Serve(ctx, ln, &http.Server{Handler: http.HandlerFunc(proto)})
	}()
	ca, err := os.ReadFile(certFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	client := &http.Client{Transport: transport}
	_, port, err := net.SplitHostPort(plain.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Get("https://localhost:" + port)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil || string(body) != "HTTP/2.0" {
		t.Errorf("answered over %q, %v", body, err)
	}
	transport.CloseIdleConnections()
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestSelfSigned(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	read := func(hosts ...string) (certificate string) {
		t.Helper()
		certFile, keyFile, err := SelfSigned(dir, hosts...)
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range append(hosts, "localhost", "127.0.0.1", "::1") {
			if err := pair.Leaf.VerifyHostname(host); err != nil {
				t.Error(err)
			}
		}
		if left := time.Until(pair.Leaf.NotAfter); left < 364*24*time.Hour || left > 366*24*time.Hour {
			t.Errorf("valid for %s", left)
		}
		if info, err := os.Stat(keyFile); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("key file: %v %v", info, err)
		}
		return string(pair.Leaf.Raw)
	}
	first := read()
	if read() != first {
		t.Error("a sound certificate is replaced")
	}
	named := read("edge-1.example.com", "10.1.2.3")
	if named == first {
		t.Error("a certificate without the host is kept")
	}
	if read("edge-1.example.com") != named {
		t.Error("a certificate that covers more than needed is replaced")
	}
	for name, spoil := range map[string]func() error{
		"damaged":         func() error { return os.WriteFile(filepath.Join(dir, selfCertName), []byte("x"), 0o600) },
		"key missing":     func() error { return os.Remove(filepath.Join(dir, selfKeyName)) },
		"key readable":    func() error { return os.Chmod(filepath.Join(dir, selfKeyName), 0o644) },
		"about to expire": func() error { return writeTestPair(dir, time.Now().Add(-selfCertLifetime+selfCertRenewal-time.Hour)) },
		"not valid yet":   func() error { return writeTestPair(dir, time.Now().Add(48*time.Hour)) },
	} {
		before := read()
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if read() == before {
			t.Errorf("%s: the certificate is kept", name)
		}
	}
}

func writeTestPair(dir string, made time.Time) error {
	cert, key, err := makeCertificate([]string{"localhost", "127.0.0.1", "::1"}, made)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, selfKeyName), key, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, selfCertName), cert, 0o600)
}

func TestListenTLSReloads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile, err := SelfSigned(dir)
	if err != nil {
		t.Fatal(err)
	}
	plain := listen(t)
	defer func() { _ = plain.Close() }()
	if _, err := ListenTLS(plain, filepath.Join(dir, "absent.crt"), keyFile); err == nil {
		t.Error("a certificate that is not there is accepted")
	}
	ln, err := ListenTLS(plain, certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1)) // shakes hands
			_ = c.Close()
		}
	}()
	get := func() *x509.Certificate {
		t.Helper()
		c, err := tls.Dial("tcp", plain.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		return c.ConnectionState().PeerCertificates[0]
	}
	first := get()
	if err := os.WriteFile(certFile, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !get().Equal(first) {
		t.Error("a broken file replaces the certificate")
	}
	if _, _, err := SelfSigned(dir, "edge-1"); err != nil {
		t.Fatal(err)
	}
	if get().Equal(first) {
		t.Error("a new certificate is not seen")
	}
}

// The server's side of a watch ends with the client's, whichever way it ends:
// the bubble does not end before all goroutines in it have.
func TestTransportCancels(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(cancel context.CancelFunc, resp *http.Response){
		"context": func(cancel context.CancelFunc, _ *http.Response) { cancel() },
		"close": func(_ context.CancelFunc, resp *http.Response) {
			if err := resp.Body.Close(); err != nil {
				panic(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				s.must("POST", folderPath, folder("a", "one", ""))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				resp := s.open(ctx, "GET", folderPath+"?watch=1", "")
				if _, err := resp.Body.Read(make([]byte, 10)); err != nil { // the rest of the event waits
					t.Fatal(err)
				}
				synctest.Wait()
				stop(cancel, resp)
				synctest.Wait() // the handler has returned
				if _, err := io.ReadAll(resp.Body); err == nil {
					t.Error("an answer that was cut off ends as if it were whole")
				} else if name == "context" && !errors.Is(err, context.Canceled) {
					t.Errorf("reading after the cancellation: %v", err)
				}
			})
		})
	}
}
