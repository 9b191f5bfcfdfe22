package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/apiserver"
	"limpet/sync/control"
	"limpet/sync/kube"
	"limpet/sync/snapshot"
)

// wire is the way to an embedded API that a test can cut.
type wire struct {
	next http.RoundTripper
	down atomic.Bool
	cuts chan struct{} // closed when it is cut, to end the watches
	mu   sync.Mutex    // guards cuts
	// curt ends every watch at once, as some proxies do; watches counts them.
	curt    atomic.Bool
	watches atomic.Int64
	calls   atomic.Int64 // of all kinds, answered or not
	// noHistory is the code with which historicjobs are refused; 0 = they are not.
	noHistory atomic.Int64
	// between is done once, before a watch is asked for; open counts the answers that
	// nobody has closed.
	between func()
	open    atomic.Int64
}

func (w *wire) cut() {
	w.down.Store(true)
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.cuts)
}

func (w *wire) mend() {
	w.mu.Lock()
	w.cuts = make(chan struct{})
	w.mu.Unlock()
	w.down.Store(false)
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	w.calls.Add(1)
	if code := w.noHistory.Load(); code != 0 && strings.Contains(req.URL.Path, "historicjobs") {
		return &http.Response{StatusCode: int(code), Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	}
	if w.down.Load() {
		return nil, syscall.ECONNREFUSED
	}
	if req.URL.Query().Has("watch") {
		w.watches.Add(1)
		if do := w.between; do != nil {
			w.between = nil
			do()
		}
		if w.curt.Load() {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: http.NoBody, Request: req}, nil
		}
	}
	w.mu.Lock()
	cuts := w.cuts
	w.mu.Unlock()
	ctx, cancel := context.WithCancelCause(req.Context())
	go func() {
		select {
		case <-cuts:
			cancel(syscall.ECONNRESET)
		case <-ctx.Done():
		}
	}()
	resp, err := w.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	w.open.Add(1)
	resp.Body = &wireBody{resp.Body, sync.OnceFunc(func() { w.open.Add(-1); cancel(nil) })}
	return resp, nil
}

type wireBody struct {
	io.ReadCloser
	done func()
}

func (b *wireBody) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}

// bench is a follower's world: an API, a state file, one claimed job.
type bench struct {
	t     *testing.T
	r     *run
	s     *session
	wire  *wire
	store *state.Store
	errs  *lockedBuffer
	out   *bytes.Buffer
	job   *unstructured.Unstructured
	how   following
	// of its album: what the pictures count, and the end of who shows them
	counts snapshot.Counts
	leave  func()
}

