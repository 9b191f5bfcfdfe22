package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	// headerTimeout is how long a client may take to send its headers.
	headerTimeout = 10 * time.Second
	// idleTimeout closes connections that nobody uses. It is longer than the
	// 90 s after which Go's clients drop theirs, so that the client goes first.
	idleTimeout = 2 * time.Minute
	// drainTimeout is how long running requests get once the server stops.
	drainTimeout = 5 * time.Second
	// maxHeaderBytes is ample for an access token and a client certificate.
	maxHeaderBytes = 64 << 10
)

// Serve answers requests from ln with h until ctx ends, and closes ln. Then
// watches are ended, other requests get 5 s to finish, and the rest is cut off.
// It returns nil after such a stop, else why the listener failed.
func Serve(ctx context.Context, ln net.Listener, h http.Handler) error {
	watches, endWatches := context.WithCancel(context.WithoutCancel(ctx))
	defer endWatches()
	srv := &http.Server{
		Handler:           endingWatches(watches, h),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
	}
	stopped := make(chan error, 1) // the goroutine below sends once
	go func() { stopped <- srv.Serve(ln) }()
	select {
	case err := <-stopped:
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	endWatches()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	err := srv.Shutdown(drain)
	if errors.Is(err, context.DeadlineExceeded) {
		err = srv.Close()
	}
	<-stopped
	if err != nil {
		return fmt.Errorf("stop serving %s: %w", ln.Addr(), err)
	}
	return nil
}

// endingWatches gives watches a context that ends with stop: they would
// otherwise hold a shutdown for as long as their clients like.
func endingWatches(stop context.Context, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, verb, ok := route(req); ok && verb == verbWatch {
			ctx, cancel := context.WithCancel(req.Context())
			defer cancel()
			defer context.AfterFunc(stop, cancel)()
			req = req.WithContext(ctx)
		}
		h.ServeHTTP(w, req)
	})
}
