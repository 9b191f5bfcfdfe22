package control

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/auth"
	"limpet/sync/kube"
	"limpet/sync/repos"
	"limpet/sync/snapshot"
)

func TestStoreOverSocket(t *testing.T) {
	t.Parallel()
	store, path := openStore(t), filepath.Join(t.TempDir(), "limpet.sock")
	serveAgent(t, path, newFakeAgent(), store, testHello())
	client, ctx := attach(t, path), t.Context()
	now := time.Now().Truncate(time.Millisecond)
	for i, name := range []string{"a-sync", "b-sync", "c-sync"} {
		rec := state.Record{UID: name, Namespace: "default", Name: name, Repository: name[:1], Action: "pull", State: "success",
			Started: now.Add(-time.Hour), Finished: now.Add(-time.Duration(i) * time.Hour)}
		if err := store.PutRecord(ctx, rec); err != nil {
			t.Fatal(err)
		}
	}
	if h := client.Hello(); h.PID != os.Getpid() || h.Version != "test" || string(client.dialer.(Socket)) != path {
		t.Errorf("hello: %+v of %v", h, client.dialer)
	}
	q := state.Query{Repository: "b", States: []string{"success", "error"}, Since: now.Add(-24 * time.Hour), Until: now.Add(time.Minute),
		Limit: 5}
	records, err := client.History(ctx, q)
	if err != nil || len(records) != 1 || records[0].UID != "b-sync" || !records[0].Finished.Equal(now.Add(-time.Hour)) {
		t.Errorf("history: %+v, %v", records, err)
	}
	if n, err := client.PruneHistory(ctx, now.Add(-90*time.Minute)); err != nil || n != 1 {
		t.Errorf("prune removed %d, %v; want 1", n, err)
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
	if _, err := client.PastJob(ctx, "none"); !errors.Is(err, ErrNoRecord) {
		t.Errorf("a job that is not there: %v", err)
	}
}

// TestAgentOverSocket: each call of an agent crosses the socket unchanged.
func TestAgentOverSocket(t *testing.T) {
	t.Parallel()
	store, path, agent := openStore(t), filepath.Join(t.TempDir(), "limpet.sock"), newFakeAgent()
	var err error
	if agent.Suspensions, err = repos.OpenSuspensions(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	serveAgent(t, path, agent, store, testHello())
	client, ctx := attach(t, path), t.Context()
	if err := client.Act(ctx, snapshot.Action{Verb: snapshot.Hurry}); err != nil || agent.hurries != 1 {
		t.Errorf("hurry: %v, %d calls", err, agent.hurries)
	}
	if err := client.Act(ctx, snapshot.Action{Verb: "fly"}); err == nil || err.Error() != `unknown action "fly"` {
		t.Errorf("an unknown action: %v", err)
	}
	for on, want := range map[bool]Drained{true: {Since: time.Unix(1, 0).UTC(), Busy: 2}, false: {Busy: 1}} {
		if got, err := client.Drain(ctx, on); err != nil || !got.Since.Equal(want.Since) || got.Busy != want.Busy {
			t.Errorf("drain %t: %+v, %v", on, got, err)
		}
	}

	one := repos.Suspension{Namespace: "default", Repository: "site", UID: "u", Since: time.Unix(1, 0).UTC(),
		Until: time.Now().Add(time.Hour).Truncate(0).UTC()}
	if err := client.Suspend(ctx, one); err != nil {
		t.Fatal(err)
	}
	if got, err := client.Suspended(ctx); err != nil || len(got) != 1 || got[0] != one {
		t.Errorf("%+v %v", got, err)
	}
	for _, want := range []bool{true, false} {
		if was, err := client.Resume(ctx, "default", "site"); err != nil || was != want {
			t.Errorf("resume: %t %v", was, err)
		}
	}

	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Connection",
		"metadata": map[string]any{"name": "lab", "generation": int64(1<<53 + 1)}}}
	want, _ := agent.Test(ctx, u)
	if got, err := client.Test(ctx, u); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("test: %+v %v, want %+v", got, err, want)
	}
	u.SetGeneration(0)
	if _, err := client.Test(ctx, u); err == nil || err.Error() != "no result" {
		t.Errorf("a test that fails: %v", err)
	}
	u.SetAnnotations(map[string]string{"a": strings.Repeat("a", maxRequest)})
	if _, err := client.Test(ctx, u); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("a large object: %v", err)
	}

	if _, err := client.Diagnostics(ctx); err == nil || err.Error() != "the disk is gone" {
		t.Errorf("diagnostics that fail: %v", err)
	}
	agent.diagnostics = snapshot.DiagnosticsReport{At: time.Unix(1, 0).UTC(), Store: snapshot.Store{Info: state.Info{Path: "/x"},
		DiskFree: -1},
		Watches: []snapshot.Watch{{Kind: "jobs", Synced: true, Objects: 4}},
		Tokens:  []snapshot.Tokens{{Provider: "github", TokenCounts: auth.TokenCounts{Oldest: time.Minute}}}}
	if got, err := client.Diagnostics(ctx); err != nil || !reflect.DeepEqual(got, agent.diagnostics) {
		t.Errorf("%+v, %v", got, err)
	}
	q := snapshot.CompareQuery{Namespace: "n", Repository: "r", From: "f", To: "t", Path: "a/b c&d=é"}
	compared, _ := agent.Compare(ctx, q)
	if got, err := client.Compare(ctx, q); err != nil || !reflect.DeepEqual(got, compared) {
		t.Errorf("%+v, %v, want %+v", got, err, compared)
	}
}