// lockedBuffer may be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newBench(t *testing.T) *bench {
	t.Helper()
	store, _, err := state.Open(t.Context(), state.Options{Path: t.TempDir() + "/limpet.db", Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	server, err := apiserver.New(store, apiserver.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, store: store, errs: &lockedBuffer{}, out: &bytes.Buffer{}, wire: &wire{next: server.Transport(), cuts: make(chan struct{})}}
	client, err := kube.Connect(t.Context(), kube.Config{Server: "http://embedded", Transport: b.wire, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		server.Close()
		if rep, err := store.Check(context.Background()); err != nil || len(rep.Problems) > 0 {
			t.Errorf("state file: %v %v", err, rep.Problems)
		}
		store.Close()
	})
	b.s = &session{Client: client, Desk: store}
	b.r = &run{g: &Globals{Output: "table"}, World: World{Out: b.out, Err: b.errs, Lookup: func(string) (string, bool) { return "", false }}}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"action": "pull", "repository": "r", "pull": map[string]any{"incremental": true}}}}
	u.SetAPIVersion(api.Jobs.GroupVersion().String())
	u.SetKind("Job")
	u.SetName("r-sync")
	b.job, err = b.jobs().Create(t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// jobCalls are the calls to the API that the tests make.
type jobCalls interface {
	Create(context.Context, *unstructured.Unstructured, metav1.CreateOptions, ...string) (*unstructured.Unstructured, error)
	Update(context.Context, *unstructured.Unstructured, metav1.UpdateOptions, ...string) (*unstructured.Unstructured, error)
	Get(context.Context, string, metav1.GetOptions, ...string) (*unstructured.Unstructured, error)
	Delete(context.Context, string, metav1.DeleteOptions, ...string) error
}

func (b *bench) jobs() jobCalls {
	return b.s.Client.Resource(api.Jobs).Namespace("default")
}

// claim makes the job look like one that an agent works on.
func (b *bench) claim(message string) {
	b.t.Helper()
	b.status(map[string]any{"state": "working", "message": message, "progress": 40.0})
}

// status writes that of the job, and claims it.
func (b *bench) status(status map[string]any) {
	b.t.Helper()
	u, err := b.jobs().Get(b.t.Context(), "r-sync", metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	u.SetLabels(map[string]string{api.LabelClaim: "1795180000000", api.LabelClaimOwner: "somebody"})
	u.Object["status"] = status
	if _, err := b.jobs().Update(b.t.Context(), u, metav1.UpdateOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

// end writes the record and takes the job out of the queue, as an agent does.
func (b *bench) end(rec *state.Record) {
	b.t.Helper()
	if rec != nil {
		rec.UID, rec.Finished = string(b.job.GetUID()), time.Now()
		if err := b.store.PutRecord(b.t.Context(), *rec); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := b.jobs().Delete(b.t.Context(), "r-sync", metav1.DeleteOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

// follow waits for the job beside the test.
func (b *bench) follow(ctx context.Context) chan error {
	ended := make(chan error, 1)
	go func() { ended <- b.r.follow(ctx, b.s, b.job, b.how) }()
	return ended
}

func (b *bench) says(what string) {
	b.t.Helper()
	b.until(fmt.Sprintf("a word of %q", what), func() bool { return strings.Contains(b.errs.String(), what) })
}

// until waits for what comes of other goroutines.
func (b *bench) until(what string, is func() bool) {
	b.t.Helper()
	deadline, tick := time.After(30*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-deadline:
			b.t.Fatalf("not %s; stderr:\n%s", what, b.errs)
		case <-tick.C:
		}
	}
}

// ends fails the test unless the wait ends with that exit code.
func (b *bench) ends(ended chan error, code int, text string) {
	b.t.Helper()
	select {
	case err := <-ended:
		var f *Failure
		got := ExitOK
		if errors.As(err, &f) {
			got = f.Code
		} else if err != nil {
			b.t.Fatalf("an error without a code: %v", err)
		}
		if got != code || code != ExitOK && (!strings.Contains(f.Error(), text) || f.Hint == "") {
			b.t.Errorf("exit %d, want %d: %v", got, code, err)
		}
	case <-time.After(30 * time.Second):
		b.t.Fatal("the wait does not end")
	}
}

func TestWaitEndsLikeTheJob(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, state, status string
		code                int
	}{
		{"success", "success", `{"state":"success","message":"all good"}`, ExitOK},
		{"warning", "warning", `{"state":"warning"}`, ExitPartial},
		{"some resources", "error", `{"state":"error","summary":[{"kind":"Dashboard","error":1,"write":3}]}`, ExitPartial},
		{"all failed", "error", `{"state":"error","errors":["401"],"summary":[{"kind":"Dashboard","error":1}]}`, ExitJobFailed},
		{"no attempt left", "dead", `{"state":"error","summary":[{"kind":"Dashboard","error":1,"write":3}]}`, ExitJobFailed},
		{"cancelled", "cancelled", `{"state":"error"}`, ExitCancelled},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.claim("begun")
			ended := b.follow(t.Context())
			b.says("working 40% begun")
			b.end(&state.Record{State: tt.state, Status: []byte(tt.status)})
			b.ends(ended, tt.code, "the job")
			if !strings.Contains(b.out.String(), "job/r-sync "+tt.state+" in ") {
				t.Errorf("stdout: %s", b.out)
			}
		})
	}
}

func TestWaitOutlivesAnAPIThatIsAway(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("begun")
	ended := b.follow(t.Context())
	b.says("begun")
	b.wire.cut()
	b.says("no answer, still trying")
	b.wire.mend()
	b.claim("further on")
	b.says("further on")
	b.end(&state.Record{State: "success", Status: []byte(`{"state":"success"}`)})
	b.ends(ended, ExitOK, "")
	if n := strings.Count(b.errs.String(), "no answer"); n != 1 {
		t.Errorf("said %d times:\n%s", n, b.errs)
	}
}

// TestWaitMissesNothing: what happens between the look at the job and the watch.
func TestWaitMissesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("begun")
	b.wire.between = func() { b.end(&state.Record{State: "success", Status: []byte(`{"state":"success"}`)}) }
	b.ends(b.follow(t.Context()), ExitOK, "")
}

// TestWaitLooksAtItsOwnJob: others come and go meanwhile.
func TestWaitLooksAtItsOwnJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other := b.job.DeepCopy()
	other.SetName("a-sync")
	other.SetUID("")
	other.SetResourceVersion("")
	if _, err := b.jobs().Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.claim("begun")
	ended := b.follow(t.Context())
	b.says("begun")
	if err := b.jobs().Delete(t.Context(), "a-sync", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.claim("further")
	b.says("further")
	b.end(&state.Record{State: "success", Status: []byte(`{"state":"success"}`)})
	b.ends(ended, ExitOK, "")
}

// TestEndThatIsTakenBack: a job that another server begins anew is not over.
func TestEndThatIsTakenBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	f := b.r.follower(b.s, b.job, "none")
	for _, tt := range []struct {
		status map[string]any
		over   bool
	}{
		{map[string]any{"state": "error", "finished": int64(1)}, true}, {map[string]any{"state": "working"}, false},
		{map[string]any{"state": "success"}, false}, {map[string]any{"state": "pending", "finished": int64(1)}, false}, {map[string]any{"state": "warning", "finished": int64(1)}, true},
	} {
		u := b.job.DeepCopy()
		u.Object["status"] = tt.status
		if f.see(u); f.over.IsZero() == tt.over {
			t.Errorf("%v: over since %v", tt.status, f.over)
		}
	}
}

// TestWaitWithoutHistory: a server that keeps it elsewhere is asked and says no; then the
// status that was seen last tells the end.
func TestWaitWithoutHistory(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]int{http.StatusNotFound: ExitOK, http.StatusForbidden: ExitOK, http.StatusMethodNotAllowed: ExitOK, http.StatusUnauthorized: ExitAuth} {
		b := newBench(t)
		b.s.Desk = nil
		b.wire.noHistory.Store(int64(code))
		b.status(map[string]any{"state": "success", "message": "all good", "started": time.Now().UnixMilli(), "finished": time.Now().UnixMilli()})
		ended := b.follow(t.Context())
		b.says("all good")
		b.end(nil)
		err := <-ended
		if got, _ := classify(err); err != nil && got != want || err == nil && (want != ExitOK || !strings.HasPrefix(b.out.String(), "job/r-sync success in ")) {
			t.Errorf("%d: %v, want exit %d: %s", code, err, want, b.out)
		}
	}
}

