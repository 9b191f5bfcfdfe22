package control

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/kube"
	"limpet/sync/notify"
	"limpet/sync/repos"
	"limpet/sync/snapshot"
	"limpet/sync/worker"
	"limpet/sync/worker/drift"
)

func TestMain(m *testing.M) {
	if state.RunProbe() || ranRelay() {
		return
	}
	os.Exit(m.Run())
}

// fakeAgent publishes the snapshots of a test and counts calls.
type fakeAgent struct {
	*repos.Suspensions
	notify.Options
	diagnostics snapshot.DiagnosticsReport

	mu      sync.Mutex // guards all below
	current *snapshot.Snapshot
	changed chan struct{}
	readers int
	hurries int
}

func newFakeAgent() *fakeAgent {
	return &fakeAgent{current: &snapshot.Snapshot{Seq: 1}, changed: make(chan struct{})}
}

func (a *fakeAgent) Next(ctx context.Context, seq uint64) (*snapshot.Snapshot, error) {
	a.addReader(1)
	defer a.addReader(-1)
	for {
		a.mu.Lock()
		current, changed := a.current, a.changed
		a.mu.Unlock()
		if current.Seq > seq {
			return current, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (a *fakeAgent) addReader(n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.readers += n
	return a.readers
}

// publish makes s the newest snapshot.
func (a *fakeAgent) publish(s *snapshot.Snapshot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.current = s
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *fakeAgent) Cancel(context.Context, string, string) error { return nil }

func (a *fakeAgent) Drain(on bool) (since time.Time, busy int) {
	if on {
		return time.Unix(1, 0), 2
	}
	return time.Time{}, 1
}

func (a *fakeAgent) Hurry() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hurries++
}

func (a *fakeAgent) Client() *kube.Client { return nil }

func (a *fakeAgent) Diagnostics(context.Context) (snapshot.DiagnosticsReport, error) {
	if a.diagnostics.At.IsZero() {
		return snapshot.DiagnosticsReport{}, errors.New("the disk is gone")
	}
	return a.diagnostics, nil
}

// Compare returns its arguments.
func (a *fakeAgent) Preview(context.Context, worker.PreviewQuery) (*worker.Preview, error) {
	return new(worker.Preview), nil
}

func (a *fakeAgent) Drift(context.Context, worker.DriftQuery) (*drift.Report, error) {
	return new(drift.Report), nil
}

func (a *fakeAgent) Files(context.Context, snapshot.FileQuery) (snapshot.FileList, error) {
	return snapshot.FileList{}, nil
}

func (a *fakeAgent) Compare(_ context.Context, q snapshot.CompareQuery) (snapshot.Comparison, error) {
	if q.To == "" {
		return snapshot.Comparison{}, errors.New("the mirror is gone")
	}
	return snapshot.Comparison{
		All:   2,
		Files: []snapshot.FileChange{{Type: q.Namespace, Path: q.Repository, From: q.From}},
		Text:  &snapshot.TextChange{Form: q.To, More: 1, Lines: []snapshot.TextLine{{Op: "-", Text: q.Path}}},
	}, nil
}

// Test returns the generation of the object as code, and an error for an object without one.
func (a *fakeAgent) Test(_ context.Context, u *unstructured.Unstructured) (repos.TestResults, error) {
	if u.GetGeneration() == 0 {
		return repos.TestResults{}, errors.New("no result")
	}
	return repos.TestResults{Code: int(u.GetGeneration()), Steps: []repos.Step{{Name: u.GetKind(), Result: repos.StepOK}}}, nil
}

func openStore(t *testing.T) *state.Store {
	t.Helper()
	store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(t.TempDir(), "limpet.db"), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if rep, err := store.Check(context.Background()); err != nil || len(rep.Problems) > 0 {
			t.Errorf("state file: %v %v", err, rep.Problems)
		}
		store.Close()
	})
	return store
}

// serve runs a server until the end of the test or of the returned function.
func serve(t testing.TB, ln net.Listener, s *Server) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// serveAgent serves an agent on the socket at path.
func serveAgent(t testing.TB, path string, a *fakeAgent, store Store, hello Hello) (stop func()) {
	t.Helper()
	ln, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, ln, &Server{Hello: hello, Agent: a, Store: store, API: http.NotFoundHandler()})
}

func testHello() Hello { return Hello{Protocol: Protocol, Version: "test", PID: os.Getpid()} }

// attach returns a client of the socket at path.
func attach(t testing.TB, path string) *Client {
	t.Helper()
	c, err := Attach(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
