package netx

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/http/httpproxy"
)

// Environment is the proxy in the variables HTTPS_PROXY, HTTP_PROXY and NO_PROXY, as in net/http. But net/http
// bypasses a proxy with an invalid address; here requests through it fail, because the proxy is wanted.
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

// placeholder replaces an invalid proxy, to learn which requests would use it.
const placeholder = "http://unreadable.invalid"

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
		return placeholder
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

// Proxy returns the proxy for a URL, nil for none. The error is an *EnvironmentError when the variable is invalid.
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
