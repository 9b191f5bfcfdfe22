package kube

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// authority signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

var serial atomic.Int64

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial.Add(1)), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err == nil {
		a.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue signs a certificate for a server on 127.0.0.1 or for a client.
func (a *authority) issue(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	private := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial.Add(1)), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// serve starts a TLS server that shows the certificate in pair and, with
// clients set, asks for one signed by the authority in it.
func serve(t *testing.T, h http.Handler, pair *atomic.Pointer[tls.Certificate], clients *atomic.Pointer[x509.CertPool]) string {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{NextProtos: []string{"h2", "http/1.1"}, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		cfg := &tls.Config{NextProtos: []string{"h2", "http/1.1"}, Certificates: []tls.Certificate{*pair.Load()}}
		if clients != nil {
			cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, clients.Load()
		}
		return cfg, nil
	}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

func load(t *testing.T, cert, key []byte) *atomic.Pointer[tls.Certificate] {
	t.Helper()
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	var p atomic.Pointer[tls.Certificate]
	p.Store(&pair)
	return &p
}

// write puts files into a directory the way a secret mount does: by rename.
func write(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	for name, data := range files {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path+".new", data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
}

var okHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	name := ""
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		name = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	w.Header().Set("Content-Type", "application/json")
	answer(w, map[string]any{"proto": r.Proto, "client": name})
})

// Each rotation of authority and client certificate is taken up without a
// restart, and what the former authority signed is refused.
func TestTLSFilesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	ca := newAuthority(t)
	serverCert, serverKey := ca.issue(t, "server")
	pair, clients := load(t, serverCert, serverKey), new(atomic.Pointer[x509.CertPool])
	trust := func(a *authority) *x509.CertPool {
		pool := x509.NewCertPool()
		pool.AddCert(a.cert)
		return pool
	}
	clients.Store(trust(ca))
	url := serve(t, okHandler, pair, clients)
	clientCert, clientKey := ca.issue(t, "client-0")
	write(t, dir, map[string][]byte{"ca": ca.pem, "cert": clientCert, "key": clientKey})
	client := connect(t, Config{Server: url, Logger: slog.New(slog.DiscardHandler),
		TLS: TLS{CAFile: path("ca"), CertFile: path("cert"), KeyFile: path("key")}})
	get := func() (string, error) {
		_, answer, err := client.once(t.Context(), http.MethodGet, "/apis", nil, "", nil)
		return string(answer), err
	}
	if got, err := get(); err != nil || !strings.Contains(got, "client-0") || !strings.Contains(got, "HTTP/2.0") {
		t.Fatalf("answer %s, %v", got, err)
	}
	for range 100 {
		next := newAuthority(t)
		serverCert, serverKey = next.issue(t, "server")
		pair.Store(load(t, serverCert, serverKey).Load())
		clients.Store(trust(next))
		clientCert, clientKey = next.issue(t, "client-next")
		write(t, dir, map[string][]byte{"cert": clientCert, "key": clientKey})
		if _, err := get(); !isCertificateError(err) || !strings.Contains(Hint(err), "--tls-ca-file") || Retryable(err) {
			t.Fatalf("the former authority is still trusted: %v", err)
		}
		write(t, dir, map[string][]byte{"ca": next.pem})
		if got, err := get(); err != nil || !strings.Contains(got, "client-next") {
			t.Fatalf("answer %s, %v", got, err)
		}
	}
	// Half-written files leave the former ones in use.
	write(t, dir, map[string][]byte{"ca": []byte("-----BEGIN CERT"), "key": nil})
	if _, err := get(); err != nil {
		t.Errorf("after half a file: %v", err)
	}
}

