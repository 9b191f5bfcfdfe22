package kube_test

import (
	"os"
	"testing"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// TestServesOfAnAPI: a plain Kubernetes API with our definitions is told from Grafana's.
func TestServesOfAnAPI(t *testing.T) {
	t.Parallel()
	server := testenv.Real(t)
	c, err := kube.Connect(t.Context(), kube.Config{Server: server.URL, TLS: kube.TLS{CAFile: server.CAFile}, Token: server.Token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	for resource, want := range map[string]bool{"repositories": true, "repositories/status": true, "repositories/webhook": false} {
		if got, err := c.Serves(t.Context(), api.Repositories.GroupVersion(), resource); got != want || err != nil {
			t.Errorf("%s: %v, %v", resource, got, err)
		}
	}
}
