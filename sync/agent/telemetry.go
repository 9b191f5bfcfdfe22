package agent

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"limpet/sync/apiserver"
	"limpet/sync/metrics"
	"limpet/sync/text"
)

// telemetry serves /metrics, /healthz and /readyz. An address in use is logged and
// skipped: two agents on one host must not stop each other.
func (a *Agent) telemetry(ctx context.Context) error {
	ln, err := net.Listen("tcp", a.cfg.Telemetry)
	if err != nil {
		a.log.Warn("no telemetry", "address", a.cfg.Telemetry, "err", err, "next", "--telemetry-listen with another address, or empty for none")
		return nil
	}
	a.log.Info("telemetry", "address", ln.Addr().String())
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", a.metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if why := a.notReady(); why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return apiserver.Serve(ctx, ln, mux)
}

// metricsSource returns the source of the gauges.
func (a *Agent) metricsSource() metrics.Source {
	return metrics.Source{
		Backlog: a.controller.Backlog, Jobs: a.controller.Snapshot, Store: a.cfg.Store.Info,
		Clock: func() (offset, bound time.Duration, ok bool) {
			now, bound, ok := a.client.Clock().Now()
			return time.Until(now), bound, ok
		},
		Down:         func() time.Time { since, _ := a.client.Down(); return since },
		Latency:      a.client.Latency,
		Repositories: a.repositoryMetrics, Connections: a.connectionMetrics, Tokens: a.countTokens,
	}
}

// notReady returns why the agent would not claim a job now; "" means it would.
func (a *Agent) notReady() string {
	if !a.health.Synced() {
		return "watches have not synced"
	}
	if err := a.controller.Ready(); err != nil {
		return text.Redact(err.Error())
	}
	if since, err := a.client.Down(); err != nil {
		return fmt.Sprintf("the API has not answered for %s: %s", text.Age(time.Since(since)), text.Redact(err.Error()))
	}
	return ""
}
