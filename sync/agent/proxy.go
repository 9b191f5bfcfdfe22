package agent

import (
	"net/http"
	"strings"

	"limpet/sync/api"
	"limpet/sync/control"
)

// proxy forwards each API group to its server, with a token for it.
func (a *Agent) proxy() http.Handler {
	log := a.log.With("component", "proxy")
	rest := control.Proxy(a.client, log)
	groups := map[string]http.Handler{api.DashboardGroup: control.Proxy(a.dashboards, log), api.FolderGroup: control.Proxy(a.folders, log)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, _ := strings.CutPrefix(r.URL.Path, "/apis/")
		group, _, _ := strings.Cut(path, "/")
		if handler := groups[group]; handler != nil {
			handler.ServeHTTP(w, r)
			return
		}
		rest.ServeHTTP(w, r)
	})
}
