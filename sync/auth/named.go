package auth

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// Named reads a Secret of a source, or the files of the same names that stand for it. keys are those
// that may be files. One that is not there is an error: it must not be replaced by another identity.
func (p Places) Named(ctx context.Context, namespace, name string, keys ...string) (map[string][]byte, error) {
	var at place
	var err error
	if p.Secrets != nil {
		at.keys, err = p.Secrets(ctx, namespace, name)
	}
	if err == nil && at.keys == nil {
		at, err = p.inDir(namespace, name, selection{files: oneOf(keys), check: checkPrivate})
	}
	if err == nil && len(at.keys) == 0 {
		err = fmt.Errorf("it is not there, is empty, or may not be read; its keys may be files %s.%s/KEY below --credentials-dir, too",
			namespace, name)
	}
	if err != nil {
		return nil, fmt.Errorf("secret %s/%s: %w", namespace, name, err)
	}
	return at.keys, nil
}

// oldKeys are the names that keys had before in Secrets of Flux, which reads them still.
var oldKeys = map[string]string{keyCA: keyCAOld, keyClientCert: "certFile", keyClientKey: "keyFile"}

// setTLS takes the authority and the client certificate of a Secret.
func (c *Credentials) setTLS(keys map[string][]byte) {
	value := func(key string) []byte {
		if len(keys[key]) > 0 {
			return keys[key]
		}
		return keys[oldKeys[key]]
	}
	c.CA, c.ClientCert, c.ClientKey = value(keyCA), value(keyClientCert), value(keyClientKey)
}

// NamedTransport reads how the host of a source is reached: the TLS keys of one Secret and the proxy
// of another, in the forms of Flux; "" is none.
func (p Places) NamedTransport(ctx context.Context, namespace, tls, proxy string) (*Credentials, error) {
	c := &Credentials{}
	if tls != "" {
		keys, err := p.Named(ctx, namespace, tls, slices.Concat(slices.Collect(maps.Keys(oldKeys)), slices.Collect(maps.Values(oldKeys)))...)
		if err != nil {
			return nil, err
		}
		c.setTLS(keys)
		if len(c.CA) == 0 && len(c.ClientCert) == 0 || (len(c.ClientCert) == 0) != (len(c.ClientKey) == 0) {
			return nil, fmt.Errorf("secret %s/%s: it needs ca.crt, or tls.crt with tls.key", namespace, tls)
		}
	}
	if proxy == "" {
		return c, nil
	}
	var err error
	c.Proxy, err = p.proxySecret(ctx, Lookup{Namespace: namespace, ProxySecret: proxy})
	return c, err
}