// TestEndOfAJob: each figure in its place, and nothing that steers a terminal.
func TestEndOfAJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	end := &ending{"warning", api.JobStatus{Started: 1000, Finished: 60_999, Message: "m\x1b[2J", Errors: []string{"e\x1b[2J"}, Warnings: []string{"w\r\n"},
		Summary: []api.JobSummary{{Kind: "Dashboard", Create: 1, Update: 2, Delete: 3, Warning: 4, Error: 5, Noop: 6, Write: 7, Total: 8}, {Error: 1}}}}
	if code, _ := classify(b.r.printEnding(b.job, end, false)); code != ExitPartial {
		t.Errorf("exit %d", code)
	}
	want := "job/r-sync warning in 1m0s: m[2J\n  Dashboard: 1 created, 2 updated, 3 deleted, 4 warnings, 5 errors\n" +
		"  unread files: 0 created, 0 updated, 0 deleted, 0 warnings, 1 errors\n  error: e[2J\n  warning: w  \n"
	if got := b.out.String(); got != want {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

func TestWaitForAJobThatIsDeleted(t *testing.T) {
	t.Parallel()
	t.Run("before it was claimed", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		ended := b.follow(t.Context())
		b.says("pending")
		b.end(nil)
		b.ends(ended, ExitCancelled, "deleted before it was claimed")
	})
	t.Run("another job has taken its name", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		ended := b.follow(t.Context())
		b.says("pending")
		b.wire.cut()
		b.says("no answer")
		b.wire.mend()
		first := b.job
		b.end(nil)
		again := first.DeepCopy()
		again.SetUID("")
		again.SetResourceVersion("")
		if _, err := b.jobs().Create(t.Context(), again, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.ends(ended, ExitCancelled, "deleted before it was claimed")
	})
}