func TestTLSErrorsNameTheFlag(t *testing.T) {
	dir := t.TempDir()
	ca, other := newAuthority(t), newAuthority(t)
	cert, key := ca.issue(t, "client")
	_, stranger := other.issue(t, "stranger")
	write(t, dir, map[string][]byte{"ca": ca.pem, "cert": cert, "key": key, "stranger": stranger, "empty": nil, "text": []byte("hello"),
		"broken": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("nonsense")})})
	f := func(name string) string { return filepath.Join(dir, name) }
	yes, no := true, false
	for name, tc := range map[string]struct {
		tls  TLS
		want []string // parts of the error; none = no error
	}{
		"all":                  {TLS{CAFile: f("ca"), CertFile: f("cert"), KeyFile: f("key")}, nil},
		"CA missing":           {TLS{CAFile: f("none")}, []string{"--tls-ca-file", "none", "no such file"}},
		"CA empty":             {TLS{CAFile: f("empty")}, []string{"--tls-ca-file", "empty", "holds no certificate"}},
		"CA is text":           {TLS{CAFile: f("text")}, []string{"--tls-ca-file", "text", "holds no certificate"}},
		"CA is a key":          {TLS{CAFile: f("key")}, []string{"--tls-ca-file", "holds no certificate"}},
		"CA broken":            {TLS{CAFile: f("broken")}, []string{"--tls-ca-file", "holds no certificate"}},
		"CA is a directory":    {TLS{CAFile: dir}, []string{"--tls-ca-file", "not a regular file"}},
		"cert without key":     {TLS{CertFile: f("cert")}, []string{"--tls-cert-file", "--tls-key-file"}},
		"key without cert":     {TLS{KeyFile: f("key")}, []string{"--tls-key-file", "--tls-cert-file"}},
		"cert missing":         {TLS{CertFile: f("none"), KeyFile: f("key")}, []string{"--tls-cert-file", "no such file"}},
		"key missing":          {TLS{CertFile: f("cert"), KeyFile: f("none")}, []string{"--tls-key-file", "no such file"}},
		"cert is text":         {TLS{CertFile: f("text"), KeyFile: f("key")}, []string{"--tls-cert-file", "text"}},
		"key of another":       {TLS{CertFile: f("cert"), KeyFile: f("stranger")}, []string{"--tls-key-file", "does not match"}},
		"insecure with CA":     {TLS{Insecure: &yes, CAFile: f("ca")}, []string{"--tls-insecure", "--tls-ca-file"}},
		"not insecure with CA": {TLS{Insecure: &no, CAFile: f("ca")}, nil},
	} {
		client, err := Connect(t.Context(), Config{Server: "https://host.test", TLS: tc.tls, Logger: slog.New(slog.DiscardHandler)})
		if err == nil {
			client.Close()
		}
		if (err == nil) != (tc.want == nil) {
			t.Errorf("%s: error %v", name, err)
			continue
		}
		for _, part := range tc.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %q lacks %q", name, err, part)
			}
		}
		var flag *FlagError
		if err != nil && !errors.As(err, &flag) {
			t.Errorf("%s: error %T", name, err)
		}
	}
}

// Without a word about it, the certificate of a loopback host is not checked,
// with one warning; that of any other host is.
func TestTLSInsecureDefault(t *testing.T) {
	ca := newAuthority(t)
	dir := t.TempDir()
	write(t, dir, map[string][]byte{"ca": ca.pem})
	yes, no := true, false
	for name, tc := range map[string]struct {
		server string
		tls    TLS
		want   bool
	}{
		"127.0.0.1":       {"https://127.0.0.1:6446", TLS{}, true},
		"127.9.9.9":       {"https://127.9.9.9", TLS{}, true},
		"::1":             {"https://[::1]:6446", TLS{}, true},
		"localhost":       {"https://localhost:6446", TLS{}, true},
		"x.localhost":     {"https://x.localhost", TLS{}, true},
		"host":            {"https://grafana.test", TLS{}, false},
		"a lookalike":     {"https://localhost.evil.test", TLS{}, false},
		"0.0.0.0":         {"https://0.0.0.0", TLS{}, false},
		"loopback and CA": {"https://127.0.0.1", TLS{CAFile: filepath.Join(dir, "ca")}, false},
		"said no":         {"https://127.0.0.1", TLS{Insecure: &no}, false},
		"said yes":        {"https://grafana.test", TLS{Insecure: &yes}, true},
	} {
		var log bytes.Buffer
		client := connect(t, Config{Server: tc.server, TLS: tc.tls, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		cfg := client.pools[0].newest.value.TLSClientConfig
		if cfg.InsecureSkipVerify != tc.want || cfg.MinVersion != tls.VersionTLS12 {
			t.Errorf("%s: insecure %v, min version %x", name, cfg.InsecureSkipVerify, cfg.MinVersion)
		}
		if warned := strings.Count(log.String(), "level=WARN"); (warned == 1) != tc.want || warned > 1 {
			t.Errorf("%s: %d warnings: %s", name, warned, log.String())
		}
	}
}

// DISABLE_HTTP2 is client-go's own way around proxies that break HTTP/2.
func TestHTTP2CanBeSwitchedOff(t *testing.T) {
	t.Setenv("DISABLE_HTTP2", "1")
	ca := newAuthority(t)
	cert, key := ca.issue(t, "server")
	client := connect(t, Config{Server: serve(t, okHandler, load(t, cert, key), nil), Logger: slog.New(slog.DiscardHandler)})
	if _, got, err := client.once(t.Context(), http.MethodGet, "/apis", nil, "", nil); err != nil ||
		!strings.Contains(string(got), "HTTP/1.1") {
		t.Errorf("answer %s, %v", got, err)
	}
}
