package agent

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"os"
	"path"
	"time"

	"golang.org/x/net/netutil"

	"limpet/sync/apiserver"
	"limpet/sync/kube"
	"limpet/sync/source/artifact"
	"limpet/sync/source/upstream"
)

// ArtifactServer is where artifacts are served, and how many are kept.
type ArtifactServer struct {
	Listen            string // address; "" = nowhere
	URL               string // at which clients reach it; "" = made of Listen and the name of the host
	TokenFile         string // what they have to send as bearer token; "" = everyone is served
	CertFile, KeyFile string // "" = plain http
	Keep              int    // see artifact.Options
	MaxAge            time.Duration
	MaxBytes          int64 // see archive.Options
	MaxFiles          int
}

// url is the address for the status of sources, "" where nothing is served.
func (c ArtifactServer) url() string {
	host, port, err := net.SplitHostPort(c.Listen)
	if c.URL != "" || err != nil {
		return c.URL
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		name, _ := os.Hostname()
		host = cmp.Or(name, "localhost")
	}
	scheme := "http"
	if c.CertFile != "" {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

const (
	artifactConnections = 512
	artifactRead        = 30 * time.Second // of a request, which has no body
)

// openArtifacts opens the artifacts, and adds what runs with them to the parts.
func (a *Agent) openArtifacts(ctx context.Context) (err error) {
	s, c := &a.controllers.sources, a.cfg.Artifacts
	s.artifacts, err = artifact.Open(ctx, artifact.Options{Dir: ArtifactsPath(a.cfg.StatePath), Store: a.cfg.Store, URL: c.url(),
		Keep: c.Keep, MaxAge: c.MaxAge, Logger: a.cfg.Logger.With("component", "artifacts")})
	if err != nil {
		return err
	}
	a.parts = append(a.parts, s.artifacts.Run, s.rebuildLost)
	if c.Listen == "" {
		return nil
	}
	var token func() (string, error)
	if c.TokenFile != "" {
		token = kube.TokenFile("--artifact-token-file", c.TokenFile, a.cfg.Logger).Get
	}
	archives, bundles := s.artifacts.Handler(token), upstream.Handler(a.client, a.access.mirrors, token)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Base(r.URL.Path) == upstream.File {
			bundles.ServeHTTP(w, r)
			return
		}
		archives.ServeHTTP(w, r)
	})
	a.parts = append(a.parts, func(ctx context.Context) error { return a.serveArtifacts(ctx, handler) })
	return nil
}

// rebuildLost has the sources reconciled whose artifacts are found to be damaged while they are served.
func (s *sources) rebuildLost(ctx context.Context) error {
	for {
		select {
		case lost := <-s.artifacts.Lost():
			s.wake(lost.Namespace, lost.Name)
		case <-ctx.Done():
			return nil
		}
	}
}

// serveArtifacts serves until ctx ends. An address in use is logged and tried again.
func (a *Agent) serveArtifacts(ctx context.Context, handler http.Handler) error {
	c, log := a.cfg.Artifacts, a.cfg.Logger.With("component", "artifacts")
	listener := apiserver.Listener{Address: c.Listen, CertFile: c.CertFile, KeyFile: c.KeyFile,
		Limit: func(ln net.Listener) net.Listener { return netutil.LimitListener(ln, artifactConnections) }}
	ln := listener.Wait(ctx, log, "artifacts", "--artifact-listen")
	if ln == nil {
		return nil
	}
	log.Info("artifacts", "address", ln.Addr().String(), "url", c.url(), "tls", c.CertFile != "", "token", c.TokenFile != "")
	return apiserver.Serve(ctx, ln, &http.Server{Handler: handler, ReadTimeout: artifactRead})
}
