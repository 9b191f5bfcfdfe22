package auth

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
)

// Proxy is the way to a Git host that a credentials place names. It wins over the
// environment, and serves the calls for tokens of the same repository too. It
// prints without its password.
type Proxy struct {
	Scheme   string // http, https or socks5
	Host     string // with its port
	Username string
	Password string
	Place    string // for people: the Secret of its own where it was found; "" = beside the credentials
}

// The keys of a proxy beside credentials.
const (
	keyProxy         = "proxyAddress"
	keyProxyUsername = "proxyUsername"
	keyProxyPassword = "proxyPassword"
)

// longestProxy bounds the URL of a proxy. Source: Flux. Unit: bytes.
const longestProxy = 2048

var proxyPorts = map[string]string{"http": "80", "https": "443", "socks5": "1080"}

// ParseProxy reads an address such as socks5://proxy.example.com:1080. Its errors
// hold none of the texts.
func ParseProxy(address, username, password string) (*Proxy, error) {
	wrong := errors.New("the address of the proxy is to be http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT")
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil || len(address) > longestProxy || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, wrong
	}
	p := &Proxy{Scheme: strings.ToLower(u.Scheme), Host: u.Host, Username: username, Password: password}
	if p.Scheme == "socks5h" { // names are always left to the proxy
		p.Scheme = "socks5"
	}
	port, known := proxyPorts[p.Scheme]
	switch {
	case !known:
		return nil, wrong
	case u.User != nil:
		return nil, errors.New("the address of the proxy holds a user; give user and password beside it")
	case password != "" && username == "":
		return nil, errors.New("the proxy has a password without a user")
	case len(username) > 255 || len(password) > 255: // RFC 1929
		return nil, errors.New("user or password of the proxy has more than 255 bytes")
	case u.Port() == "":
		p.Host = net.JoinHostPort(u.Hostname(), port)
	}
	return p, nil
}

// GetProxy returns the proxy of c, nil when c is nil or names none.
func (c *Credentials) GetProxy() *Proxy {
	if c == nil {
		return nil
	}
	return c.Proxy
}

// URL is the proxy with its password, for net/http.
func (p *Proxy) URL() *url.URL {
	u := &url.URL{Scheme: p.Scheme, Host: p.Host}
	if p.Username != "" {
		u.User = url.UserPassword(p.Username, p.Password)
	}
	return u
}

// String shows no user and no password.
func (p *Proxy) String() string {
	if p == nil {
		return "none"
	}
	return p.Scheme + "://" + p.Host
}

// Format is String for every verb.
func (p Proxy) Format(f fmt.State, _ rune) { io.WriteString(f, p.String()) }

// MarshalText is String: a dump holds no password.
func (p Proxy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// fields are what makes one proxy another, for a fingerprint.
func (p *Proxy) fields() []byte {
	if p == nil {
		return nil
	}
	return fmt.Appendf(nil, "%q %q %q %q", p.Scheme, p.Host, p.Username, p.Password)
}

// proxyOf reads the proxy of one place, nil when it names none.
func proxyOf(text func(key string) string, address, username, password string) (*Proxy, error) {
	if text(address) == "" {
		if text(username)+text(password) != "" {
			return nil, fmt.Errorf("%s without %s", username, address)
		}
		return nil, nil
	}
	return ParseProxy(text(address), text(username), text(password))
}
