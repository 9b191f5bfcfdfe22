package control

import (
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
)

// Proxy answers API requests of the socket's clients by asking the server that
// the agent is connected to, over the agent's own transport, so with the
// agent's credentials. The socket is open to the same user only. Failed answers
// when the server has not; logger takes what breaks in the middle of an answer.
func Proxy(base *url.URL, transport http.RoundTripper, failed func(http.ResponseWriter, *http.Request, error), logger *log.Logger) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(base)
			// What a client sends by itself must not stand beside the
			// agent's credentials.
			r.Out.Header.Del("Authorization")
			r.Out.Header.Del("X-Access-Token")
		},
		Transport:     transport,
		FlushInterval: -1, // a watch is a stream of small pieces
		ErrorHandler:  failed,
		ErrorLog:      logger,
	}
}
