package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"limpet/sync/apiserver"
	"limpet/sync/text"
)

// Endpoint serves /metrics, /healthz and /readyz of an agent.
type Endpoint struct {
	Address string
	Metrics http.Handler
	Synced  func() bool
	Ready   func() error              // of the jobs
	Down    func() (time.Time, error) // since when the API is unavailable, and why
	Logger  *slog.Logger
}

// Run serves until ctx ends. An address in use is logged and skipped: two agents on one host must not stop each other.
func (e *Endpoint) Run(ctx context.Context) error {
	ln, err := net.Listen("tcp", e.Address)
	if err != nil {
		e.Logger.Warn("no telemetry", "address", e.Address, "err", err, "next", "--telemetry-listen with another address, or empty for none")
		return nil
	}
	e.Logger.Info("telemetry", "address", ln.Addr().String())
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", e.Metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if why := e.NotReady(); why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return apiserver.Serve(ctx, ln, &http.Server{Handler: mux})
}

// NotReady returns why the agent would not claim a job now; "" means it would.
func (e *Endpoint) NotReady() string {
	if !e.Synced() {
		return "watches have not synced"
	}
	if err := e.Ready(); err != nil {
		return text.Redact(err.Error())
	}
	if since, err := e.Down(); err != nil {
		return fmt.Sprintf("the API has not answered for %s: %s", text.Age(time.Since(since)), text.Redact(err.Error()))
	}
	return ""
}
