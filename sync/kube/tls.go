package kube

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"

	"limpet/sync/fileid"
)

// material is one PEM text of the TLS configuration, from a file or, with a kubeconfig, from
// memory.
type material struct {
	name string // of the flag, for errors
	path string
	data []byte // takes precedence over path
}

func (m material) given() bool { return m.path != "" || len(m.data) > 0 }

func (m material) read() ([]byte, error) {
	if len(m.data) > 0 {
		return m.data, nil
	}
	data, err := fileid.Read(m.path, fileid.MaxSettings)
	if err != nil {
		return nil, &FlagError{Flag: m.name, Err: err}
	}
	return data, nil
}

// tlsFiles is what a TLS configuration is made of.
type tlsFiles struct {
	ca, cert, key material
	serverName    string // of the kubeconfig; "" = the host of the URL
	insecure      bool
	// certificate is the answer of a kubeconfig's exec plugin; nil without one.
	certificate func() (*tls.Certificate, error)
}

// config reads the files. Its errors name the flag.
func (f tlsFiles) config() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.serverName, InsecureSkipVerify: f.insecure}
	if f.ca.given() {
		data, err := f.ca.read()
		if err != nil {
			return nil, err
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(data) {
			return nil, flagErrorf(f.ca.name, "%sholds no certificate in PEM form", f.ca.place())
		}
	}
	switch {
	case f.cert.given() && f.key.given():
		pair, err := f.pair()
		if err != nil {
			return nil, err
		}
		cfg.Certificates = []tls.Certificate{*pair}
	case f.cert.given():
		return nil, flagErrorf(f.cert.name, "needs a key: set %s", f.key.name)
	case f.key.given():
		return nil, flagErrorf(f.key.name, "needs a certificate: set %s", f.cert.name)
	case f.certificate != nil:
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, err := f.certificate()
			if cert == nil && err == nil {
				cert = &tls.Certificate{} // crypto/tls wants an empty one for "none"
			}
			return cert, err
		}
	}
	return cfg, nil
}

func (f tlsFiles) pair() (*tls.Certificate, error) {
	cert, err := f.cert.read()
	if err != nil {
		return nil, err
	}
	key, err := f.key.read()
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	switch {
	case err == nil:
		return &pair, nil
	case strings.Contains(err.Error(), "private key"):
		return nil, flagErrorf(f.key.name, "%s%w", f.key.place(), err)
	default:
		return nil, flagErrorf(f.cert.name, "%s%w", f.cert.place(), err)
	}
}

// place begins an error with the name of the file, when there is one.
func (m material) place() string {
	if m.path == "" {
		return ""
	}
	return m.path + ": "
}

// checkTLS fills in the flags over the kubeconfig, decides whether the
// server's certificate is checked, and reads all files once.
func (t *target) checkTLS(c Config) error {
	if c.TLS.CAFile != "" {
		t.files.ca = material{name: "--tls-ca-file", path: c.TLS.CAFile}
	}
	if c.TLS.CertFile != "" || c.TLS.KeyFile != "" {
		t.files.cert = material{name: "--tls-cert-file", path: c.TLS.CertFile}
		t.files.key = material{name: "--tls-key-file", path: c.TLS.KeyFile}
	}
	if t.insecure != nil && *t.insecure && t.files.ca.given() {
		return &FlagError{Flag: "--tls-insecure", Err: errors.New("excludes --tls-ca-file: with a CA the certificate is checked")}
	}
	_, err := t.filesFor(t.base).config()
	return err
}

// filesFor is the TLS material towards one of the hosts that are spoken to.
// Unset, --tls-insecure holds for loopback hosts without a CA only.
func (t *target) filesFor(host *url.URL) tlsFiles {
	f := t.files
	f.insecure = !f.ca.given() && loopback(host.Hostname())
	if t.insecure != nil {
		f.insecure = *t.insecure
	}
	if host != t.base {
		f.serverName = ""
	}
	return f
}

func loopback(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Reloaded is a value made of files, which are read again when one of them changes. While
// they cannot be used, the former value is, and the fault is logged once.
type Reloaded[T any] struct {
	Paths []string
	Read  func() (T, error)
	Log   *slog.Logger

	mu    sync.Mutex // guards the fields below
	stamp string     // of the files that were tried last, good or bad
	value T
	known bool
}

// Get returns the value. It returns an error only while there has never been one.
func (r *Reloaded[T]) Get() (T, error) { return r.get(false) }

func (r *Reloaded[T]) get(again bool) (T, error) {
	stamps := make([]string, len(r.Paths))
	for i, path := range r.Paths {
		stamps[i] = fileStamp(path)
	}
	stamp := strings.Join(stamps, "|")
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known && stamp == r.stamp && !again {
		return r.value, nil
	}
	value, err := r.Read()
	switch {
	case err == nil:
		r.value, r.known = value, true
	case !r.known:
		return value, err
	case stamp != r.stamp:
		r.Log.Warn("file unusable, keeping the former one", "files", r.Paths, "err", err)
	}
	r.stamp = stamp
	return r.value, nil
}

// fileStamp identifies the state of a file without reading it. Files that are replaced
// by rename, as secret mounts are, change in all parts of it.
func fileStamp(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return err.Error()
	}
	var inode uint64
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = st.Ino
	}
	return fmt.Sprintf("%d %d %d", info.Size(), info.ModTime().UnixNano(), inode)
}