func TestWaitThatIsCutShort(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		cause error
		code  int
	}{{signalled{syscall.SIGINT}, ExitCancelled}, {timedOut{time.Second}, ExitTimeout}} {
		b := newBench(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := b.follow(ctx)
		b.says("pending")
		cancel(tt.cause)
		b.ends(ended, tt.code, "the job goes on")
		if _, err := b.jobs().Get(t.Context(), "r-sync", metav1.GetOptions{}); err != nil {
			t.Errorf("the job is gone: %v", err)
		}
	}
}

// TestFollowTellsWhyOnce: why a daemon leaves the job alone is said when it is known,
// and again when it is another reason; of a job that was claimed it is not asked.
func TestFollowTellsWhyOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	path := filepath.Join(t.TempDir(), "limpet.sock")
	ln, err := control.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	waits := "its actions are not taken here"
	mux := http.NewServeMux()
	mux.HandleFunc("GET /limpet/v1/hello", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(control.Hello{Version: Version, Protocol: control.Protocol})
	})
	mux.HandleFunc("GET /limpet/v1/snapshot", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(snapshot.Snapshot{Jobs: []snapshot.Job{{UID: "other", Name: "other", Waits: "x"}, {UID: string(b.job.GetUID()), Name: "r-sync", Waits: waits}}})
	})
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(ln) }()
	defer server.Close()
	if b.s.Daemon, err = control.Attach(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	defer b.s.Daemon.Close()
	f := b.r.follower(b.s, b.job, "plain")
	f.tellWhy(t.Context())
	f.tellWhy(t.Context())
	waits = "no credentials"
	f.tellWhy(t.Context())
	f.seen = f.seen.DeepCopy()
	f.seen.SetLabels(map[string]string{api.LabelClaim: "1795180000000"})
	waits = "late"
	f.tellWhy(t.Context())
	var said []string
	for line := range strings.Lines(b.errs.String()) {
		_, text, _ := strings.Cut(line, " ")
		said = append(said, strings.TrimSpace(text))
	}
	if want := []string{"r-sync is left alone: its actions are not taken here", "r-sync is left alone: no credentials"}; !slices.Equal(said, want) {
		t.Errorf("said %q, want %q", said, want)
	}
}

func TestCancelJob(t *testing.T) {
	t.Parallel()
	t.Run("that waits", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		if done, err := b.s.cancel(t.Context(), b.job); err != nil || done != "deleted before it was claimed" {
			t.Fatalf("%q %v", done, err)
		}
		if _, err := b.jobs().Get(t.Context(), "r-sync", metav1.GetOptions{}); err == nil {
			t.Error("the job is still there")
		}
	})
	t.Run("that was claimed meanwhile", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		b.claim("begun") // b.job is from before that
		if done, err := b.s.cancel(t.Context(), b.job); err != nil || done != "asked to stop" {
			t.Fatalf("%q %v", done, err)
		}
		u, err := b.jobs().Get(t.Context(), "r-sync", metav1.GetOptions{})
		if err != nil || u.GetAnnotations()[api.AnnoCancel] == "" || u.GetLabels()[api.LabelClaim] == "" {
			t.Errorf("%v %v", u, err)
		}
	})
	t.Run("that rests", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		rests := b.job.DeepCopy()
		rests.SetAnnotations(map[string]string{api.AnnoAttempts: `[{"n":1}]`, api.AnnoNotBefore: "9999999999999"})
		u, err := b.jobs().Update(t.Context(), rests, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if done, err := b.s.cancel(t.Context(), u); err != nil || done != "asked to stop" {
			t.Fatalf("%q %v", done, err)
		}
		if u, err = b.jobs().Get(t.Context(), "r-sync", metav1.GetOptions{}); err != nil || u.GetAnnotations()[api.AnnoCancel] == "" {
			t.Fatalf("%v %v", u, err)
		}
		if done, err := b.s.cancel(t.Context(), u); err != nil || done != "deleted before it was claimed" { // no agent has come
			t.Fatalf("asked again: %q %v", done, err)
		}
	})
	t.Run("whose name belongs to another", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		b.end(nil)
		again := b.job.DeepCopy()
		again.SetUID("")
		again.SetResourceVersion("")
		made, err := b.jobs().Create(t.Context(), again, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.s.cancel(t.Context(), b.job); err == nil {
			t.Error("the other job was cancelled")
		}
		if u, err := b.jobs().Get(t.Context(), "r-sync", metav1.GetOptions{}); err != nil || u.GetUID() != made.GetUID() || u.GetAnnotations()[api.AnnoCancel] != "" {
			t.Errorf("%v %v", u, err)
		}
	})
}

