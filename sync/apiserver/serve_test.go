package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
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

// TestServeStops: a watch ends at once, a request in flight gets its answer.
func TestServeStops(t *testing.T) {
	t.Parallel()
	ln := listen(t)
	entered, finish := make(chan string, 2), make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		entered <- req.URL.Path
		if strings.Contains(req.URL.Path, "/watch/") {
			<-req.Context().Done()
			return
		}
		select {
		case <-finish:
			_, _ = io.WriteString(w, "done")
		case <-req.Context().Done():
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, ln, h) }()
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
	watch, plain := get("/api/v1/watch/secrets"), get("/p")
	<-entered
	<-entered
	stop()
	if a := <-watch; a.err != nil {
		t.Errorf("watch: %v", a.err)
	}
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

func TestServeListenerFails(t *testing.T) {
	t.Parallel()
	ln := listen(t)
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Serve(t.Context(), ln, http.NotFoundHandler()); err == nil {
		t.Error("Serve on a closed listener gives no error")
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
		served <- Serve(ctx, ln, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { _, _ = io.WriteString(w, req.Proto) }))
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
