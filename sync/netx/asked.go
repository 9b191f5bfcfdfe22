package netx

import (
	"context"
	"crypto/tls"
	"sync"
)

// mostAsked bounds the hosts of which Asked knows.
const mostAsked = 256

// Asked remembers which hosts ask for a client certificate in the handshake. A host
// that has one in mind may well let the connection through without it, and refuse
// the request as if the token were wrong. The zero Asked is ready; safe for
// concurrent use.
type Asked struct {
	mu    sync.Mutex        // guards hints
	hints map[string]string // by who asks whom
}

type askedKey struct{}

// asking is where a handshake tells that it was asked.
type asking struct {
	asked *Asked
	key   string
}

// Watch is the context for a request; handshakes that are made for it are noted
// under key, which tells the host and with what it is asked.
func (a *Asked) Watch(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, askedKey{}, asking{a, key})
}

// Hint is what to do about the client certificate that was asked for under key, ""
// when none was, or when one was given.
func (a *Asked) Hint(key string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.hints[key]
}

func (a *Asked) note(key, hint string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.hints[key]; a.hints == nil || !known && len(a.hints) >= mostAsked {
		a.hints = map[string]string{}
	}
	a.hints[key] = hint
}

// answering chooses a certificate as crypto/tls does, and tells a watcher.
func answering(mine []tls.Certificate) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		hint, chosen := "it asks for a client certificate, and none is given: tls.crt and tls.key", &tls.Certificate{}
		for i := range mine {
			hint = "it asks for a client certificate of another authority than that of tls.crt"
			if info.SupportsCertificate(&mine[i]) == nil {
				hint, chosen = "", &mine[i]
				break
			}
		}
		if at, ok := info.Context().Value(askedKey{}).(asking); ok {
			at.asked.note(at.key, hint)
		}
		return chosen, nil
	}
}
