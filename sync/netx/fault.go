package netx

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"sync"
	"time"

	"limpet/sync/text"
)

// TLSFault is the reason of a failed TLS handshake and the next step. Both texts are
// stable, so that a status which repeats them does not change.
type TLSFault struct {
	Why, Next string
	Plain     bool // the other side does not speak TLS
	Client    bool // it does not take the certificate of this side, or requires one
}

// TLSFaultOf finds the fault in the error of a connection to address, a host with its port. The texts name the
// keys beside the credentials for authorities and certificates.
func TLSFaultOf(err error, address string) (TLSFault, bool) {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var verify *tls.CertificateVerificationError
	switch {
	case errors.As(err, &unknown):
		return TLSFault{Why: "x509: certificate signed by unknown authority",
			Next: "give the authority's certificate as ca.crt beside the credentials, or in a rule of git-credentials; " +
				"openssl s_client -showcerts -connect " + address + " shows it"}, true
	case errors.As(err, &host):
		return TLSFault{Why: "x509: certificate is not valid for " + host.Host + certificateNames(host.Certificate),
			Next: "check the host in the url"}, true
	case errors.As(err, &invalid):
		why := "x509: certificate is not valid"
		if cert := invalid.Cert; invalid.Reason == x509.Expired && cert != nil {
			why = "x509: certificate has expired on " + cert.NotAfter.UTC().Format(time.DateOnly)
			if time.Now().Before(cert.NotBefore) {
				why = "x509: certificate is not valid before " + cert.NotBefore.UTC().Format(time.DateOnly)
			}
		}
		return TLSFault{Why: why, Next: "check the clock of this host, then the certificate"}, true
	case errors.As(err, &verify):
		return TLSFault{Why: "x509: certificate is not trusted: " + verify.Err.Error(),
			Next: "give the authority's certificate as ca.crt beside the credentials"}, true
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return TLSFault{Why: "not a TLS server: " + address, Next: "check scheme and port of the url", Plain: true}, true
	}
	_, alert, found := strings.Cut(err.Error(), "remote error: tls: ")
	if !found {
		return TLSFault{}, false
	}
	return TLSFault{Why: "TLS handshake failed: " + alert,
		Next: "the server may require a client certificate, or another one: tls.crt and tls.key", Client: true}, true
}

// certificateNames returns the hosts of a certificate.
func certificateNames(cert *x509.Certificate) string {
	if cert == nil || len(cert.DNSNames) == 0 {
		return ""
	}
	names := []rune(text.Clean(strings.Join(cert.DNSNames[:min(len(cert.DNSNames), 3)], ", ")))
	return ", only for " + string(names[:min(len(names), 200)])
}

// maxRequests bounds the remembered hosts.
const maxRequests = 256

// CertificateRequests remembers which hosts request a client certificate in the
// handshake. Such a host may accept a connection without one, and reject the request
// as if the token were invalid. The zero value is ready; safe for concurrent use.
type CertificateRequests struct {
	mu    sync.Mutex        // guards hints
	hints map[string]string // by key of Watch
}

type requestKey struct{}

// handshake is the context value of a watched handshake.
type handshake struct {
	asked *CertificateRequests
	key   string
}

// Watch returns the context for a request; it records handshakes of the request under
// key, which identifies the host and the credentials.
func (a *CertificateRequests) Watch(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, requestKey{}, handshake{a, key})
}

// Hint returns the advice about the client certificate requested under key, "" when none was requested or one was sent.
func (a *CertificateRequests) Hint(key string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.hints[key]
}

func (a *CertificateRequests) note(key, hint string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.hints[key]; a.hints == nil || !known && len(a.hints) >= maxRequests {
		a.hints = map[string]string{}
	}
	a.hints[key] = hint
}

// certificateChooser chooses a certificate as crypto/tls does, and records the request.
func certificateChooser(mine []tls.Certificate) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		hint, chosen := "it asks for a client certificate, and none is given: tls.crt and tls.key", &tls.Certificate{}
		for i := range mine {
			hint = "it asks for a client certificate of another authority than that of tls.crt"
			if info.SupportsCertificate(&mine[i]) == nil {
				hint, chosen = "", &mine[i]
				break
			}
		}
		if at, ok := info.Context().Value(requestKey{}).(handshake); ok {
			at.asked.note(at.key, hint)
		}
		return chosen, nil
	}
}
