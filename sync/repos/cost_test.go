package repos

import (
	"context"
	"log/slog"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/apiserver"
	"limpet/sync/kube"
)

// TestCostOfALook: a look at a Repository that has nothing new reads nothing again
// and writes nothing. What the remote's answer costs is not in it.
func TestCostOfALook(t *testing.T) {
	const (
		warm  = 2        // one that asks nobody, and one in its turn
		looks = 3        // in turn, within the five minutes after which health is noted
		most  = 16 << 10 // bytes for each
	)
	synctest.Test(t, func(t *testing.T) {
		store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(t.TempDir(), "limpet.db")})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		server, err := apiserver.New(store, apiserver.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		c := &crowded{t: t, store: store, wire: &recording{next: server.Transport()}}
		if c.client, err = kube.Connect(t.Context(), kube.Config{Server: "http://embedded", Transport: c.wire, Logger: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
		defer c.client.Close()
		c.fill(1)
		c.wire.take()
		objects, queue := c.client.Informer(api.Repositories, "", kube.InformerOptions{}), c.client.Informer(api.Jobs, "", kube.InformerOptions{Compact: true})
		k := New(c.client, objects, queue, Options{Git: c, Logger: slog.New(slog.DiscardHandler), Remotes: plainRemotes})
		ctx, cancel := context.WithCancel(t.Context())
		var g errgroup.Group
		for _, part := range []func(context.Context) error{objects.Run, queue.Run} {
			g.Go(func() error { return part(ctx) })
		}
		if err := objects.WaitSynced(ctx); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		next := time.Now()
		for i := range warm + looks {
			time.Sleep(time.Until(next))
			synctest.Wait()
			if i == warm {
				c.take()
				runtime.ReadMemStats(&before)
			}
			result, err := k.reconcile(ctx, Key{"default", "r0000"})
			if err != nil {
				t.Fatal(err)
			}
			next = result.Next
		}
		runtime.ReadMemStats(&after)
		if n := len(c.take()); n != looks {
			t.Errorf("%d looks, want %d", n, looks)
		}
		if writes := c.wire.take(); len(writes) > 0 {
			t.Errorf("%d writes, such as %s", len(writes), writes[0])
		}
		each := (after.TotalAlloc - before.TotalAlloc) / looks
		t.Logf("%d bytes, %d objects a look", each, (after.Mallocs-before.Mallocs)/looks)
		if each > most {
			t.Errorf("%d bytes a look, want %d", each, most)
		}
		cancel()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}
