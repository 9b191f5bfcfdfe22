package auth

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
)

// Line tells which connections two sets of credentials may share: those with equal
// authorities, client certificates and proxies. It is "" where c has none of them.
func (c *Credentials) Line() string {
	if c == nil || len(c.CA)+len(c.ClientCert) == 0 && c.Proxy == nil {
		return ""
	}
	return fingerprint(c.CA, c.ClientCert, c.ClientKey, c.Proxy.fields())
}

// TLS is the configuration of https with c: its authorities beside the
// system's, and its client certificate. Nil has the system's roots. Errors
// never hold a secret.
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
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
