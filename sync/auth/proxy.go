package auth

import (
	"fmt"

	"limpet/sync/netx"
)

// The keys of a proxy beside credentials.
const (
	keyProxy         = "proxyAddress"
	keyProxyUsername = "proxyUsername"
	keyProxyPassword = "proxyPassword"
)

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
