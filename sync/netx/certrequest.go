package netx

import (
	"context"
	"crypto/tls"
	"sync"
)

// maxRequests bounds the hosts of which Asked knows.
const maxRequests = 256

// CertificateRequests remembers which hosts ask for a client certificate in the handshake. A host
// that has one in mind may well let the connection through without it, and refuse
// the request as if the token were wrong. The zero Asked is ready; safe for
// concurrent use.
type CertificateRequests struct {
	mu    sync.Mutex        // guards hints
	hints map[string]string // by who asks whom
}

type requestKey struct{}

// handshake is where a handshake tells that it was asked.
type handshake struct {
	asked *CertificateRequests
	key   string
}

// Watch is the context for a request; handshakes that are made for it are noted
// under key, which tells the host and with what it is asked.
func (a *CertificateRequests) Watch(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, requestKey{}, handshake{a, key})
}

// Hint is what to do about the client certificate that was asked for under key, ""
// when none was, or when one was given.
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

// certificateChooser chooses a certificate as crypto/tls does, and tells a watcher.
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