// TestSaysOnceThatNobodyAnswers: and again when the API is away anew.
func TestSaysOnceThatNobodyAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.claim("begun")
		ended := b.follow(t.Context())
		b.says("begun")
		for n := range 2 {
			b.wire.cut()
			time.Sleep(10 * time.Second)
			b.wire.mend()
			b.claim(fmt.Sprint("further ", n))
			b.says(fmt.Sprint("further ", n))
			if said := strings.Count(b.errs.String(), "no answer"); said != n+1 {
				t.Errorf("after %d times away it was said %d times:\n%s", n+1, said, b.errs)
			}
		}
		b.end(&state.Record{State: "success", Status: []byte(`{"state":"success"}`)})
		b.ends(ended, ExitOK, "")
	})
}

// TestBarMakesRoom: what is said stands in its place and not behind it, and so does what
// comes when the wait is over.
func TestBarMakesRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.how.Progress = "bar"
		b.claim("begun")
		ended := b.follow(t.Context())
		b.says("begun")
		b.wire.cut()
		b.says("no answer")
		b.wire.mend()
		b.claim("further")
		b.says("further")
		b.end(&state.Record{State: "success", Status: []byte(`{"state":"success"}`)})
		b.ends(ended, ExitOK, "")
		before, after, _ := strings.Cut(b.errs.String(), "\n")
		before = before[:strings.LastIndex(before, "Z r-sync: no answer")-len("2000-01-01T00:00:00")]
		for _, text := range []string{before, after} {
			if !strings.Contains(text, "pull r  ####") || !strings.HasSuffix(text, "\r\x1b[K") {
				t.Errorf("the bar is still there: %q", text)
			}
		}
	})
}

// TestWhatIsWorthALine: another state or message, a tenth of the way, one more error, and
// what is asked for. Of documents there is one for each change alone.
func TestWhatIsWorthALine(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.r.g.Output = "json"
	f := b.r.follower(b.s, b.job, "plain")
	f.stream = true
	lines := func() (said, documents int) {
		return strings.Count(b.errs.String(), "\n"), strings.Count(b.out.String(), "\n")
	}
	for _, tt := range []struct {
		what   string
		status map[string]any
		worth  int
	}{
		{"the first", map[string]any{"state": "working", "message": "m", "progress": 40.0}, 1},
		{"a percent", map[string]any{"state": "working", "message": "m", "progress": 41.0}, 0},
		{"nine", map[string]any{"state": "working", "message": "m", "progress": 49.9}, 0},
		{"a tenth", map[string]any{"state": "working", "message": "m", "progress": 50.0}, 1},
		{"an error", map[string]any{"state": "working", "message": "m", "progress": 50.0, "errors": []any{"a"}}, 1},
		{"another error", map[string]any{"state": "working", "message": "m", "progress": 51.0, "errors": []any{"a", "b"}}, 1},
		{"a message", map[string]any{"state": "working", "message": "n", "progress": 51.0, "errors": []any{"a", "b"}}, 1},
		{"a state", map[string]any{"state": "pending", "message": "n", "progress": 51.0, "errors": []any{"a", "b"}}, 1},
	} {
		said, documents := lines()
		u := b.job.DeepCopy()
		u.Object["status"] = tt.status
		f.see(u)
		if more, docs := lines(); more-said != tt.worth || docs-documents != tt.worth {
			t.Errorf("%s: %d lines and %d documents, want %d", tt.what, more-said, docs-documents, tt.worth)
		}
	}
	said, documents := lines()
	f.show(true)
	if more, docs := lines(); more != said+1 || docs != documents {
		t.Errorf("asked for: %d lines and %d documents more, want 1 and none", more-said, docs-documents)
	}
	if !strings.HasSuffix(b.errs.String(), " r-sync pending n errors=2\n") {
		t.Errorf("the last: %s", b.errs)
	}
}

