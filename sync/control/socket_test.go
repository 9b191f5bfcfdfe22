package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/repos"
	"limpet/sync/snapshot"
)

func TestMain(m *testing.M) {
	if state.RunProbe() {
		return
	}
	os.Exit(m.Run())
}

// fakeAgent publishes the snapshots of a test.
type fakeAgent struct {
	hurries   atomic.Int64
	next      chan *snapshot.Snapshot
	cancelled []string
	care      snapshot.DiagnosticsReport
	*repos.Suspensions
}

func (p *fakeAgent) Next(ctx context.Context, seq uint64) (*snapshot.Snapshot, error) {
	for {
		select {
		case s := <-p.next:
			if s.Seq > seq {
				return s, nil
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (p *fakeAgent) Cancel(_ context.Context, namespace, name string) error {
	p.cancelled = append(p.cancelled, namespace+"/"+name)
	if name == "gone" {
		return state.ErrNotFound
	}
	return nil
}

func (p *fakeAgent) Diagnostics(context.Context) (snapshot.DiagnosticsReport, error) {
	if p.care.At.IsZero() {
		return snapshot.DiagnosticsReport{}, errors.New("the disk is gone")
	}
	return p.care, nil
}

// Compare returns its arguments.
func (p *fakeAgent) Compare(_ context.Context, q snapshot.CompareQuery) (snapshot.Comparison, error) {
	if q.To == "" {
		return snapshot.Comparison{}, errors.New("the mirror is gone")
	}
	return snapshot.Comparison{All: 2, Files: []snapshot.FileChange{{Type: q.Namespace, Path: q.Repository, From: q.From}}, Text: &snapshot.TextChange{Form: q.To, More: 1, Lines: []snapshot.TextLine{{Op: "-", Text: q.Path}}}}, nil
}

// Test returns the name of the object, and an error for an object without one.
func (p *fakeAgent) Test(_ context.Context, u *unstructured.Unstructured) (repos.TestResults, error) {
	if u.GetName() == "nothing" {
		return repos.TestResults{}, errors.New("nothing can be told")
	}
	generation := u.GetGeneration()
	return repos.TestResults{Code: 404, Errors: []api.FieldError{{Field: u.GetKind(), Detail: fmt.Sprint(generation)}},
		Steps: []repos.Step{{Name: "rules", Result: repos.StepOK}}}, nil
}

func (p *fakeAgent) Drain(on bool) (since time.Time, busy int) {
	if on {
		return time.Unix(1, 0), 2
	}
	return time.Time{}, 1
}

func (p *fakeAgent) Hurry() { p.hurries.Add(1) }

// serve starts a server on a socket in dir and stops it at the end of the test.
func serve(t *testing.T, dir string, api http.Handler) (*Client, *fakeAgent, *state.Store) {
	t.Helper()
	store, _, err := state.Open(t.Context(), state.Options{Path: filepath.Join(dir, "limpet.db"), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	agent := &fakeAgent{next: make(chan *snapshot.Snapshot, 4)}
	if agent.Suspensions, err = repos.OpenSuspensions(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	s := &Server{Hello: Hello{Protocol: Protocol, Version: "test", PID: os.Getpid()}, Store: store, Agent: agent, API: api}
	path := filepath.Join(dir, "limpet.sock")
	ln, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	client, err := Attach(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is still there: %v", err)
		}
		if rep, err := store.Check(context.Background()); err != nil || len(rep.Problems) > 0 {
			t.Errorf("state file: %v %v", err, rep.Problems)
		}
		store.Close()
	})
	return client, agent, store
}

func TestStoreOverSocket(t *testing.T) {
	t.Parallel()
	client, agent, store := serve(t, t.TempDir(), http.NotFoundHandler())
	ctx := t.Context()
	now := time.Now().Truncate(time.Millisecond)
	for i, name := range []string{"a-sync", "b-sync", "c-sync"} {
		rec := state.Record{UID: name, Namespace: "default", Name: name, Repository: name[:1], Action: "pull", State: "success",
			Started: now.Add(-time.Hour), Finished: now.Add(-time.Duration(i) * time.Hour)}
		if err := store.PutRecord(ctx, rec); err != nil {
			t.Fatal(err)
		}
	}
	if h := client.Hello(); h.PID != os.Getpid() || h.Version != "test" {
		t.Errorf("hello: %+v", h)
	}
	records, err := client.History(ctx, state.Query{Repository: "b", States: []string{"success", "error"}, Since: now.Add(-24 * time.Hour), Until: now.Add(time.Minute), Limit: 5})
	if err != nil || len(records) != 1 || records[0].UID != "b-sync" || !records[0].Finished.Equal(now.Add(-time.Hour)) {
		t.Errorf("history: %+v, %v", records, err)
	}
	if n, err := client.PruneHistory(ctx, now.Add(-90*time.Minute)); err != nil || n != 1 {
		t.Errorf("prune removed %d, %v; want 1", n, err)
	}
	if n, err := client.TrimHistory(ctx, 2); err != nil || n != 0 {
		t.Errorf("trim removed %d, %v; want none", n, err)
	}
	if info, err := client.Info(ctx); err != nil || info.History != 2 {
		t.Errorf("info: %+v, %v", info, err)
	}
	if n, err := client.TrimHistory(ctx, -1); err == nil {
		t.Errorf("a negative number of records was kept, %d removed", n)
	}
	if n, err := client.TrimHistory(ctx, 1); err != nil || n != 1 {
		t.Errorf("trim removed %d, %v; want 1", n, err)
	}
	if left, err := client.History(ctx, state.Query{}); err != nil || len(left) != 1 || left[0].UID != "a-sync" {
		t.Errorf("trim has left %+v, %v", left, err)
	}
	if rep, err := client.Check(ctx); err != nil || len(rep.Problems) > 0 || rep.Frames == 0 {
		t.Errorf("check: %+v, %v", rep, err)
	}
	if before, after, err := client.Compact(ctx); err != nil || after > before || after == 0 {
		t.Errorf("compact: %d -> %d, %v", before, after, err)
	}
	var copied bytes.Buffer
	if n, err := client.Backup(ctx, &copied); err != nil || n == 0 || int64(copied.Len()) != n {
		t.Errorf("backup: %d bytes, %v", n, err)
	}
	if err := client.Cancel(ctx, "default", "a-sync"); err != nil || agent.cancelled[0] != "default/a-sync" {
		t.Errorf("cancel: %v, %v", agent.cancelled, err)
	}
	if err := client.Hurry(ctx); err != nil || agent.hurries.Load() != 1 {
		t.Errorf("hurry: %v, asked %d times", err, agent.hurries.Load())
	}
	if got, err := client.Drain(ctx, true); err != nil || !got.Since.Equal(time.Unix(1, 0)) || got.Busy != 2 {
		t.Errorf("drain: %+v, %v", got, err)
	}
	if got, err := client.Drain(ctx, false); err != nil || !got.Since.IsZero() || got.Busy != 1 {
		t.Errorf("end of drain: %+v, %v", got, err)
	}
	if err := client.Cancel(ctx, "default", "gone"); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("an error loses its class over the socket: %v", err)
	}
}

func TestNextWaitsForNewerSnapshot(t *testing.T) {
	t.Parallel()
	client, agent, _ := serve(t, t.TempDir(), http.NotFoundHandler())
	got := make(chan uint64, 1)
	go func() {
		snap, err := client.Next(t.Context(), 5)
		if err != nil {
			t.Error(err)
		}
		got <- snap.Seq
	}()
	agent.next <- &snapshot.Snapshot{Seq: 5}
	agent.next <- &snapshot.Snapshot{Seq: 6}
	if seq := <-got; seq != 6 {
		t.Errorf("picture %d, want 6", seq)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.Next(ctx, 6); !errors.Is(err, context.Canceled) {
		t.Errorf("Next after the end of its context: %v", err)
	}
}

func TestInvalidQueries(t *testing.T) {
	t.Parallel()
	client, _, _ := serve(t, t.TempDir(), http.NotFoundHandler())
	for _, q := range []string{"history?since=yesterday", "history?limit=many", "snapshot?after=-1"} {
		resp, err := client.http.Get(BaseURL + prefix + q)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s, want 400", q, resp.Status)
		}
	}
	resp, err := client.http.Get(BaseURL + prefix + "no/such/thing")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("unknown path: %s", resp.Status)
	}
}

func TestSocketModeAndLongPath(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long-directory-name/", 8))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "limpet.sock")
	// A stale socket is replaced.
	if err := unix.Mknod(path, unix.S_IFSOCK|0o600, 0); err != nil {
		t.Fatal(err)
	}
	client, _, _ := serve(t, dir, http.NotFoundHandler())
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	if client.Path() != path {
		t.Errorf("path %q", client.Path())
	}
}

func TestListenKeepsForeignFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limpet.sock")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if ln, err := Listen(path); err == nil {
		ln.Close()
		t.Error("listens in the place of a file")
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "precious" {
		t.Errorf("%q %v", data, err)
	}
}

func TestErrorClasses(t *testing.T) {
	t.Parallel()
	for _, want := range []error{state.ErrFull, state.ErrReadOnly, state.ErrCorrupt, state.ErrClosed, syscall.ENOSPC} {
		faulty := &Server{Store: &faultyStore{fmt.Errorf("write it: %w", want)}, API: http.NotFoundHandler()}
		upstream := httptest.NewServer(faulty.handler())
		client := &Client{http: &http.Client{Transport: rewritten{upstream.URL}}}
		if _, err := client.PruneHistory(t.Context(), time.Now()); !errors.Is(err, want) || !strings.HasPrefix(err.Error(), "write it: ") {
			t.Errorf("%v became %v", want, err)
		}
		upstream.Close()
	}
}

// faultyStore cannot prune.
type faultyStore struct{ err error }

func (d *faultyStore) PruneHistory(context.Context, time.Time) (int, error) { return 0, d.err }
func (d *faultyStore) TrimHistory(context.Context, int) (int, error)        { return 0, d.err }
func (d *faultyStore) History(context.Context, state.Query) ([]state.Record, error) {
	return nil, d.err
}
func (d *faultyStore) Info(context.Context) (state.Info, error) { return state.Info{}, d.err }
func (d *faultyStore) Check(context.Context) (state.CheckReport, error) {
	return state.CheckReport{}, d.err
}
func (d *faultyStore) Compact(context.Context) (int64, int64, error)    { return 0, 0, d.err }
func (d *faultyStore) Backup(context.Context, io.Writer) (int64, error) { return 0, d.err }

// rewritten sends all requests to one address.
type rewritten struct{ base string }

func (r rewritten) RoundTrip(req *http.Request) (*http.Response, error) {
	u, err := url.Parse(r.base)
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.URL.Scheme, req.URL.Host = u.Scheme, u.Host
	return http.DefaultTransport.RoundTrip(req)
}

func TestAttachWithoutDaemon(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := Attach(t.Context(), filepath.Join(dir, "limpet.sock")); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("got %v, want ErrNoDaemon", err)
	}
}

func TestProxyCredentials(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.URL.Path+" "+r.Header.Get("Authorization")+r.Header.Get("X-Access-Token"))
	}))
	t.Cleanup(upstream.Close)
	base, err := url.Parse(upstream.URL + "/prefix")
	if err != nil {
		t.Fatal(err)
	}
	client, _, _ := serve(t, t.TempDir(), Proxy(base, bearer{}, nil, nil))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, BaseURL+"/apis/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer of-the-client")
	req.Header.Set("X-Access-Token", "of-the-client")
	resp, err := client.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "/prefix/apis/x Bearer of-the-agent" {
		t.Errorf("upstream saw %q, %v", body, err)
	}
}

