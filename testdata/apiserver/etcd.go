package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// bookmarkEvery is how often etcd tells its revision to idle watches. The watch
// cache of the API server lives on it: without it, bookmarks come once in ten
// minutes and lists of the newest version wait.
const bookmarkEvery = 5 * time.Second

// startEtcd runs a single etcd below dir on free loopback ports and returns
// when it takes requests.
func startEtcd(ctx context.Context, dir string, noFsync bool) (*embed.Etcd, error) {
	free := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	c := embed.NewConfig()
	c.Dir = filepath.Join(dir, "etcd")
	c.ListenClientUrls, c.AdvertiseClientUrls = free, free
	c.ListenPeerUrls, c.AdvertisePeerUrls = free, free
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.WatchProgressNotifyInterval = bookmarkEvery
	c.UnsafeNoFsync = noFsync
	// A lone member elects itself; the short tick makes it do so at once.
	c.TickMs, c.ElectionMs = 10, 100
	c.LogLevel, c.LogOutputs = "fatal", []string{"stderr"}
	e, err := embed.StartEtcd(c)
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	select {
	case <-e.Server.ReadyNotify():
		return e, nil
	case err = <-e.Err():
	case <-ctx.Done():
		err = ctx.Err()
	}
	e.Close()
	return nil, fmt.Errorf("wait for etcd: %w", errors.Join(err))
}
