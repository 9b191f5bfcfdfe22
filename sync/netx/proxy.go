package netx

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/proxy"
)

// Proxy is a proxy configured beside credentials. It takes precedence over the environment, and also serves the
// token requests of the same repository. It prints without its password.
type Proxy struct {
	Scheme   string // http, https or socks5
	Host     string // with its port
	Username string
	Password string
	Place    string // for people: the Secret of its own where it was found; "" = beside the credentials
}

// maxProxyURL bounds the URL of a proxy, in bytes. Source: Flux.
const maxProxyURL = 2048

var proxyPorts = map[string]string{"http": "80", "https": "443", "socks5": "1080"}

// ParseProxy parses an address such as socks5://proxy.example.com:1080. Its errors quote none of the texts.
func ParseProxy(address, username, password string) (*Proxy, error) {
	wrong := errors.New("the address of the proxy is to be http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT")
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil || len(address) > maxProxyURL || u.Hostname() == "" || strings.ContainsAny(u.Hostname(), " ,;") ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || strings.HasSuffix(u.Host, ":") {
		return nil, wrong
	}
	if n, err := strconv.ParseUint(cmp.Or(u.Port(), "1"), 10, 16); err != nil || n == 0 {
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

// URL returns the proxy with its password, for net/http.
func (p *Proxy) URL() *url.URL {
	u := &url.URL{Scheme: p.Scheme, Host: p.Host}
	if p.Username != "" {
		u.User = url.UserPassword(p.Username, p.Password)
	}
	return u
}

// String returns the address without user and password.
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

// handshakeTimeout bounds the time between a connect and the first request.
const handshakeTimeout = 15 * time.Second

// ProxyError is the answer of a proxy that refuses a connection.
type ProxyError struct {
	Status int // of HTTP
}

func (e *ProxyError) Error() string {
	if e.Status == http.StatusProxyAuthRequired {
		return "proxy authentication required (407)"
	}
	return fmt.Sprintf("the proxy answers %d %s", e.Status, http.StatusText(e.Status))
}

// Transport returns a transport for HTTP through the proxy p, or through the one of the environment when p is
// nil. The caller may set the limits of number and age of connections.
func (g Guard) Transport(config *tls.Config, p *Proxy) *http.Transport {
	t := &http.Transport{
		Proxy:               FromEnvironment,
		DialContext:         g.Dial,
		TLSClientConfig:     config,
		TLSHandshakeTimeout: handshakeTimeout,
		OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, res *http.Response) error {
			return checkConnect(res)
		},
	}
	if config != nil && config.GetClientCertificate == nil {
		t.TLSClientConfig = config.Clone()
		t.TLSClientConfig.GetClientCertificate = certificateChooser(config.Certificates)
	}
	if p != nil {
		t.Proxy = http.ProxyURL(p.URL())
	}
	return t
}

func checkConnect(res *http.Response) error {
	if res.StatusCode == http.StatusOK {
		return nil
	}
	return &ProxyError{Status: res.StatusCode}
}

// Through connects to address, a host and a port, through p, or directly when p is nil. roots are for a proxy
// with TLS. It blocks for at most DialTimeout and handshakeTimeout.
func (g Guard) Through(ctx context.Context, p *Proxy, roots *tls.Config, address string) (net.Conn, error) {
	if p == nil {
		return g.Dial(ctx, "tcp", address)
	}
	ctx, cancel := context.WithTimeout(ctx, DialTimeout+handshakeTimeout)
	defer cancel()
	if p.Scheme == "socks5" {
		var login *proxy.Auth
		if p.Username != "" {
			login = &proxy.Auth{User: p.Username, Password: p.Password}
		}
		d, err := proxy.SOCKS5("tcp", p.Host, login, g.dialer())
		if err != nil {
			return nil, err
		}
		return d.(proxy.ContextDialer).DialContext(ctx, "tcp", address)
	}
	conn, err := g.Dial(ctx, "tcp", p.Host)
	if err != nil {
		return nil, &net.OpError{Op: "proxyconnect", Net: "tcp", Err: err}
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	through, err := connect(ctx, conn, p, roots, address)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return through, nil
}

// connect opens a tunnel to address with HTTP CONNECT.
func connect(ctx context.Context, conn net.Conn, p *Proxy, roots *tls.Config, address string) (net.Conn, error) {
	if p.Scheme == "https" {
		config := roots.Clone()
		config.ServerName, _, _ = net.SplitHostPort(p.Host)
		config.Certificates = nil // they are for the Git host
		secured := tls.Client(conn, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			return nil, &net.OpError{Op: "proxyconnect", Net: "tcp", Err: err}
		}
		conn = secured
	}
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{}}
	if p.Username != "" {
		basic := http.Request{Header: http.Header{}}
		basic.SetBasicAuth(p.Username, p.Password)
		req.Header.Set("Proxy-Authorization", basic.Header.Get("Authorization"))
	}
	if err := req.Write(conn); err != nil {
		return nil, &net.OpError{Op: "proxyconnect", Net: "tcp", Err: err}
	}
	// The server may speak first; those bytes belong to the connection.
	head := &io.LimitedReader{R: conn, N: maxProxyAnswer}
	r := bufio.NewReader(head)
	res, err := http.ReadResponse(r, req)
	if err != nil {
		return nil, &net.OpError{Op: "proxyconnect", Net: "tcp", Err: errors.New("the answer is not that of a proxy")}
	}
	if err := checkConnect(res); err != nil {
		return nil, err
	}
	head.N = math.MaxInt64
	return bufferedConn{conn, r}, nil
}

// maxProxyAnswer bounds the header of the answer to CONNECT, in bytes.
const maxProxyAnswer = 64 << 10

// bufferedConn is a connection with bytes already read.
type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (e bufferedConn) Read(p []byte) (int, error) { return e.r.Read(p) }
