package apiserver

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"limpet/state"
	"limpet/sync/apiserver/token"
)

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
