package agent

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/sync/api"
	"limpet/sync/control"
	"limpet/sync/kube"
	"limpet/sync/text"
)

// proxy forwards each API group to its server, with a token for it.
func (a *Agent) proxy() http.Handler {
	handler := func(c *kube.Client) http.Handler {
		base, transport := c.Endpoint()
		return control.Proxy(base, transport, writeUnavailable, slog.NewLogLogger(a.log.With("component", "proxy").Handler(), slog.LevelDebug))
	}
	rest, dashboards, folders := handler(a.client), handler(a.dashboards), handler(a.folders)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch group(r.URL.Path) {
		case api.DashboardGroup:
			dashboards.ServeHTTP(w, r)
		case api.FolderGroup:
			folders.ServeHTTP(w, r)
		default:
			rest.ServeHTTP(w, r)
		}
	})
}

// group returns the API group of a path, "" for the core group and for other paths.
func group(path string) string {
	rest, ok := strings.CutPrefix(path, "/apis/")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}

// writeUnavailable answers a client of the socket when the server of the agent has
// not answered, as an API server would.
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
