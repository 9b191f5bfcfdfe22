package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/sync/apiserver/token"
)

func TestGate(t *testing.T) {
	t.Parallel()
	signer, err := token.NewSigner(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	exchange, err := token.NewExchange(signer, adminToken, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	gate := NewGate(signer, "", "static-1", "static-2")
	token := func(namespace string, audience ...string) string {
		body, err := json.Marshal(map[string]any{"namespace": namespace, "audiences": audience, "expiresIn": 60})
		if err != nil {
			t.Fatal(err)
		}
		req := httptest.NewRequest(http.MethodPost, token.ExchangePath, bytes.NewReader(body))
		req.Header.Set("Authorization", "Bearer "+adminToken)
		rec := httptest.NewRecorder()
		exchange.ServeHTTP(rec, req)
		var answer struct{ Data struct{ Token string } }
		if err := json.Unmarshal(rec.Body.Bytes(), &answer); err != nil || answer.Data.Token == "" {
			t.Fatalf("exchange: %d %s", rec.Code, rec.Body)
		}
		return answer.Data.Token
	}
	const (
		provisioning = "provisioning.grafana.app"
		dashboards   = "dashboard.grafana.app"
		jobs         = "/apis/provisioning.grafana.app/v0alpha1/namespaces/default/jobs"
		allJobs      = "/apis/provisioning.grafana.app/v0alpha1/jobs"
		boards       = "/apis/dashboard.grafana.app/v1/namespaces/default/dashboards/x"
		secrets      = "/api/v1/namespaces/default/secrets"
	)
	all := token("*", provisioning)
	for _, c := range []struct {
		name, path, header, value string
		code                      int32 // 0 = let in
	}{
		{"X-Access-Token", jobs, "X-Access-Token", "Bearer " + all, 0},
		{"Authorization", jobs, "Authorization", "Bearer " + all, 0},
		{"lower case scheme", jobs, "Authorization", "bearer " + all, 0},
		{"static", jobs, "Authorization", "Bearer static-2", 0},
		{"static elsewhere", boards, "Authorization", "Bearer static-1", 0},
		{"static wrong", jobs, "Authorization", "Bearer static-3", 401},
		{"bare token", jobs, "X-Access-Token", all, 401},
		{"nothing", jobs, "", "", 401},
		{"empty", jobs, "Authorization", "Bearer ", 401},
		{"basic", jobs, "Authorization", "Basic " + all, 401},
		{"garbage", jobs, "X-Access-Token", "Bearer abc", 401},
		{"own namespace", jobs, "X-Access-Token", "Bearer " + token("default", provisioning), 0},
		{"other namespace", jobs, "X-Access-Token", "Bearer " + token("other", provisioning), 403},
		{"all namespaces with one", allJobs, "X-Access-Token", "Bearer " + token("default", provisioning), 403},
		{"all namespaces", allJobs, "X-Access-Token", "Bearer " + all, 0},
		{"escaped namespace", "/apis/provisioning.grafana.app/v0alpha1/namespaces/othe%72/jobs", "X-Access-Token",
			"Bearer " + token("other", provisioning), 0},
		{"other audience", boards, "X-Access-Token", "Bearer " + all, 401},
		{"both audiences", boards, "X-Access-Token", "Bearer " + token("*", dashboards, provisioning), 0},
		{"unknown audience", jobs, "X-Access-Token", "Bearer " + token("*", "example.com"), 401},
		{"core with another known audience", "/api/v1/namespaces/default/events", "X-Access-Token", "Bearer " + token("*", dashboards), 0},
		{"secrets with another known audience", secrets, "X-Access-Token", "Bearer " + token("*", dashboards), 401},
		{"one secret with another known audience", secrets + "/x", "X-Access-Token", "Bearer " + token("*", dashboards, "source.toolkit.fluxcd.io"), 401},
		{"secrets with the provisioning group", secrets, "X-Access-Token", "Bearer " + all, 0},
		{"core of another namespace", secrets, "X-Access-Token", "Bearer " + token("other", provisioning), 403},
		{"discovery", "/apis", "X-Access-Token", "Bearer " + token("other", dashboards), 0},
		{"discovery without token", "/apis", "", "", 401},
		{"probe", "/readyz", "", "", 0},
	} {
		req := httptest.NewRequest(http.MethodGet, c.path, nil)
		if c.header != "" {
			req.Header.Set(c.header, c.value)
		}
		_, err := gate.authenticate(req)
		var status apierrors.APIStatus
		switch {
		case c.code == 0 && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.code != 0 && (!errors.As(err, &status) || status.Status().Code != c.code):
			t.Errorf("%s: %v, want %d", c.name, err, c.code)
		}
	}
	expired := httptest.NewRequest(http.MethodGet, jobs, nil)
	expired.Header.Set("X-Access-Token", "Bearer "+all)
	gate.now = func() time.Time { return time.Now().Add(2 * time.Minute) }
	for name, g := range map[string]*Gate{"expired": gate, "no signer": NewGate(nil, "static")} {
		if _, err := g.authenticate(expired); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

const adminToken = "ProvisioningAdminToken"
