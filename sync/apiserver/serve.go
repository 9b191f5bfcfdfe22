package apiserver

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"limpet/state/atomicfile"
	"limpet/sync/apiserver/token"
	"limpet/sync/auth"
	"limpet/sync/fileid"
	"limpet/sync/kube"
)

const (
	// headerTimeout is how long a client may take to send its headers.
	headerTimeout = 10 * time.Second
	// idleTimeout closes idle connections. It is longer than the 90 s after which
	// Go's clients close theirs, so that the client closes first.
	idleTimeout = 2 * time.Minute
	// bodyTimeout is how long a client may take to send the body of a request, of at most 3 MiB.
	bodyTimeout = time.Minute
	// drainTimeout is the time for running requests once the server stops: a client that is slow must
	// not delay that.
	drainTimeout = 3 * time.Second
	// maxHeaderBytes is ample for an access token and a client certificate.
	maxHeaderBytes = 64 << 10
	// exchangeTimeout bounds a token exchange, and the time until its client sends another.
	exchangeTimeout = 10 * time.Second
)

// Serve serves srv from ln until ctx ends, and closes ln. Limits that srv lacks are those of the
// API, whose watches last. It gives running requests 3 s to finish and closes the remaining
// connections: watches end with their Server, which is to be closed when ctx ends. It returns nil
// after such a stop, else the error of the listener.
func Serve(ctx context.Context, ln net.Listener, srv *http.Server) error {
	srv.ReadHeaderTimeout, srv.IdleTimeout = cmp.Or(srv.ReadHeaderTimeout, headerTimeout), cmp.Or(srv.IdleTimeout, idleTimeout)
	srv.MaxHeaderBytes = cmp.Or(srv.MaxHeaderBytes, maxHeaderBytes)
	srv.ErrorLog = cmp.Or(srv.ErrorLog, slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug))
	stopped := make(chan error, 1) // the goroutine below sends once
	go func() { stopped <- srv.Serve(ln) }()
	select {
	case err := <-stopped:
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	err := shutdown(srv)
	<-stopped
	if err != nil {
		return fmt.Errorf("stop serving %s: %w", ln.Addr(), err)
	}
	return nil
}

// shutdown gives running requests some time to finish.
func shutdown(srv *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	err := srv.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = srv.Close()
	}
	return err
}

// ServeExchange is Serve for a token exchange, which answers clients without a token too.
func ServeExchange(ctx context.Context, ln net.Listener, exchange http.Handler) error {
	return Serve(ctx, ln, &http.Server{
		Handler: exchange, ReadTimeout: exchangeTimeout, WriteTimeout: 2 * exchangeTimeout, IdleTimeout: exchangeTimeout,
	})
}

const (
	selfCertName = "limpet-api.crt"
	selfKeyName  = "limpet-api.key"
	// A self-signed certificate is valid for a year and is replaced at a start within its last 30
	// days, so that a server that restarts monthly never has an expired one.
	selfCertLifetime = 365 * 24 * time.Hour
	selfCertRenewal  = 30 * 24 * time.Hour
)

// SelfSigned ensures that dir holds a certificate for localhost, 127.0.0.1, ::1 and the given
// hosts, and returns the paths of the certificate and of its key (0600). It keeps an existing
// certificate that is valid, covers all hosts and has 30 days left. Clients may use the certificate
// as their CA file.
func SelfSigned(dir string, hosts ...string) (certFile, keyFile string, err error) {
	certFile, keyFile = filepath.Join(dir, selfCertName), filepath.Join(dir, selfKeyName)
	hosts = append([]string{"localhost", "127.0.0.1", "::1"}, slices.DeleteFunc(hosts, func(host string) bool { return host == "" })...)
	if usableCertificate(certFile, keyFile, hosts, time.Now()) {
		return certFile, keyFile, nil
	}
	cert, key, err := makeCertificate(hosts, time.Now())
	if err != nil {
		return "", "", fmt.Errorf("make certificate: %w", err)
	}
	// A crash between the two writes leaves a mismatched pair, which the next start replaces.
	if err := errors.Join(
		atomicfile.Write(keyFile, 0o600, atomicfile.Data(key)), atomicfile.Write(certFile, 0o644, atomicfile.Data(cert))); err != nil {
		return "", "", fmt.Errorf("write certificate: %w", err)
	}
	return certFile, keyFile, nil
}

