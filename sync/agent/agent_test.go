package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
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

// newAgent makes an agent in a directory of its own; change may alter its
// configuration. It does not run.
func newAgent(t testing.TB, change func(*Config)) (*Agent, *logText) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limpet.db")
	store, _, err := state.Open(t.Context(), state.Options{Path: path, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	log := &logText{}
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg := Config{Store: store, StatePath: path, Version: "test", Resync: time.Minute, Limits: Limits{Parallel: 2}, Logger: logger,
		Jobs: jobs.Options{Agent: "test", Logger: logger}}
	cfg.API.Logger = logger
	if change != nil {
		change(&cfg)
	}
	a, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
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

// repository creates a Repository and waits until the agent sees it.
func repository(t *testing.T, a *Agent, name string, status map[string]any) {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"title": name, "type": "git",
		"git": map[string]any{"url": "https://git.example.com/x.git"}, "sync": map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(60)}}}}
	u.SetAPIVersion(api.Repositories.GroupVersion().String())
	u.SetKind("Repository")
	u.SetName(name)
	res := a.client.Resource(api.Repositories).Namespace("default")
	made, err := res.Create(t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if status != nil {
		patch, err := json.Marshal(map[string]any{"status": status})
		if err != nil {
			t.Fatal(err)
		}
		if made, err = res.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestFirstPictureDoesNotWait: an agent that finds nothing to do shows that it
// is ready at once, not with the idle tick.
func TestFirstPictureDoesNotWait(t *testing.T) {
	t.Parallel()
	a, _ := newAgent(t, nil)
	begin := time.Now()
	start(t, a.Run)
	eventually(t, "the picture says that the watches have synced", func() bool { return a.board.snapshot().API.Synced })
	if took := time.Since(begin); took > boardIdle-time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestServerThatIsAwayAndComes: the agent starts without its server, says so
// once, and goes on by itself.
func TestServerThatIsAwayAndComes(t *testing.T) {
	t.Parallel()
	away, _ := newAgent(t, nil) // its embedded API is the server of the other
	up := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-up:
			away.embedded.ServeHTTP(w, r)
		default:
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(server.Close)
	const token = "canary-token-of-the-agent"
	a, log := newAgent(t, func(c *Config) { c.API.Server, c.API.Token = server.URL, token })
	text.RegisterSecret([]byte(token))
	start(t, a.Run)
	eventually(t, "the picture says that the server is away", func() bool { s := a.board.snapshot(); return !s.API.Up && s.API.Error != "" && s.Problem != "" })
	if a.notReady() == "" {
		t.Error("ready without a server")
	}
	eventually(t, "the log says so", func() bool { return log.count("cannot be used now") == 1 })
	close(up)
	eventually(t, "the picture is whole", func() bool { s := a.board.snapshot(); return s.API.Up && s.API.Synced && s.Problem == "" })
	eventually(t, "the log says so", func() bool { return log.count("can be used again") == 1 })
	if n := log.count("cannot be used now"); n != 1 {
		t.Errorf("said %d times", n)
	}
	data, err := json.Marshal(a.board.snapshot())
	if err != nil || bytes.Contains(data, []byte(token)) || log.count(token) > 0 {
		t.Errorf("the token is in the picture or in the log (%v)", err)
	}
}

// TestPictureOfBefore: an agent that starts while its API is away shows what was
// known last, and since when it is so.
func TestPictureOfBefore(t *testing.T) {
	t.Parallel()
	a, _ := newAgent(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	eventually(t, "the watches have synced", a.synced)
	repository(t, a, "r", map[string]any{"observedGeneration": int64(1), "sync": map[string]any{"state": "success", "finished": time.Now().UnixMilli()}})
	eventually(t, "the picture has the repository", func() bool { return len(a.board.snapshot().Repos) == 1 })
	asOf := a.board.snapshot().At
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	left, err := LastPicture(t.Context(), a.cfg.Store, "v2")
	if err != nil || len(left.Repos) != 1 || left.Repos[0].Name != "r" || left.AsOf.Before(asOf) || left.API.Up || left.Problem != "" || left.Agent.Version != "v2" || left.Agent.StorePath != a.cfg.StatePath {
		t.Errorf("what is left in the file: %+v, %v", left, err)
	}
	fresh, _ := newAgent(t, nil)
	if none, err := LastPicture(t.Context(), fresh.cfg.Store, "v2"); err != nil || none.AsOf.IsZero() || none.Problem == "" || len(none.Repos) != 0 {
		t.Errorf("what is left in a new file: %+v, %v", none, err)
	}

	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	cfg := a.cfg
	cfg.API.Server = away.URL
	b, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	start(t, b.Run)
	eventually(t, "the API is known to be away", func() bool { return b.board.snapshot().API.Error != "" })
	s := b.board.snapshot()
	if len(s.Repos) != 1 || s.Repos[0].Name != "r" || s.AsOf.Before(asOf) || s.AsOf.After(time.Now()) {
		t.Errorf("as of %s: %+v", s.AsOf, s.Repos)
	}
}

// TestPictureIsKeptOnlyWhenItChanges: each time costs a write to flash.
func TestPictureIsKeptOnlyWhenItChanges(t *testing.T) {
	t.Parallel()
	a, _ := newAgent(t, nil)
	at := time.Now()
	picture := func(age time.Duration, state string) *snapshot.Snapshot {
		return &snapshot.Snapshot{At: at.Add(age), API: snapshot.API{Up: true, Synced: true}, Repos: []snapshot.Repo{{Name: "r", SyncState: state, Next: at.Add(age)}}}
	}
	var kept []byte
	asOf := func() time.Time { return a.keptPicture(t.Context()).AsOf }
	for _, step := range []struct {
		age   time.Duration
		state string
		want  time.Duration
	}{{0, "success", 0}, {time.Minute, "success", 0}, {2 * time.Minute, "error", 2 * time.Minute}} {
		a.board.publish(picture(step.age, step.state))
		a.keepPicture(t.Context(), a.board.snapshot(), &kept)
		if got := asOf().Sub(at); got != step.want {
			t.Errorf("after %s as of %s, want %s", step.age, got, step.want)
		}
	}
	down := picture(time.Hour, "warning")
	down.API.Up, down.API.Since = false, at.Add(5*time.Minute)
	a.board.publish(down)
	a.keepPicture(t.Context(), a.board.snapshot(), &kept)
	if got := asOf().Sub(at); got != 5*time.Minute {
		t.Errorf("while the API is away: as of %s", got)
	}
	down.API.Synced = false
	a.board.publish(down)
	a.keepPicture(t.Context(), a.board.snapshot(), &kept)
	if got := asOf().Sub(at); got != 5*time.Minute {
		t.Error("an empty picture has replaced a good one")
	}
}

// TestFinishedRow: a job that no picture has seen is shown whole when it ends.
func TestFinishedRow(t *testing.T) {
	t.Parallel()
	a, _ := newAgent(t, nil)
	at := time.Now()
	job := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"action": "pull", "repository": "r", "pull": map[string]any{"incremental": true}}}}
	job.SetUID("u1")
	job.SetName("r-sync")
	job.SetNamespace("default")
	a.observe(jobs.Event{At: at, Type: jobs.EventCompleted, Level: "error", Namespace: "default", Job: "r-sync", UID: "u1", Repository: "r", Action: "pull", State: "error", Text: "401",
		Last: &jobs.Running{UID: "u1", Job: job, Attempt: 2, Branch: "main", RefTo: "abc", Started: at.Add(-time.Second), LeaseUntil: at.Add(time.Minute), Errors: []string{"401"},
			Commit: &state.Commit{Subject: "add peers", Author: "M. Ito", At: at}, Steps: []jobs.Step{{Text: "fetch abc", At: at, Took: time.Second}, {Text: "write", At: at}},
			Lines: []jobs.Line{{At: at, Level: "info", Text: "job claimed"}}}})
	events, done := a.board.recent(at)
	if len(events) != 1 || len(done.rows) != 1 {
		t.Fatalf("%d events, %d rows", len(events), len(done.rows))
	}
	row := done.rows[0]
	row.Log = nil
	want := snapshot.Job{UID: "u1", Namespace: "default", Name: "r-sync", Repository: "r", Action: "pull", Detail: "incr", State: "error", Message: "401", Progress: 100,
		Created: row.Created, Started: at.Add(-time.Second), Finished: at, Owner: "this", Attempt: 2, MaxAttempt: row.MaxAttempt, Branch: "main", RefTo: "abc", Errors: []string{"401"},
		Commit: &snapshot.Commit{Subject: "add peers", Author: "M. Ito", At: at}, Steps: []snapshot.Step{{Text: "fetch abc", At: at, Took: time.Second}, {Text: "write", At: at}}}
	got, _ := json.Marshal(row)
	wanted, _ := json.Marshal(want)
	if !bytes.Equal(got, wanted) || len(done.rows[0].Log) != 1 {
		t.Errorf("row %s\nwant %s", got, wanted)
	}
	if line := a.runs.line("default/r", at); !strings.HasSuffix(line, "e") {
		t.Errorf("line %q", line)
	}
}

// TestJobThatIsLeftAlone: the picture says why a job waits, until it is taken
// or gone.
func TestJobThatIsLeftAlone(t *testing.T) {
	t.Parallel()
	a, _ := newAgent(t, nil)
	start(t, a.jobs.Run, a.repos.Run)
	crowd(t, a, 2)
	p := newPainter(context.Background(), a)
	waits := func() string { return p.paint().Jobs[0].Waits + "," + p.paint().Jobs[1].Waits }
	left := func(uid, name string) {
		a.observe(jobs.Event{Type: jobs.EventSkipped, Namespace: "default", Job: name, UID: uid, Text: "no such prefix"})
	}
	left("u0", "job-00000")
	left("another", "job-00001")
	left("never seen", "never-seen")
	if got := waits(); got != "no such prefix," {
		t.Errorf("%q", got)
	}
	a.board.forget(a.gone)
	if n := len(a.board.left); n != 1 {
		t.Errorf("%d reasons are kept for jobs that are not there", n)
	}
	a.observe(jobs.Event{Type: jobs.EventClaimed, UID: "u0"})
	if got := waits(); got != "," {
		t.Errorf("after the claim: %q", got)
	}
}
