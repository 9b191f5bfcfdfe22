package netx

import (
	"net/http"
	"net/url"
	"strings"
)

// Redirected is the RoundTripper of an http.Client that follows redirects. A request that has left
// the scheme and host of the first one goes without the login of that: without its Authorization,
// and over other connections, which show no client certificate. A hop that returns gets neither back.
type Redirected struct {
	Own   http.RoundTripper // with the login
	Other http.RoundTripper
}

// RoundTrip sends a request.
func (r Redirected) RoundTrip(req *http.Request) (*http.Response, error) {
	for hop := req; hop.Response != nil; hop = hop.Response.Request {
		before := hop.Response.Request
		if before == nil || !SameHost(before.URL, hop.URL) {
			req = req.Clone(req.Context())
			req.Header.Del("Authorization")
			return r.Other.RoundTrip(req)
		}
	}
	return r.Own.RoundTrip(req)
}

// SameHost reports whether two URLs have the same scheme, host and port.
func SameHost(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(HostPort(a), HostPort(b))
}
