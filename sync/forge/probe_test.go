package forge

import (
	"net/http"
	"testing"

	"limpet/sync/auth"
	"limpet/sync/testenv/forgetest"
)

// TestProbeSendsNoCredentials: a host whose kind is not known is reached with the
// authority that its credentials name, and without them.
func TestProbeSendsNoCredentials(t *testing.T) {
	t.Parallel()
	h := forgetest.New(t, forgetest.Options{TLS: true})
	asked := 0
	h.Fault(func(r *http.Request) *forgetest.Answer {
		asked++
		if id := r.Header.Get("Authorization"); id != "" {
			t.Errorf("%s was sent credentials", r.URL.Path)
		}
		return &forgetest.Answer{Status: 200, Body: `{"version":"1.22.0"}`}
	})
	hosts := New(Options{})
	defer hosts.Close()
	creds := &auth.Credentials{Username: "git", Password: canary, CA: h.CA}
	if _, err := hosts.Remote(t.Context(), Target{Type: "git", URL: h.URL + "/team/site"}, creds); err != nil || asked != 1 {
		t.Errorf("asked %d times, %v", asked, err)
	}
}