// bearer stands for the transport of a kube.Client.
type bearer struct{}

func (bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer of-the-agent")
	return http.DefaultTransport.RoundTrip(r)
}

// TestSuspensionsOverSocket suspends, lists and resumes over the socket.
func TestSuspensionsOverSocket(t *testing.T) {
	t.Parallel()
	client, _, store := serve(t, t.TempDir(), http.NotFoundHandler())
	ctx := t.Context()
	one := repos.Suspension{Namespace: "default", Repository: "site", UID: "u", Since: time.Unix(1, 0).UTC(), Until: time.Now().Add(time.Hour).Truncate(0).UTC()}
	if err := client.Suspend(ctx, one); err != nil {
		t.Fatal(err)
	}
	kept, err := repos.OpenSuspensions(ctx, store)
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range []Suspender{client, kept} {
		if got, err := who.Suspended(ctx); err != nil || len(got) != 1 || got[0] != one {
			t.Errorf("%T: %+v %v", who, got, err)
		}
	}
	for _, want := range []bool{true, false} {
		if was, err := client.Resume(ctx, "default", "site"); err != nil || was != want {
			t.Errorf("resume: %t %v", was, err)
		}
	}
	if got, err := client.Suspended(ctx); err != nil || len(got) != 0 {
		t.Errorf("%+v %v", got, err)
	}
}

