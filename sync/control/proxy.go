package control

import (
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
)

// Proxy forwards API requests of clients of the socket to the server of the agent,
// with the credentials of the agent. Only the same user can open the socket. failed
// answers when the server does not; logger receives errors in the middle of an
// answer.
func Proxy(base *url.URL, transport http.RoundTripper, failed func(http.ResponseWriter, *http.Request, error),
	logger *log.Logger) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(base)
			// Credentials of a client must not replace those of the agent.
			r.Out.Header.Del("Authorization")
			r.Out.Header.Del("X-Access-Token")
		},
		Transport:     transport,
		FlushInterval: -1, // a watch is a stream of small pieces
		ErrorHandler:  failed,
		ErrorLog:      logger,
	}
}
