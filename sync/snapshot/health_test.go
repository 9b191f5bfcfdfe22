package snapshot

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"limpet/sync/api"
	"limpet/sync/kube"
	"limpet/sync/testenv/sourcetest"
)

// TestFirstSnapshotIsImmediate: an agent that finds nothing to do shows that it is ready as soon as
// the watches have synced, not with the idle tick.
func TestFirstSnapshotIsImmediate(t *testing.T) {
	t.Parallel()
	client := sourcetest.Connect(t, sourcetest.Embedded(t))
	jobs := client.Informer(api.Jobs, "", kube.InformerOptions{})
	repos := client.Informer(api.Repositories, "", kube.InformerOptions{})
	h := &Health{Client: client, Jobs: jobs, Repos: repos, HostProblem: func() string { return "" },
		Warnings: func() []string { return nil }}
	hub := NewHub() // does not run, so that its mark stays
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for _, run := range []func(context.Context) error{jobs.Run, repos.Run} {
		all.Go(func() { run(ctx) })
	}
	all.Go(func() { h.Run(ctx, hub, slog.New(slog.DiscardHandler)) })
	select {
	case <-hub.dirty:
	case <-time.After(time.Minute):
		t.Fatal("no new snapshot is wanted")
	}
	if !h.Synced() {
		t.Error("a snapshot is wanted before the watches have synced")
	}
}
