package metrics

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"limpet/sync/reconcile"
)

// TestControllerMetrics: what the controller of repositories does is counted under the names
// of Grafana.
func TestControllerMetrics(t *testing.T) {
	t.Parallel()
	m := New("test", 1, slog.New(slog.DiscardHandler))
	k := m.Controller()
	k.Worked(reconcile.Done{Kind: "Repository", Took: time.Second})
	k.Checked(true, time.Second)
	k.Checked(false, time.Second)
	k.Failed("fetch", true)
	k.Triggered("token_generation")
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{
		`grafana_provisioning_health_checked_total{outcome="success",resource="repositories"} 1`,
		`grafana_provisioning_health_checked_total{outcome="error",resource="repositories"} 1`,
		`grafana_provisioning_health_checked_duration_seconds_count{resource="repositories"} 2`,
		`grafana_provisioning_repository_reconcile_errors_total{cause="user",phase="fetch"} 1`,
		`grafana_provisioning_repository_reconcile_errors_total{cause="system",phase="sync"} 0`,
		`limpet_repository_reconciles_total{trigger="token_generation"} 1`,
		`limpet_repository_reconciles_total{trigger="webhook_secret_rotation"} 0`,
		`controller_runtime_reconcile_total{controller="repository",result="success"} 1`,
		`workqueue_work_duration_seconds_count{name="provisioningRepositoryController"} 1`,
	} {
		if !strings.Contains(w.Body.String(), line+"\n") {
			t.Errorf("no %s", line)
		}
	}
}
