package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"limpet/sync/apiserver"
	"limpet/sync/text"
)

// Endpoint serves /metrics, /healthz and /readyz of an agent.
type Endpoint struct {
	Address string
	Metrics http.Handler
	Stuck   func() []string // what of the agent does not move
	Synced  func() bool
	Ready   func() error              // of the jobs
	Down    func() (time.Time, error) // since when the API is unavailable, and why
	Logger  *slog.Logger

	problem atomic.Pointer[string] // why nothing is served; nil = it is
}

// Run serves until ctx ends. An address in use is logged and skipped: two agents on one host must not stop each other.
func (e *Endpoint) Run(ctx context.Context) error {
	ln, err := net.Listen("tcp", e.Address)
	if err != nil {
		problem := "telemetry off: " + err.Error()
		if _, port, _ := net.SplitHostPort(e.Address); errors.Is(err, syscall.EADDRINUSE) {
			problem = "telemetry off: port " + port + " is in use"
		}
		e.problem.Store(&problem)
		e.Logger.Warn(problem, "address", e.Address, "next", "--telemetry-listen with another address, or empty for none")
		return nil
	}
	e.Logger.Info("telemetry", "address", ln.Addr().String())
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", e.Metrics)
	mux.HandleFunc("GET /healthz", answer(func() string { return strings.Join(e.Stuck(), "\n") }))
	mux.HandleFunc("GET /readyz", answer(e.NotReady))
	return apiserver.Serve(ctx, ln, &http.Server{Handler: mux})
}

// Problem returns why nothing is served, "" when it is.
func (e *Endpoint) Problem() string {
	if problem := e.problem.Load(); problem != nil {
		return *problem
	}
	return ""
}

// answer serves "ok", or why not with status 503.
func answer(problem func() string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if why := problem(); why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
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
