package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/client-go/rest"
)

// server is the running program: etcd, the API, and the token exchange.
type server struct {
	etcd       *embed.Etcd
	access     *access
	faults     *faults
	requests   *requestLog
	proxies    *proxies
	discovery  discovery.GroupManager
	loopback   *rest.Config // the administrator inside the process, never denied anything
	url        string
	ca         string
	signURL    string
	controlURL string
	noCache    bool
	ended      chan error // receives once for each listener that stops before it is told to

	cancel  context.CancelFunc
	wg      sync.WaitGroup
	closers []func() error // run last to first at the end
}

// start brings everything up and returns when the resources of o.CRDs are
// served. After an error all that was started is stopped again.
func start(ctx context.Context, o options) (_ *server, err error) {
	s := &server{ended: make(chan error, 3), proxies: newProxies(), noCache: o.NoCache}
	ctx, s.cancel = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	ca, cert, key, err := certificate(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	s.ca = ca
	if s.etcd, err = startEtcd(ctx, o.Dir, o.NoFsync); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() error { s.etcd.Close(); return nil })

	log, err := openRequestLog(o.Requests, o.Token)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, log.Close, s.proxies.stop)
	s.requests, s.faults = log, newFaults(log)

	s.access = &access{token: o.Token, deny: o.Deny}
	if s.access.allow, err = readGrants(o.Manifests); err != nil {
		return nil, err
	}
	if s.access.sign, err = newSigner(o.SignToken, o.SignTTL); err != nil {
		return nil, err
	}
	if o.Sign != "" {
		if err := s.serveSigner(ctx, o.Sign, cert, key, log); err != nil {
			return nil, fmt.Errorf("serve token exchange: %w", err)
		}
	}
	if err := s.serveAPI(ctx, o.Listen, cert, key, log); err != nil {
		return nil, err
	}
	if err := s.install(ctx, o.CRDs); err != nil {
		return nil, fmt.Errorf("install resources: %w", err)
	}
	if err := s.serveControl(ctx); err != nil {
		return nil, fmt.Errorf("serve control: %w", err)
	}
	return s, nil
}

// stop ends everything that start began and waits for it.
func (s *server) stop() error {
	s.cancel()
	s.wg.Wait()
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	return errors.Join(errs...)
}

// ready is the line that tells how to reach the server.
func (s *server) ready() map[string]string {
	return map[string]string{"url": s.url, "ca": s.ca, "signURL": s.signURL, "controlURL": s.controlURL}
}

func (s *server) etcdAddress() string { return "http://" + s.etcd.Clients[0].Addr().String() }

// serveSigner serves the token exchange until ctx ends.
func (s *server) serveSigner(ctx context.Context, address, cert, key string, log *requestLog) error {
	ln, err := listen(ctx, address)
	if err != nil {
		return err
	}
	s.signURL = "https://" + ln.Addr().String() + "/sign/access-token"
	h := &http.Server{Handler: s.faults.wrap(log.wrap(s.access.sign)), ReadHeaderTimeout: 10 * time.Second}
	s.wg.Go(func() {
		if err := h.ServeTLS(ln, cert, key); !errors.Is(err, http.ErrServerClosed) {
			s.ended <- err
		}
	})
	context.AfterFunc(ctx, func() { h.Close() })
	return nil
}
