package repos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/auth"
	"limpet/sync/forge"
	"limpet/sync/forge/forgetest"
)

// stepsOf tells the steps of a test on a line.
func stepsOf(t TestResults) string {
	var out []string
	for _, s := range t.Steps {
		out = append(out, s.Name+" "+s.Result)
	}
	return strings.Join(out, ", ")
}

// TestTryConnection: a test of a Connection says at which step it ends, with the
// code and the field that its controller would tell, and shows no secret.
func TestTryConnection(t *testing.T) {
	t.Parallel()
	const token = "glpat-of-the-connection"
	host := forgetest.New(t, forgetest.Options{})
	hosts := forge.New(forge.Options{AllowInsecure: true})
	t.Cleanup(hosts.Close)
	for _, tt := range []struct {
		name, url string
		secret    bool
		accepts   bool
		code      int
		field     string
		steps     string
	}{
		{"a rule", "no address", true, true, 400, "spec.url", "rules failed, secret skipped, host skipped"},
		{"no secret", host.URL, false, true, 401, "secure", "rules ok, secret failed, host skipped"},
		{"refused", host.URL, true, false, 401, "secure.token", "rules ok, secret ok, host failed"},
		{"away", "http://127.0.0.1:1", true, true, 503, "secure", "rules ok, secret ok, host failed"},
		{"well", host.URL, true, true, 200, "", "rules ok, secret ok, host ok"},
	} {
		if host.Token(token, forgetest.Rights{}); !tt.accepts {
			host.Revoke(token)
		}
		who := forge.NewMinter(hosts, func(context.Context, auth.ConnectionLookup) (*auth.ConnectionSecret, error) {
			if !tt.secret {
				return nil, nil
			}
			return &auth.ConnectionSecret{Token: token, Source: "the test"}, nil
		}, auth.NewTokens(0))
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "provisioning.grafana.app/v0alpha1", "kind": "Connection",
			"metadata": map[string]any{"name": "lab", "namespace": "default"}, "spec": map[string]any{"title": "Lab", "type": "gitlab", "url": tt.url}}}
		got, err := TryConnection(t.Context(), who, u)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if got.Code != tt.code || got.Success != (tt.code == 200) || stepsOf(got) != tt.steps || (tt.field == "") != (len(got.Errors) == 0) {
			t.Errorf("%s: %+v", tt.name, got)
		}
		if tt.field != "" && got.Errors[0].Field != tt.field {
			t.Errorf("%s: field %q", tt.name, got.Errors[0].Field)
		}
		if strings.Contains(fmt.Sprint(got), token) {
			t.Errorf("%s: shows the token: %+v", tt.name, got)
		}
		if tt.secret && tt.steps != "" && tt.code != 400 && !slices.Contains(got.Steps, Step{"secret", StepOK, "the test"}) {
			t.Errorf("%s: does not say where the secret was found: %+v", tt.name, got.Steps)
		}
	}
}
