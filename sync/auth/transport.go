package auth

import (
	"cmp"
	"context"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"limpet/sync/netx"
	"limpet/sync/text"
)

// transportKeys say how a host is reached and trusted.
var transportKeys = []string{keyCA, keyCAOld, keyProxy, keyProxyUsername, keyProxyPassword}

// WithTransport adds to what from finds how the host is reached: the proxy of the Secret that
// Lookup.ProxySecret names, which wins, and that of rules that hold nothing but ca.crt and a proxy.
// Files <namespace>.<secret>/address, username and password may stand for the Secret. A proxy that
// is named and not there is an error: a repository with a proxy must not be asked without it.
func (p Places) WithTransport(from Source) Source {
	return func(ctx context.Context, l Lookup) (*Credentials, error) {
		found, err := from(ctx, l)
		if err == nil && l.ProxySecret != "" {
			found = found.copied()
			found.Source = cmp.Or(found.Source, "secret "+l.Namespace+"/"+l.ProxySecret)
			found.Proxy, err = p.proxySecret(ctx, l)
		}
		if err != nil {
			return nil, err
		}
		a, err := ParseAddress(l.URL)
		if err != nil {
			return found, nil
		}
		for _, r := range p.Rules.Get() {
			if !r.onlyTransport() || !r.matches(a) {
				continue
			}
			keys, err := r.keys(isForGit, checkPrivate)
			if err != nil {
				return nil, err
			}
			own, err := transport(place{keys: keys, name: "rule " + r.URL})
			if err != nil {
				return nil, err
			}
			found = found.copied()
			found.Source, found.Proxy = cmp.Or(found.Source, own.Source), cmp.Or(found.Proxy, own.Proxy)
			if len(found.CA) == 0 {
				found.CA = own.CA
			}
			break
		}
		return found, nil
	}
}

// copied returns a copy of c that may be changed; empty for nil.
func (c *Credentials) copied() *Credentials {
	if c == nil {
		return &Credentials{}
	}
	copy := *c
	return &copy
}

// ForOtherHost returns the part of c that is used for another host than its own: the
// trusted authorities and the proxy, no secret of the host. Nil stays nil.
func (c *Credentials) ForOtherHost() *Credentials {
	if c == nil {
		return nil
	}
	return &Credentials{CA: c.CA, Proxy: c.Proxy, Source: c.Source}
}

// ProxyError is returned when a Secret names no proxy that can be used.
type ProxyError struct{ error }

// Unwrap returns what is wrong.
func (e ProxyError) Unwrap() error { return e.error }

// proxySecret reads a proxy in Flux's form: the keys address, username, password.
func (p Places) proxySecret(ctx context.Context, l Lookup) (*netx.Proxy, error) {
	name := "secret " + l.Namespace + "/" + text.Clean(l.ProxySecret)
	var at place
	var err error
	if p.Secrets != nil {
		at.keys, err = p.Secrets(ctx, l.Namespace, l.ProxySecret)
	}
	if err == nil && at.keys == nil {
		at, err = p.inDir(l.Namespace, l.ProxySecret, selection{files: oneOf([]string{"address", keyUsername, keyPassword}), check: checkPrivate})
	}
	if err != nil {
		return nil, fmt.Errorf("read the proxy in %s: %w", name, err)
	}
	proxy, err := proxyOf(at.text, "address", keyUsername, keyPassword)
	if err == nil && proxy == nil {
		err = errors.New("this agent finds no key address there")
	}
	if err != nil {
		return nil, ProxyError{fmt.Errorf("proxy in %s: %w", name, err)}
	}
	proxy.Place = name
	return proxy, nil
}

// TransportKey is equal for credentials that may share connections: those with equal
// authorities, client certificates and proxies. It is "" where c has none of them.
func (c *Credentials) TransportKey() string {
	if c == nil || len(c.CA)+len(c.ClientCert) == 0 && c.Proxy == nil {
		return ""
	}
	return fingerprint(c.CA, c.ClientCert, c.ClientKey, proxyFields(c.Proxy))
}

// TLS returns the configuration of https with c: its authorities beside those of the system, and
// its client certificate. Nil has the system's roots. Errors never hold a secret.
func (c *Credentials) TLS() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c == nil {
		return config, nil
	}
	if len(c.CA) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil || pool == nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(c.CA) {
			return nil, errors.New("ca.crt holds no PEM certificate")
		}
		config.RootCAs = pool
	}
	if len(c.ClientCert) > 0 {
		pair, err := tls.X509KeyPair(c.ClientCert, c.ClientKey)
		if err != nil {
			return nil, errors.New("tls.crt and tls.key are not a pair of PEM certificate and key")
		}
		if key, ok := pair.PrivateKey.(*rsa.PrivateKey); ok && key.N.BitLen() > MaxRSA {
			return nil, fmt.Errorf("tls.key is an RSA key of more than %d bits", MaxRSA)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// GetProxy returns the proxy of c, nil when c is nil or names none.
func (c *Credentials) GetProxy() *netx.Proxy {
	if c == nil {
		return nil
	}
	return c.Proxy
}

// proxyFields returns what distinguishes proxies, for a fingerprint.
func proxyFields(p *netx.Proxy) []byte {
	if p == nil {
		return nil
	}
	return fmt.Appendf(nil, "%q %q %q %q", p.Scheme, p.Host, p.Username, p.Password)
}

// proxyOf parses the proxy of one place, nil when it names none.
func proxyOf(text func(key string) string, address, username, password string) (*netx.Proxy, error) {
	if text(address) == "" {
		if text(username)+text(password) != "" {
			return nil, fmt.Errorf("%s without %s", username, address)
		}
		return nil, nil
	}
	return netx.ParseProxy(text(address), text(username), text(password))
}
