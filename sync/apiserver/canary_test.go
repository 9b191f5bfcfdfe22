package apiserver

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestNoWayLeavesPlainText sends a secret value by every way in, also by ways
// where none belongs, and looks for it in all answers and in the state file.
func TestNoWayLeavesPlainText(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const path = base + "repositories/dashboards"
	file := repositoryJSON(`{"token":{"create":"` + canaryOne + `"}}`)
	apply := "application/apply-patch+yaml "
	beta := strings.Replace(base, "v0alpha1", "v1beta1", 1)
	for _, c := range []struct {
		name, method, path, body string
		code                     int
	}{
		{"dry run", "POST", base + "repositories?dryRun=All", file, 201},
		{"create", "POST", base + "repositories", file, 201},
		{"create again", "POST", base + "repositories", file, 409},
		{"another version", "POST", beta + "repositories", strings.NewReplacer("v0alpha1", "v1beta1", `"dashboards"`, `"beta"`).Replace(file), 201},
		{"update of a stale one", "PUT", path, strings.Replace(file, `"metadata":{`, `"metadata":{"resourceVersion":"1",`, 1), 409},
		{"merge patch", "PATCH", path, `{"secure":{"token":{"create":"` + canaryOne + `"}}}`, 200},
		{"JSON patch", "PATCH", path, `application/json-patch+json [{"op":"add","path":"/secure/webhookSecret","value":{"create":"` + canaryOne + `"}}]`, 200},
		{"JSON patch of the member", "PATCH", path, `application/json-patch+json [{"op":"add","path":"/secure/token/create","value":"` + canaryOne + `"}]`, 200},
		{"apply", "PATCH", path + "?fieldManager=a&force=true", apply + file, 200},
		{"apply of an invalid one", "PATCH", path + "?fieldManager=a&force=true", apply + strings.Replace(file, `"branch":"main"`, `"branch":"a b"`, 1), 422},
		{"status", "PATCH", path + "/status", `{"secure":{"token":{"create":"` + canaryOne + `"}},"status":{"health":{"healthy":true}}}`, 200},
		{"apply of status", "PATCH", path + "/status?fieldManager=b&force=true", apply + strings.Replace(file, `"spec"`, `"status":{"health":{"healthy":true}},"spec"`, 1), 200},
		{"wrong type", "POST", base + "repositories", strings.Replace(repositoryJSON(`{"token":"`+canaryOne+`"}`), `"dashboards"`, `"wrong"`, 1), 422},
		{"list in place of a member", "POST", base + "repositories", strings.Replace(repositoryJSON(`{"token":["`+canaryOne+`"]}`), `"dashboards"`, `"wrong"`, 1), 422},
		{"secure that is a text", "POST", base + "repositories", strings.Replace(repositoryJSON(`"`+canaryOne+`"`), `"dashboards"`, `"wrong"`, 1), 422},
		{"a job with secure", "POST", base + "jobs", `{"apiVersion":"provisioning.grafana.app/v0alpha1","kind":"Job","metadata":{"name":"j"},
			"spec":{"action":"pull","repository":"r","pull":{}},"secure":{"token":{"create":"` + canaryOne + `"}}}`, 201},
		{"broken JSON", "POST", base + "repositories", `{"secure":{"token":{"create":"` + canaryOne + `"}}`, 400},
		{"secret of wrong form", "POST", "/api/v1/namespaces/default/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"w"},"data":{"a":"` + canaryOne + `"}}`, 422},
		{"job by the subresource", "POST", path + "/jobs", `{"action":"pull","pull":{"incremental":"` + canaryOne + `"}}`, 422},
	} {
		rec := s.send(c.method, c.path, c.body, nil)
		if rec.Code != c.code {
			t.Errorf("%s: %d %s, want %d", c.name, rec.Code, rec.Body, c.code)
		}
		if text := rec.Body.String() + fmt.Sprint(rec.Header()); strings.Contains(text, canaryOne) {
			t.Errorf("%s: the answer repeats the value: %s", c.name, text)
		}
	}
	s.must("DELETE", path, "")
	s.canary(canaryOne)
}

// TestSecretsInWatches: a watch shows values as a read does; of a Secret that is
// gone it shows the object without them.
func TestSecretsInWatches(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	srv := httptest.NewServer(s)
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/api/v1/secrets?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	next := func(kind, holds string) {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("no %s event: %v", kind, lines.Err())
		}
		if line := lines.Text(); !strings.Contains(line, `"type":"`+kind+`"`) || !strings.Contains(line, holds) || strings.Contains(line, sealedPrefix) {
			t.Errorf("event %s, want %s with %s", line, kind, holds)
		}
	}
	s.must("POST", "/api/v1/namespaces/default/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"a":"x"}}`)
	next("ADDED", `"a":"eA=="`)
	s.must("PATCH", secretPath, `{"stringData":{"a":"y"}}`)
	next("MODIFIED", `"a":"eQ=="`)
	s.must("PATCH", secretPath, `application/strategic-merge-patch+json {"stringData":{"b":"z"}}`)
	next("MODIFIED", `"b":"eg=="`)
	s.must("DELETE", secretPath, "")
	next("DELETED", `"name":"s"`)
}

// TestSealedValuesUnderLoad: whatever order writers come in, the name in the
// object leads to the value that came with it, and nothing is left behind.
func TestSealedValuesUnderLoad(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const path = base + "repositories/dashboards"
	s.must("POST", base+"repositories", repositoryJSON(`{"token":{"create":"first"}}`))
	s.must("POST", "/api/v1/namespaces/default/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"a":"w"}}`)
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range 10 {
				s.must("PATCH", path, fmt.Sprintf(`{"spec":{"title":"t"},"secure":{"token":{"create":"w%d-%d"}}}`, w, i))
				if got := s.token(); !strings.HasPrefix(got, "w") {
					t.Errorf("token = %q", got)
				}
				s.must("PATCH", secretPath, fmt.Sprintf(`{"stringData":{"a":"w%d-%d"}}`, w, i))
				if got, ok := at(s.must("GET", secretPath, ""), "data", "a").(string); !ok || !strings.HasPrefix(got, "d") {
					t.Errorf("data.a = %q", got)
				}
			}
		})
	}
	writers.Wait()
	if names := s.sealedNames(); len(names) != 2 {
		t.Errorf("sealed values %q, want two", names)
	}
}
