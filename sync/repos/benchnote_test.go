package repos

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/apiserver"
	"limpet/sync/kube"
)

// BenchmarkNote is what it costs that a Repository is well, from the controller
// through the client and the embedded API to the picture of the controller.
func BenchmarkNote(b *testing.B) {
	store, _, err := state.Open(b.Context(), state.Options{Path: filepath.Join(b.TempDir(), "limpet.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	server, err := apiserver.New(store, apiserver.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	c := &crowded{t: b, store: store}
	if c.client, err = kube.Connect(b.Context(), kube.Config{Server: "http://embedded", Transport: server.Transport(), Logger: slog.New(slog.DiscardHandler)}); err != nil {
		b.Fatal(err)
	}
	defer c.client.Close()
	c.fill(1)
	objects := c.client.Informer(api.Repositories, "", kube.InformerOptions{})
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- objects.Run(ctx) }()
	if err := objects.WaitSynced(ctx); err != nil {
		b.Fatal(err)
	}
	w := apiServer{client: c.client, plural: "repositories"}
	seen := make(chan struct{}, 1)
	objects.AddHandler(kube.Handler{Any: func() { seen <- struct{}{} }})
	<-seen // as it is
	k := Key{"default", "r0000"}
	b.ReportAllocs()
	now := time.Now()
	for b.Loop() {
		now = now.Add(time.Second)
		obj, _ := objects.Get(k.Namespace, k.Name)
		note := &change{obj: obj, now: now}
		note.set(wireHealth(api.HealthState{Healthy: true, Checked: now.UnixMilli()}), "health")
		if _, err := w.patch(ctx, k, true, note.patch()); err != nil {
			b.Fatal(err)
		}
		<-seen
	}
	cancel()
	if err := <-ended; err != nil {
		b.Error(err)
	}
}
