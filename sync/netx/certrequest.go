package netx

import (
	"context"
	"crypto/tls"
	"sync"
)

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