func usableCertificate(certFile, keyFile string, hosts []string, now time.Time) bool {
	if _, err := auth.ReadPrivate(keyFile); err != nil {
		return false
	}
	pair, err := ReadPair(certFile, keyFile)
	if err != nil || now.Before(pair.Leaf.NotBefore) || now.Add(selfCertRenewal).After(pair.Leaf.NotAfter) {
		return false
	}
	return !slices.ContainsFunc(hosts, func(host string) bool { return pair.Leaf.VerifyHostname(host) != nil })
}

func makeCertificate(hosts []string, now time.Time) (certPEM, keyPEM []byte, err error) {
	key, keyPEM, err := token.NewKey()
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, err
	}
	template := x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "limpet api"},
		NotBefore:    now.Add(-time.Hour), // clocks of clients are not exact
		NotAfter:     now.Add(selfCertLifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		// It is its own CA, so that clients may name it in their CA file.
		IsCA: true, BasicConstraintsValid: true,
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM, err
}

// Listener is where something is served to other hosts.
type Listener struct {
	Address           string
	CertFile, KeyFile string   // "" = plain http
	Protocols         []string // see ListenTLS
	Limit             func(net.Listener) net.Listener
}

// listenRetry is the delay after a failed listen: an agent may start before the network of its
// host.
const listenRetry = 15 * time.Second

// Wait listens as soon as that is possible; it returns nil when ctx ends before. That it is not is
// logged once, with what is not served and the flag of the address.
func (l Listener) Wait(ctx context.Context, log *slog.Logger, what, flag string) net.Listener {
	ln, err := l.listen()
	if err != nil {
		log.Warn("no "+what, "address", l.Address, "err", err, "next", flag+" with another address", "again_in", listenRetry)
	}
	for ; err != nil; ln, err = l.listen() {
		if kube.Sleep(ctx, listenRetry) != nil {
			return nil
		}
	}
	return ln
}

func (l Listener) listen() (net.Listener, error) {
	ln, err := net.Listen("tcp", l.Address)
	if err != nil {
		return nil, err
	}
	if ln = l.Limit(ln); l.CertFile == "" {
		return ln, nil
	}
	secure, err := ListenTLS(ln, l.CertFile, l.KeyFile, l.Protocols...)
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return secure, nil
}

// ListenTLS wraps a listener with TLS 1.2 or newer, for the given protocols or else HTTP/2 and
// HTTP/1.1. It reads the files at once, and again when they change; if that fails, it logs a
// warning and keeps the former pair.
func ListenTLS(ln net.Listener, certFile, keyFile string, protocols ...string) (net.Listener, error) {
	if len(protocols) == 0 {
		protocols = []string{"h2", "http/1.1"}
	}
	pair := &kube.Reloaded[*tls.Certificate]{Paths: []string{certFile, keyFile}, Log: slog.Default(), Read: func() (*tls.Certificate, error) {
		pair, err := ReadPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("read certificate %s and key %s: %w", certFile, keyFile, err)
		}
		return &pair, nil
	}}
	if _, err := pair.Get(); err != nil {
		return nil, err
	}
	return tls.NewListener(ln, &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     protocols,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.Get() },
	}), nil
}

// ReadPair reads a certificate and its private key.
func ReadPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := fileid.Read(certFile, fileid.MaxSettings)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := fileid.Read(keyFile, fileid.MaxSettings)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}
