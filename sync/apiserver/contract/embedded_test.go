package contract

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"

	"limpet/state"
	"limpet/sync/apiserver"
	"limpet/sync/kube"
)

// The embedded API keeps the contract over pipes, as the agent uses it: HTTP like any other.
func TestEmbedded(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T) target {
		s := embedded(t)
		c, err := kube.Connect(t.Context(), kube.Config{Server: "http://limpet", Transport: s.Transport()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return target{URL: "http://limpet", HTTP: &http.Client{Transport: s.Transport()}, Client: c}
	})
}

// embedded serves a state file of its own, which is checked at the end.
func embedded(t *testing.T) *apiserver.Server {
	t.Helper()
	store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(t.TempDir(), "limpet.db")})
	if err != nil {
		t.Fatal(err)
	}
	s, err := apiserver.New(store, apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		report, err := store.Check(context.WithoutCancel(t.Context()))
		if err != nil || len(report.Problems) > 0 {
			t.Errorf("check: %v %v", report.Problems, err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
