package apiserver

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestSelfSigned(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
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
	source := &certificateFiles{cert: certFile, key: keyFile}
	get := func() *x509.Certificate {
		t.Helper()
		pair, err := source.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf
	}
	first := get()
	if get() != first {
		t.Error("an unchanged certificate is read again")
	}
	if err := os.WriteFile(certFile, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if get() != first {
		t.Error("a broken file replaces the certificate")
	}
	if _, _, err := SelfSigned(dir, "edge-1"); err != nil {
		t.Fatal(err)
	}
	if second := get(); second.Equal(first) {
		t.Error("a new certificate is not seen")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	if _, err := ListenTLS(ln, filepath.Join(dir, "absent.crt"), keyFile); err == nil {
		t.Error("a certificate that is not there is accepted")
	}
}