// TestFollowIsCalmWithACurtServer: a server that ends each watch at once is asked
// once a second, not as fast as it can answer.
func TestFollowIsCalmWithACurtServer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.wire.curt.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
	defer cancel()
	b.ends(b.follow(ctx), ExitTimeout, "stopped waiting; the job goes on")
	if n := b.wire.watches.Load(); n < 2 || n > 3 {
		t.Errorf("%d watches in 2.5 s", n)
	}
}

// TestALineEachHalfMinute: of a job that says nothing for long there is one at least, also
// where no watch lives that long; one that has just said something is not repeated.
func TestALineEachHalfMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.claim("begun")
		began := time.Now()
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := b.follow(ctx)
		b.says("begun")
		time.Sleep(20*time.Second - time.Since(began))
		b.claim("further")
		b.says("further")
		time.Sleep(85*time.Second - time.Since(began))
		b.wire.curt.Store(true)
		b.wire.cut()
		b.says("no answer")
		b.wire.mend()
		time.Sleep(150*time.Second - time.Since(began))
		cancel(signalled{syscall.SIGINT})
		b.ends(ended, ExitCancelled, "the job goes on")
		var at []int
		for line := range strings.Lines(b.errs.String()) {
			stamp, text, _ := strings.Cut(line, " ")
			if when, err := time.Parse(time.RFC3339, stamp); err == nil && strings.Contains(text, "working 40%") {
				at = append(at, int(when.Sub(began.Truncate(time.Second)).Seconds()))
			}
		}
		if want := []int{0, 20, 50, 80, 110, 140}; !slices.Equal(at, want) {
			t.Errorf("lines after %v s, want %v:\n%s", at, want, b.errs)
		}
	})
}

// TestWatchOfAJobThatHasEnded: a quick job ends before its name is typed. The end is
// printed as who had waited sees it, with the same exit code; the newest of a name counts.
func TestWatchOfAJobThatHasEnded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, errs := s.must(t, ExitError, "job", "watch", "r-sync")
	if !strings.Contains(errs, "no job \"r-sync\", neither live nor finished") || !strings.Contains(errs, "try: limpet job list; limpet history list") {
		t.Errorf("%s", errs)
	}
	at := time.Now().Add(-3 * time.Minute)
	rec := func(uid, namespace, name, end, status string, at time.Time) state.Record {
		return state.Record{UID: uid, Namespace: namespace, Name: name, Repository: "r", Action: "pull", State: end, Status: []byte(status), Finished: at}
	}
	s.record(t,
		rec("u0", "default", "r-sync", "error", `{"state":"error"}`, at.Add(-time.Hour)),
		rec("u1", "default", "r-sync", "success", `{"state":"success","message":"all good","started":1000,"finished":3000}`, at),
		rec("u2", "default", "w-sync", "warning", `{"state":"warning"}`, at),
		rec("u3", "default", "c-sync", "cancelled", `{"state":"error"}`, at),
		rec("u4", "one", "e-sync", "dead", `{"state":"error"}`, at),
		rec("u5", "two", "e-sync", "success", `{"state":"success"}`, at))
	for _, tt := range []struct {
		args string
		code int
		out  string
	}{
		{"r-sync", ExitOK, "job/r-sync success in 2s: all good\n"}, {"u0", ExitJobFailed, "job/r-sync error in "}, {"w-sync", ExitPartial, "job/w-sync warning in "},
		{"c-sync", ExitCancelled, "job/c-sync cancelled in "}, {"e-sync -n one", ExitJobFailed, "job/e-sync dead in "}, {"e-sync -n two", ExitOK, "job/e-sync success in "},
	} {
		out, errs := s.must(t, tt.code, append([]string{"job", "watch"}, strings.Fields(tt.args)...)...)
		if !strings.HasPrefix(out, tt.out) || !strings.Contains(errs, "has ended already, 3m ago") && tt.args != "u0" {
			t.Errorf("%s: %s%s", tt.args, out, errs)
		}
	}
	if _, errs := s.must(t, ExitUsage, "job", "watch", "e-sync"); !strings.Contains(errs, "in several namespaces: one, two") {
		t.Errorf("%s", errs)
	}
	out, errs := s.must(t, ExitPartial, "job", "watch", "w-sync", "-q", "-o", "json")
	if !strings.HasPrefix(out, `{"type":"ended","schemaVersion":1,`) || strings.Count(out, "\n") != 1 || !strings.Contains(out, `"uid":"u2"`) || strings.Contains(errs, "already") {
		t.Errorf("%s%s", out, errs)
	}
}
