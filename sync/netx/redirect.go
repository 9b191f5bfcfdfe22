package netx

import (
	"net/http"
	"net/url"
	"strings"
)

// Following returns the RoundTripper of an http.Client that follows redirects. A request that has
// left the scheme and host of the first one goes without the login of that: without its
// Authorization, and over the connections of other, which show no client certificate. A hop that
// returns gets neither back.
func (c *Client) Following(own, other Trust) (http.RoundTripper, error) {
	with, err := c.RoundTripper(own)
	if err != nil {
		return nil, err
	}
	without, err := c.RoundTripper(other)
	return redirected{with, without}, err
}

type redirected struct{ own, other http.RoundTripper }

// RoundTrip sends a request.
func (r redirected) RoundTrip(req *http.Request) (*http.Response, error) {
	for hop := req; hop.Response != nil; hop = hop.Response.Request {
		before := hop.Response.Request
		if before == nil || !SameHost(before.URL, hop.URL) {
			req = req.Clone(req.Context())
			req.Header.Del("Authorization")
			return r.other.RoundTrip(req)
		}
	}
	return r.own.RoundTrip(req)
}

// SameHost reports whether two URLs have the same scheme, host and port.
func SameHost(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(HostPort(a), HostPort(b))
}
