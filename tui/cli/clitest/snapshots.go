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

// snapshotAgent shows the snapshots that a test gives it.
type snapshotAgent struct {
	control.Agent
	next chan *snapshot.Snapshot
}

func (a *snapshotAgent) Next(ctx context.Context, _ uint64) (*snapshot.Snapshot, error) {
	select {
	case s := <-a.next:
		return s, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// ServeSnapshots listens on the socket of a state file as a daemon with that history does. Show hands it the next
// snapshot; stop ends it, as the end of the test does.
func ServeSnapshots(t *testing.T, state string, history control.Store) (show func(*snapshot.Snapshot), stop func()) {
	t.Helper()
	ln, err := control.Listen(agent.SocketPath(state))
	if err != nil {
		t.Fatal(err)
	}
	a := &snapshotAgent{next: make(chan *snapshot.Snapshot)}
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
	seq := uint64(0)
	return func(snap *snapshot.Snapshot) {
		seq++
		snap.Seq, snap.At, snap.API.Up = seq, time.Now(), true
		select {
		case a.next <- snap:
		case <-time.After(30 * time.Second):
			t.Error("no reader takes the next snapshot")
		}
	}, stop
}
