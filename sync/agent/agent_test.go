package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/jobs"
	"limpet/sync/snapshot"
	"limpet/sync/text"
)

func TestMain(m *testing.M) {
	if state.RunProbe() {
		return
	}
	os.Exit(m.Run())
}

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// logText collects what an agent logs.
type logText struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logText) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

// newAgent makes an agent in a directory of its own; change may alter its configuration. It does
// not run.
func newAgent(t testing.TB, change func(*Config)) (*Agent, *logText) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limpet.db")
	store, _, err := state.Open(t.Context(), state.Options{Path: path, Version: "test"})
	must(t, err)
	log := &logText{}
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg := Config{Store: store, StatePath: path, Version: "test", Resync: time.Minute, Limits: Limits{Parallel: 2}, Logger: logger,
		Jobs: jobs.Options{Agent: "test", Logger: logger}}
	cfg.API.Logger = logger
	if change != nil {
		change(&cfg)
	}
	a, err := New(t.Context(), cfg)
	must(t, err)
	t.Cleanup(func() {
		a.Close()
		if rep, err := store.Check(context.Background()); err != nil || len(rep.Problems) > 0 {
			t.Errorf("state file: %v %v", err, rep.Problems)
		}
		store.Close()
	})
	return a, log
}

// start runs parts of an agent until the test ends.
func start(t testing.TB, parts ...func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var g sync.WaitGroup
	for _, part := range parts {
		g.Go(func() {
			if err := part(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("a part ended: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		g.Wait()
	})
}

// eventually waits across goroutines that talk HTTP, which no bubble can hold.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline, tick := time.After(30*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("timed out: %s", what)
		case <-tick.C:
		}
	}
}

// fresh returns a snapshot as a reader receives it: without readers none is built after a while.
func fresh(t testing.TB, a *Agent) *snapshot.Snapshot {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s, err := a.hub.Next(ctx, 0)
	must(t, err)
	return s
}

// create creates a Repository, a Connection or another object of the API.
func create(t testing.TB, a *Agent, kind, name string, content map[string]any) *unstructured.Unstructured {
	t.Helper()
	resource := map[string]schema.GroupVersionResource{"Repository": api.Repositories, "Connection": api.Connections, "Job": api.Jobs,
		"Secret": api.Secrets}[kind]
	u := &unstructured.Unstructured{Object: maps.Clone(content)}
	u.SetAPIVersion(resource.GroupVersion().String())
	u.SetKind(kind)
	u.SetName(name)
	made, err := a.clients.client.Resource(resource).Namespace("default").Create(t.Context(), u, metav1.CreateOptions{})
	must(t, err)
	return made
}

// patchRepository merges a patch into a Repository or one of its subresources.
func patchRepository(t testing.TB, a *Agent, name string, patch map[string]any, sub ...string) *unstructured.Unstructured {
	t.Helper()
	data, err := json.Marshal(patch)
	must(t, err)
	made, err := a.clients.client.Resource(api.Repositories).Namespace("default").Patch(t.Context(), name, types.MergePatchType, data,
		metav1.PatchOptions{}, sub...)
	must(t, err)
	return made
}

// repository creates a Repository and waits until the agent sees it.
func repository(t *testing.T, a *Agent, name string, status map[string]any) {
	t.Helper()
	made := create(t, a, "Repository", name, map[string]any{"spec": map[string]any{"title": name, "type": "git",
		"git":  map[string]any{"url": "https://git.example.com/x.git"},
		"sync": map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(60)}}})
	if status != nil {
		made = patchRepository(t, a, name, map[string]any{"status": status}, "status")
	}
	// The schedule of a running agent may have written it since.
	eventually(t, "the agent sees "+name, func() bool {
		seen, ok := a.repos.Get("default", name)
		return ok && revision(t, seen) >= revision(t, made)
	})
}

func revision(t *testing.T, u *unstructured.Unstructured) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(u.GetResourceVersion(), 10, 64)
	must(t, err)
	return n
}

// TestServerUnavailableAtStart: the agent starts without its server, says so once, and goes on by
// itself.
func TestServerUnavailableAtStart(t *testing.T) {
	t.Parallel()
	away, _ := newAgent(t, nil) // its embedded API is the server of the other
	up := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-up:
			away.clients.embedded.ServeHTTP(w, r)
		default:
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(server.Close)
	const token = "canary-token-of-the-agent"
	a, log := newAgent(t, func(c *Config) { c.API.Server, c.API.Token = server.URL, token })
	text.RegisterSecret([]byte(token))
	start(t, a.Run)
	eventually(t, "the snapshot says that the server is away", func() bool {
		s := fresh(t, a)
		return !s.API.Up && s.API.Error != "" &&
			s.Problem != ""
	})
	if a.endpoint.NotReady() == "" {
		t.Error("ready without a server")
	}
	eventually(t, "the log says so", func() bool { return log.count("API unavailable") == 1 })
	close(up)
	eventually(t, "the snapshot is whole", func() bool { s := fresh(t, a); return s.API.Up && s.API.Synced && s.Problem == "" })
	eventually(t, "the log says so", func() bool { return log.count("API available again") == 1 })
	if n := log.count("API unavailable"); n != 1 {
		t.Errorf("said %d times", n)
	}
	data, err := json.Marshal(fresh(t, a))
	if err != nil || bytes.Contains(data, []byte(token)) || log.count(token) > 0 {
		t.Errorf("the token is in the snapshot or in the log (%v)", err)
	}
}

// TestSavedSnapshotWhileServerUnavailable: an agent that starts while its API is away shows what
// was known last, and since when it is so.
func TestSavedSnapshotWhileServerUnavailable(t *testing.T) {
	t.Parallel()
	a, _ := newAgent(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	eventually(t, "the watches have synced", a.health.Synced)
	repository(t, a, "r", map[string]any{"observedGeneration": int64(1),
		"sync": map[string]any{"state": "success", "finished": time.Now().UnixMilli()}})
	eventually(t, "the snapshot has the repository", func() bool { return len(fresh(t, a).Repos) == 1 })
	asOf := fresh(t, a).At
	cancel()
	must(t, <-done)
	left, err := snapshot.Saved(t.Context(), a.cfg.Store, "v2")
	if err != nil || len(left.Repos) != 1 || left.Repos[0].Name != "r" || left.AsOf.Before(asOf) || left.API.Up || left.Problem != "" ||
		left.Agent.Version != "v2" || left.Agent.StorePath != a.cfg.StatePath {
		t.Errorf("what is left in the file: %+v, %v", left, err)
	}
	cfg := a.cfg
	cfg.API.Server = "http://127.0.0.1:1" // where nothing listens
	b, err := New(t.Context(), cfg)
	must(t, err)
	t.Cleanup(b.Close)
	start(t, b.Run)
	eventually(t, "the API is known to be away", func() bool { return fresh(t, b).API.Error != "" })
	s := fresh(t, b)
	if len(s.Repos) != 1 || s.Repos[0].Name != "r" || s.AsOf.Before(asOf) || s.AsOf.After(time.Now()) {
		t.Errorf("as of %s: %+v", s.AsOf, s.Repos)
	}
}
