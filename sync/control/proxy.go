package control

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/sync/kube"
	"limpet/sync/text"
)

// Proxy forwards API requests of clients of the socket: each group to the server of its client, and all else to that of
// rest.
func Proxy(rest *kube.Client, groups map[string]*kube.Client, logger *slog.Logger) http.Handler {
	others, handlers := proxy(rest, logger), map[string]http.Handler{}
	for group, client := range groups {
		handlers[group] = proxy(client, logger)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, _ := strings.CutPrefix(r.URL.Path, "/apis/")
		group, _, _ := strings.Cut(path, "/")
		handler := handlers[group]
		if handler == nil {
			handler = others
		}
		handler.ServeHTTP(w, r)
	})
}

// proxy forwards requests with the credentials of a client. Only the same user can open the socket.
func proxy(client *kube.Client, logger *slog.Logger) http.Handler {
	base, transport := client.Endpoint()
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(base)
			// Credentials of a client must not replace those of the agent.
			r.Out.Header.Del("Authorization")
			r.Out.Header.Del("X-Access-Token")
		},
		Transport:     transport,
		FlushInterval: -1, // a watch is a stream of small pieces
		ErrorHandler:  writeUnavailable,
		ErrorLog:      slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}

// writeUnavailable answers a client of the socket when the server of the agent has not answered, as an API server
// would.
func writeUnavailable(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the client has disconnected
	}
	status := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
		Message: "the agent gets no answer from its server: " + text.Redact(err.Error())}
	var exchange *kube.ExchangeError
	if errors.As(err, &exchange) && (exchange.Status == http.StatusUnauthorized || exchange.Status == http.StatusForbidden) {
		status.Code, status.Reason = http.StatusUnauthorized, metav1.StatusReasonUnauthorized
	}
	status.Kind, status.APIVersion = "Status", "v1"
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	// Only a disconnected client makes this fail.
	_ = json.NewEncoder(w).Encode(status)
}
