package kube

import (
	"net/http"
	"net/url"
)

// Endpoint returns the base URL of the server and a transport that adds this
// client's credentials to requests for it, for a proxy in the same process. The
// URL is a copy.
func (c *Client) Endpoint() (*url.URL, http.RoundTripper) {
	base := *c.shared.target.base
	return &base, c.http.Transport
}

// Insecure says that the certificate of the server is not checked.
func (c *Client) Insecure() bool {
	t := c.shared.target
	return t.base.Scheme == "https" && t.filesFor(t.base).insecure
}
