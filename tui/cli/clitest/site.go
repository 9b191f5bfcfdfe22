// Package clitest has what the tests of commands share.
package clitest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"limpet/state"
	"limpet/sync/agent"
	"limpet/sync/control"
	"limpet/sync/jobs"
	"limpet/sync/snapshot"
)

// The rig of the tests that call commands in this process, on the embedded API of a state file of
// their own.

// RunFunc runs a command line and returns the exit code.
type RunFunc func(args []string, in io.Reader, out, errs io.Writer, lookup func(string) (string, bool)) int

// Site is an empty directory with the environment of a command.
type Site struct {
	Dir string
	Env map[string]string
	run RunFunc
}

func New(t *testing.T, run RunFunc) *Site {
	t.Helper()
	dir := t.TempDir()
	env := map[string]string{"HOME": dir, "LIMPET_STATE": filepath.Join(dir, "limpet.db"), "LIMPET_TELEMETRY_LISTEN": ""}
	return &Site{Dir: dir, Env: env, run: run}
}

// Lookup reads the environment, as os.LookupEnv does.
func (s *Site) Lookup(name string) (string, bool) {
	v, ok := s.Env[name]
	return v, ok
}

// Call runs one command.
func (s *Site) Call(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = s.run(args, strings.NewReader(""), &o, &e, s.Lookup)
	return code, o.String(), e.String()
}

// Must fails the test unless the command ends with code.
func (s *Site) Must(t *testing.T, code int, args ...string) (out, errs string) {
	t.Helper()
	got, out, errs := s.Call(args...)
	if got != code {
		t.Fatalf("limpet %s: exit %d, want %d\n%s%s", strings.Join(args, " "), got, code, out, errs)
	}
	return out, errs
}

// Store lets fn work on the state file.
func (s *Site) Store(t *testing.T, fn func(*state.Store)) {
	t.Helper()
	store, _, err := state.Open(context.Background(), state.Options{Path: s.Env["LIMPET_STATE"], Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	fn(store)
	if rep, err := store.Check(context.Background()); err != nil || len(rep.Problems) > 0 {
		t.Errorf("state file: %v %v", err, rep.Problems)
	}
}

func (s *Site) Record(t *testing.T, records ...state.Record) {
	t.Helper()
	s.Store(t, func(store *state.Store) {
		for _, rec := range records {
			if err := store.PutRecord(context.Background(), rec); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Apply writes one object.
func (s *Site) Apply(t *testing.T, object string) {
	t.Helper()
	file := filepath.Join(s.Dir, "object.json")
	if err := os.WriteFile(file, []byte(object), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Must(t, 0, "apply", "-f", file)
}

// Record is a record with all its members.
func Record(uid, namespace, repository, end string, ago time.Duration) state.Record {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).Add(-ago)
	return state.Record{UID: uid, Namespace: namespace, Name: repository + "-sync", Repository: repository, Action: "pull", State: end,
		Message: "said so", Agent: "edge-07",
		Started: at.Add(-1500 * time.Millisecond), Finished: at, RefFrom: strings.Repeat("a", 40), RefTo: strings.Repeat("b", 40),
		HistoricJob: "posted",
		Created:     at.Add(-2 * time.Second), Commit: &state.Commit{Subject: "add peers", Author: "M. Ito", At: at.Add(-time.Minute)},
		Steps: []state.Step{{Text: "fetch bbbbbbb", Seconds: 0.412}},
		Attempts: []state.Attempt{{N: 1, Agent: "edge-06", State: "lost", Message: "gone", Started: at.Add(-time.Minute),
			Finished: at.Add(-30 * time.Second)}, {N: 2, Agent: "edge-07", State: end}},
		Spec: json.RawMessage(`{"action":"pull","pull":{"incremental":true},"repository":"` + repository + `"}`),
		Status: json.RawMessage(`{"state":"` + end +
			`","errors":["bad"],"warnings":["odd"],"summary":[{"group":"dashboard.grafana.app","kind":"Dashboard",` +
			`"create":2,"error":1,"write":2}]}`),
		Labels: map[string]string{"provisioning.grafana.app/repository": repository}}
}

// Daemon runs an agent on the state file of a site, in this process, until the
// test ends.
func (s *Site) Daemon(t *testing.T, change func(*agent.Config)) {
	t.Helper()
	path := s.Env["LIMPET_STATE"]
	store, _, err := state.Open(t.Context(), state.Options{Path: path, Version: "test", Socket: agent.SocketPath(path)})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	cfg := agent.Config{Store: store, StatePath: path, Version: "test", Logger: log, Socket: true,
		Jobs: jobs.Options{Agent: "test", Logger: log}}
	cfg.API.Logger = log
	if change != nil {
		change(&cfg)
	}
	a, err := agent.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("agent: %v", err)
		}
		a.Close()
		store.Close()
	})
	for {
		c, err := control.Attach(t.Context(), agent.SocketPath(path))
		if err == nil {
			c.Close()
			return
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

// FailingWriter refuses every write.
type FailingWriter struct{ Err error }

func (w FailingWriter) Write([]byte) (int, error) { return 0, w.Err }

// Buffer may be read while it is written.
type Buffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *Buffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *Buffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

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

// ServeSnapshots listens on the socket of a state file as a daemon with that history does. Show
// gives it the next snapshot; stop ends it, as the end of the test does.
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
