package agent

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// upstreamHost is a server that says its name, the path and the credentials that it was asked with.
func upstreamHost(t *testing.T, name string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s", name, r.URL.RequestURI(), r.Header.Get("Authorization"))
	}))
	t.Cleanup(s.Close)
	return s
}

func TestProxyRoutesByGroup(t *testing.T) {
	t.Parallel()
	main, dashboards, folders := upstreamHost(t, "main"), upstreamHost(t, "dashboards"), upstreamHost(t, "folders")
	a, _ := newAgent(t, func(c *Config) {
		c.API.Server, c.API.Token = main.URL, "agent"
		c.Dashboards, c.Folders = dashboards.URL, folders.URL
	})
	proxy := a.clients.handler(a.cfg.Logger)
	for path, want := range map[string]string{
		"/version": "main",
		"/apis":    "main",
		"/apis/provisioning.grafana.app/v0alpha1/jobs?limit=5":               "main",
		"/api/v1/namespaces/default/secrets/dashboard.grafana.app":           "main",
		"/apis/dashboard.grafana.app":                                        "dashboards",
		"/apis/dashboard.grafana.app/":                                       "dashboards",
		"/apis/dashboard.grafana.app/v1/namespaces/default/dashboards/a%2Fb": "dashboards",
		"/apis/dashboard.grafana.apple/v1":                                   "main",
		"/apis/folder.grafana.app/v1/folders":                                "folders",
	} {
		req := httptest.NewRequest(http.MethodGet, path, nil)
		req.Header.Set("Authorization", "Bearer of-the-client")
		w := httptest.NewRecorder()
		proxy.ServeHTTP(w, req)
		if got, want := w.Body.String(), want+" "+path+" Bearer agent"; w.Code != http.StatusOK || got != want {
			t.Errorf("%d %q, want %q", w.Code, got, want)
		}
	}
}

func TestProxyUnavailable(t *testing.T) {
	t.Parallel()
	dead := upstreamHost(t, "dead")
	dead.Close()
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	t.Cleanup(refusing.Close)
	alive := upstreamHost(t, "alive")
	tests := []struct {
		name   string
		change func(*Config)
		code   int
		reason metav1.StatusReason
	}{
		{"a server that is away", func(c *Config) { c.API.Server = dead.URL }, 503, metav1.StatusReasonServiceUnavailable},
		{"a token that the exchange refuses", func(c *Config) {
			c.API.Server, c.API.Token, c.API.TokenExchangeURL = alive.URL, "wrong", refusing.URL+"/sign/access-token"
		}, 401, metav1.StatusReasonUnauthorized},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a, _ := newAgent(t, tt.change)
			w := httptest.NewRecorder()
			a.clients.handler(a.cfg.Logger).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/apis/provisioning.grafana.app/v0alpha1/jobs", nil))
			var status metav1.Status
			body, _ := io.ReadAll(w.Body)
			if err := json.Unmarshal(body, &status); err != nil {
				t.Fatalf("%v: %s", err, body)
			}
			if w.Code != tt.code || int(status.Code) != tt.code || status.Reason != tt.reason || status.Message == "" || status.Kind != "Status" {
				t.Errorf("%d %s", w.Code, body)
			}
		})
	}
}
