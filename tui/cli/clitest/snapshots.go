package clitest

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"limpet/sync/agent"
	"limpet/sync/control"
	"limpet/sync/snapshot"
)

// snapshotAgent shows the last snapshot that a test gave it.
type snapshotAgent struct {
	control.Agent
	mu   sync.Mutex // guards last and news
	last *snapshot.Snapshot
	news chan struct{} // closed when last changes
}

func (a *snapshotAgent) Next(ctx context.Context, after uint64) (*snapshot.Snapshot, error) {
	for {
		a.mu.Lock()
		last, news := a.last, a.news
		a.mu.Unlock()
		if last != nil && last.Seq > after {
			return last, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (a *snapshotAgent) show(snap *snapshot.Snapshot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	snap.Seq, snap.At, snap.API.Up = 1, time.Now(), true
	if a.last != nil {
		snap.Seq = a.last.Seq + 1
	}
	close(a.news)
	a.last, a.news = snap, make(chan struct{})
}

// ServeSnapshots listens on the socket of a state file as a daemon with that history does. Show gives it the next
// snapshot; stop ends it, as the end of the test does.
func ServeSnapshots(t *testing.T, state string, history control.Store) (show func(*snapshot.Snapshot), stop func()) {
	t.Helper()
	ln, err := control.Listen(agent.SocketPath(state))
	if err != nil {
		t.Fatal(err)
	}
	a := &snapshotAgent{news: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	server := &control.Server{Hello: control.Hello{Version: "dev", Protocol: control.Protocol}, Store: history, Agent: a,
		API: http.NotFoundHandler()}
	go func() { done <- server.Serve(ctx, ln) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return a.show, stop
}
