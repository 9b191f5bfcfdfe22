package auth

import (
	"context"
	"testing"
)

// TestNamedTransport: the TLS keys of a Secret have their names or, where these are missing, those
// that Flux gave them before; one of a pair is refused.
func TestNamedTransport(t *testing.T) {
	for name, c := range map[string]struct {
		keys          map[string]string
		ca, cert, key string
		bad           bool
	}{
		"now":           {keys: map[string]string{"ca.crt": "a", "tls.crt": "b", "tls.key": "c"}, ca: "a", cert: "b", key: "c"},
		"before":        {keys: map[string]string{"caFile": "a", "certFile": "b", "keyFile": "c"}, ca: "a", cert: "b", key: "c"},
		"both":          {keys: map[string]string{"ca.crt": "a", "caFile": "x"}, ca: "a"},
		"half a pair":   {keys: map[string]string{"certFile": "b"}, bad: true},
		"without a key": {keys: map[string]string{"username": "u"}, bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := Places{Secrets: func(context.Context, string, string) (map[string][]byte, error) {
				out := map[string][]byte{}
				for key, value := range c.keys {
					out[key] = []byte(value)
				}
				return out, nil
			}}
			got, err := p.NamedTransport(t.Context(), "default", "tls", "")
			if (err != nil) != c.bad {
				t.Fatal(err)
			}
			if err == nil && (string(got.CA) != c.ca || string(got.ClientCert) != c.cert || string(got.ClientKey) != c.key) {
				t.Errorf("%q %q %q", got.CA, got.ClientCert, got.ClientKey)
			}
		})
	}
}
