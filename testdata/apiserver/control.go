package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// serveControl takes the commands of the test on loopback until ctx ends:
//
//	POST /compact            etcd forgets all versions but the newest
//	POST /settle             returns when the writes under way are in the log of requests
//	PUT  /faults   [fault]   requests that go wrong from now on, instead of those of before
//	PUT  /clock    "1h"      how far the Date of every answer is ahead; "" = answers have none
//	PUT  /proxies  proxy     makes a proxy, or gives one its new state
//
// An answer is {} or the proxy, or {"error": …} with status 400.
func (s *server) serveControl(ctx context.Context) error {
	ln, err := listen(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.controlURL = "http://" + ln.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /compact", command(func(ctx context.Context, _ struct{}) (any, error) { return struct{}{}, s.compact(ctx) }))
	mux.HandleFunc("POST /settle", command(func(ctx context.Context, _ struct{}) (any, error) { return struct{}{}, s.requests.settle(ctx) }))
	mux.HandleFunc("PUT /faults", command(func(_ context.Context, f []fault) (any, error) { s.faults.set(f); return struct{}{}, nil }))
	mux.HandleFunc("PUT /clock", command(func(_ context.Context, ahead string) (any, error) {
		if ahead == "" {
			s.faults.shift(noDate)
			return struct{}{}, nil
		}
		d, err := time.ParseDuration(ahead)
		s.faults.shift(d)
		return struct{}{}, err
	}))
	mux.HandleFunc("PUT /proxies", command(s.proxies.set))
	h := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	s.wg.Go(func() {
		if err := h.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			s.ended <- err
		}
	})
	context.AfterFunc(ctx, func() { h.Close() })
	return nil
}

// command makes a handler of a function that takes the body of the request.
func command[T any](do func(context.Context, T) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in T
		var out any
		err := json.NewDecoder(r.Body).Decode(&in)
		if err == nil {
			out, err = do(r.Context(), in)
		}
		if err != nil {
			answer(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
			return
		}
		answer(w, http.StatusOK, out)
	}
}

func (s *server) compact(ctx context.Context) error {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.etcdAddress()}})
	if err != nil {
		return err
	}
	defer c.Close()
	now, err := c.Get(ctx, "x", clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	if _, err := c.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		return fmt.Errorf("compact: %w", err)
	}
	return nil
}