func TestInvalidRequests(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limpet.sock")
	serveAgent(t, path, newFakeAgent(), nil, testHello())
	client := attach(t, path)
	for name, want := range map[string]int{"history": http.StatusBadRequest, "no/such/call": http.StatusNotFound} {
		resp, err := client.http.Post(BaseURL+prefix+name, "application/json", strings.NewReader(`{"Since":"yesterday"}`))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s, want %d", name, resp.Status, want)
		}
	}
	if _, err := call[none](t.Context(), client, "no/such/call", nil); !errors.Is(err, errors.ErrUnsupported) ||
		err.Error() != "the daemon test does not know this request, which is of another version of limpet" {
		t.Errorf("%v", err)
	}
}

func TestSocketFile(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long-directory-name/", 8))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "limpet.sock")
	if err := unix.Mknod(path, unix.S_IFSOCK|0o600, 0); err != nil { // a stale socket is replaced
		t.Fatal(err)
	}
	stop := serveAgent(t, path, newFakeAgent(), nil, testHello())
	attach(t, path)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	stop()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	if _, err := Attach(t.Context(), path); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("attach without a daemon: %v", err)
	}
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

// TestErrorClasses: a sentinel that commands check for crosses the socket with its text.
func TestErrorClasses(t *testing.T) {
	t.Parallel()
	for _, want := range classes {
		mux := http.NewServeMux()
		failure := fmt.Errorf("write it: %w", want)
		refuses := func(w http.ResponseWriter, _ *http.Request) { refuse(w, http.StatusInternalServerError, failure) }
		mux.HandleFunc(prefix+"store/info", refuses)
		upstream := httptest.NewServer(mux)
		client := &Client{http: &http.Client{Transport: &http.Transport{Proxy: func(*http.Request) (*url.URL,
			error) {
			return url.Parse(upstream.URL)
		}}}}
		if _, err := client.Info(t.Context()); !errors.Is(err, want) || err.Error() != failure.Error() {
			t.Errorf("%v became %v", want, err)
		}
		upstream.Close()
	}
	if classes["disk-full"] != syscall.ENOSPC {
		t.Error("a full disk has no class")
	}
}

func TestProxyCredentials(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.URL.Path+" "+r.Header.Get("Authorization")+r.Header.Get("X-Access-Token"))
	}))
	t.Cleanup(upstream.Close)
	log := slog.New(slog.DiscardHandler)
	client, err := kube.Connect(t.Context(), kube.Config{Server: upstream.URL + "/prefix", Token: "of-the-agent", Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	path := filepath.Join(t.TempDir(), "limpet.sock")
	ln, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	serve(t, ln, &Server{Agent: newFakeAgent(), API: Proxy(client, nil, log)})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, BaseURL+"/apis/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer of-the-client")
	req.Header.Set("X-Access-Token", "of-the-client")
	resp, err := attach(t, path).http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "/prefix/apis/x Bearer of-the-agent" {
		t.Errorf("upstream saw %q, %v", body, err)
	}
}

// TestProfiles: the socket serves profiles, and not the command line, which may hold a token.
func TestProfiles(t *testing.T) {
	t.Parallel()
	handler := (&Server{Agent: &Service{}, API: http.NotFoundHandler()}).handler()
	for path, want := range map[string]int{"heap": 200, "goroutine": 200, "cmdline": 404} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", profiles+path, nil))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
}