// TestTestOverSocket checks that an object reaches the agent unchanged, and that a
// too large one is refused.
func TestTestOverSocket(t *testing.T) {
	t.Parallel()
	client, agent, _ := serve(t, t.TempDir(), http.NotFoundHandler())
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Connection", "metadata": map[string]any{"name": "lab", "generation": int64(1<<53 + 1)}}}
	got, err := client.Test(t.Context(), u)
	want, _ := agent.Test(t.Context(), u)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("over the socket %+v %v, want %+v", got, err, want)
	}
	u.SetName("nothing")
	if _, err := client.Test(t.Context(), u); err == nil || err.Error() != "nothing can be told" {
		t.Errorf("an error: %v", err)
	}
	u.SetAnnotations(map[string]string{"a": strings.Repeat("a", maxObject)})
	if _, err := client.Test(t.Context(), u); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("a large object: %v", err)
	}
}

func TestDiagnosticsOverSocket(t *testing.T) {
	t.Parallel()
	client, agent, _ := serve(t, t.TempDir(), http.NotFoundHandler())
	if _, err := client.Diagnostics(t.Context()); err == nil || !strings.Contains(err.Error(), "the disk is gone") {
		t.Errorf("a fault: %v", err)
	}
	agent.care = snapshot.DiagnosticsReport{At: time.Unix(1, 0).UTC(), Store: snapshot.Store{Path: "/x", DiskFree: -1}, Mirrors: snapshot.Mirrors{Count: 2, Bytes: 3},
		Watches: []snapshot.Watch{{Kind: "jobs", Synced: true, Objects: 4}}, Tokens: []snapshot.Tokens{{Provider: "github", Held: 1, Oldest: time.Minute}}}
	if got, err := client.Diagnostics(t.Context()); err != nil || !reflect.DeepEqual(got, agent.care) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestCompareOverSocket(t *testing.T) {
	t.Parallel()
	client, agent, _ := serve(t, t.TempDir(), http.NotFoundHandler())
	q := snapshot.CompareQuery{Namespace: "n", Repository: "r", From: "f", To: "t", Path: "a/b c&d=é"}
	want, _ := agent.Compare(t.Context(), q)
	if got, err := client.Compare(t.Context(), q); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if _, err := client.Compare(t.Context(), snapshot.CompareQuery{}); err == nil || err.Error() != "the mirror is gone" {
		t.Errorf("a fault: %v", err)
	}
}
