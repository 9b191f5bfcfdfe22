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
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpproxy"
	"golang.org/x/net/proxy"
)

// Proxy is a proxy configured beside credentials. It takes precedence over the environment, and
// also serves the token requests of the same repository. It prints without its password.
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

// ParseProxy parses an address such as socks5://proxy.example.com:1080. Its errors quote none of
// the texts.
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

// Transport returns a transport for HTTP through the proxy p, or through the one of the environment
// when p is nil. The caller may set the limits of number and age of connections.
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

// Through connects to address, a host and a port, through p, or directly when p is nil. roots are
// for a proxy with TLS. It blocks for at most DialTimeout and handshakeTimeout.
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

// Environment is the proxy in the variables HTTPS_PROXY, HTTP_PROXY and NO_PROXY, as in net/http.
// But net/http bypasses a proxy with an invalid address; here requests through it fail, because the
// proxy is wanted.
type Environment struct {
	of     func(*url.URL) (*url.URL, error)
	broken map[string]*EnvironmentError // by the scheme of the request
	faults []*EnvironmentError
}

// EnvironmentError reports an invalid variable.
type EnvironmentError struct {
	Name string // of the variable
	text string // without user and password
}

func (e *EnvironmentError) Error() string { return e.Name + " " + e.text }

// invalidProxy stands for a proxy that cannot be parsed, to learn which requests would use it.
const invalidProxy = "http://unreadable.invalid"

// ReadEnvironment validates the variables, in upper or lower case.
func ReadEnvironment(getenv func(string) string) *Environment {
	e := &Environment{broken: map[string]*EnvironmentError{}}
	get := func(name string) (string, string) {
		if v := getenv(name); v != "" {
			return name, v
		}
		return strings.ToLower(name), getenv(strings.ToLower(name))
	}
	proxy := func(scheme string) string {
		name, value := get(strings.ToUpper(scheme) + "_PROXY")
		if value == "" || validAddress(value) {
			return value
		}
		fault := &EnvironmentError{name, fmt.Sprintf(
			"is %q, not a proxy URL (like http://HOST:3128 or socks5://HOST:1080); requests through it fail", masked(value))}
		e.broken[scheme], e.faults = fault, append(e.faults, fault)
		return invalidProxy
	}
	config := httpproxy.Config{HTTPSProxy: proxy("https"), HTTPProxy: proxy("http"), CGI: getenv("REQUEST_METHOD") != ""}
	name, exceptions := get("NO_PROXY")
	config.NoProxy = exceptions
	for entry := range strings.SplitSeq(exceptions, ",") {
		if entry = strings.TrimSpace(entry); !validException(entry) {
			e.faults = append(e.faults, &EnvironmentError{name,
				fmt.Sprintf("has %q in it, which excepts nothing: hosts, domains and networks such as 10.0.0.0/8 go there, with commas between them",
					masked(entry))})
		}
	}
	e.of = config.ProxyFunc()
	return e
}

// Faults returns the invalid variables.
func (e *Environment) Faults() []*EnvironmentError { return e.faults }

// Proxy returns the proxy for a URL, nil for none. The error is an *EnvironmentError when the
// variable is invalid.
func (e *Environment) Proxy(u *url.URL) (*url.URL, error) {
	p, err := e.of(u)
	if err == nil && p != nil && e.broken[u.Scheme] != nil {
		return nil, e.broken[u.Scheme]
	}
	return p, err
}

// environment returns the environment of this process at its first use.
var environment = sync.OnceValue(func() *Environment { return ReadEnvironment(os.Getenv) })

// FromEnvironment returns the proxy for a request from the environment of this process.
func FromEnvironment(req *http.Request) (*url.URL, error) { return environment().Proxy(req.URL) }

// validAddress reports whether net/http interprets an address as its author means it.
func validAddress(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "" || u.Host == "" {
		u, err = url.Parse("http://" + address)
	}
	if err != nil {
		return false
	}
	u.User = nil
	_, err = ParseProxy(u.String(), "", "")
	return err == nil
}

// validException reports whether an entry of NO_PROXY can match any host.
func validException(entry string) bool {
	switch {
	case entry == "" || entry == "*":
		return true
	case strings.Contains(entry, "/"):
		_, err := netip.ParsePrefix(entry)
		return err == nil
	}
	host := strings.TrimPrefix(entry, "*")
	if h, port, err := net.SplitHostPort(host); err == nil {
		host = h
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return false
		}
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return host != "" && host != "." && !strings.ContainsAny(host, " \t*;@:")
}

// masked returns an address without a possible user and password.
func masked(address string) string {
	at := strings.LastIndex(address, "@")
	if at < 0 {
		return address
	}
	scheme, _, found := strings.Cut(address, "://")
	if !found || len(scheme) > 8 {
		return "***" + address[at:]
	}
	return scheme + "://***" + address[at:]
}
