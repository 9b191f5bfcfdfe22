package apiserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"limpet/state"
	"limpet/sync/apiserver/token"
)

func TestGate(t *testing.T) {
	t.Parallel()
	signer, err := token.NewSigner(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_795_000_000, 0)
	exchange, err := token.NewExchange(signer, token.ExchangeOptions{Token: adminToken, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	gate := NewGate(signer, "", "static-1", "static-2")
	gate.now = func() time.Time { return now }
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
		{"escaped namespace", "/apis/provisioning.grafana.app/v0alpha1/namespaces/othe%72/jobs", "X-Access-Token", "Bearer " + token("other", provisioning), 0},
		{"watch path", "/apis/provisioning.grafana.app/v0alpha1/watch/namespaces/default/jobs", "X-Access-Token", "Bearer " + token("other", provisioning), 403},
		{"other audience", boards, "X-Access-Token", "Bearer " + all, 401},
		{"both audiences", boards, "X-Access-Token", "Bearer " + token("*", dashboards, provisioning), 0},
		{"unknown audience", jobs, "X-Access-Token", "Bearer " + token("*", "example.com"), 401},
		{"core with any known audience", secrets, "X-Access-Token", "Bearer " + all, 0},
		{"core of another namespace", secrets, "X-Access-Token", "Bearer " + token("other", provisioning), 403},
		{"discovery", "/apis", "X-Access-Token", "Bearer " + token("other", dashboards), 0},
		{"discovery without token", "/apis", "", "", 401},
		{"probe", "/readyz", "", "", 0},
	} {
		req := httptest.NewRequest(http.MethodGet, c.path, nil)
		if c.header != "" {
			req.Header.Set(c.header, c.value)
		}
		err := gate.authenticate(req)
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
	gate.now = func() time.Time { return now.Add(time.Minute) }
	if err := gate.authenticate(expired); !apierrors.IsUnauthorized(err) {
		t.Errorf("an expired token gives %v", err)
	}
}

func TestGateWithoutSigner(t *testing.T) {
	t.Parallel()
	gate := NewGate(nil, "static")
	for value, good := range map[string]bool{"Bearer static": true, "Bearer x": false, "": false} {
		req := httptest.NewRequest(http.MethodGet, "/apis", nil)
		req.Header.Set("Authorization", value)
		if err := gate.authenticate(req); (err == nil) != good {
			t.Errorf("%q: %v", value, err)
		}
	}
}

const adminToken = "ProvisioningAdminToken"

// TestWalkThrough is the walk-through of the README of Grafana's controller:
// a token is exchanged, a job is posted with it over TLS, and it is seen.
func TestWalkThrough(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(dir, "limpet-api.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	signer, err := token.NewSigner(dir)
	if err != nil {
		t.Fatal(err)
	}
	sign, err := token.NewExchange(signer, token.ExchangeOptions{Token: adminToken})
	if err != nil {
		t.Fatal(err)
	}
	server, err := New(store, Options{Auth: NewGate(signer)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	}()
	certFile, keyFile, err := SelfSigned(dir)
	if err != nil {
		t.Fatal(err)
	}
	plain, signListener := listen(t), listen(t)
	secure, err := ListenTLS(plain, certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 2)
	go func() { served <- Serve(ctx, secure, server) }()
	go func() { served <- Serve(ctx, signListener, sign) }()
	defer func() {
		stop()
		for range 2 {
			if err := <-served; err != nil {
				t.Error(err)
			}
		}
	}()

	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // curl --insecure
	defer transport.CloseIdleConnections()
	call := func(method, url, body string, headers ...string) (int, map[string]any) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		res, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		out := map[string]any{}
		if err == nil {
			err = json.Unmarshal(data, &out)
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", url, err, data)
		}
		return res.StatusCode, out
	}
	port := func(ln net.Listener) string {
		_, port, err := net.SplitHostPort(ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return port
	}
	code, answer := call("POST", "http://127.0.0.1:"+port(signListener)+"/sign/access-token", `{"namespace":"*","audiences":["provisioning.grafana.app"]}`,
		"X-Realms", `[{"type":"system","identifier":"system"}]`, "X-Org-ID", "0", "Authorization", "Bearer "+adminToken)
	token, _ := at(answer, "data", "token").(string)
	if code != 200 || token == "" {
		t.Fatalf("exchange: %d %v", code, answer)
	}
	api := "https://127.0.0.1:" + port(plain) + base
	if code, answer = call("POST", api+"repositories", strings.Replace(repositoryJSON(`{}`), `"dashboards"`, `"test6"`, 1), "Authorization", "Bearer "+token); code != 201 {
		t.Fatalf("create repository: %d %v", code, answer)
	}
	if code, answer = call("POST", api+"repositories/test6/jobs", `{"action":"pull","pull":{"incremental":false}}`, "X-Access-Token", "Bearer "+token); code != 202 {
		t.Errorf("post job: %d %v", code, answer)
	}
	if code, answer = call("GET", api+"jobs/test6-sync", "", "X-Access-Token", "Bearer "+token); code != 200 {
		t.Errorf("get job: %d %v", code, answer)
	}
	if code, answer = call("GET", api+"jobs", ""); code != 401 || answer["kind"] != "Status" || answer["reason"] != "Unauthorized" {
		t.Errorf("without a token: %d %v", code, answer)
	}
	if code, answer = call("GET", api+"jobs", "", "Authorization", "Bearer "+adminToken); code != 401 {
		t.Errorf("with the token that is to be exchanged: %d %v", code, answer)
	}
}
